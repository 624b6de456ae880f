//! Bounds of the settings, and conditions on several settings together.

use super::catalog::SETTINGS;
use super::{Settings, Speculation, adapters, cluster, listener, named_models, tree, upstream};
use crate::logging;
use serde_json::{Map, Value};
use server::Origins;

/// Bytes of `server.api_prefix`.
const API_PREFIX_BYTES_MAX: usize = 128;

/// A key and the problem of the value.
type Problem = (&'static str, String);

/// Problems of the settings that every command uses: bounds, the engine, models.
pub(super) fn problems(settings: &Settings) -> Vec<Problem> {
    let mut found = out_of_bounds(&tree::of(settings));
    found.extend(step_tokens(settings));
    found.extend(min_streams(settings));
    found.extend(draft_model(settings));
    found.extend(adapters::problem(settings));
    found.extend(named_models::problem(settings));
    found.extend(settings.sampling.problem());
    found.extend(settings.vision.problem());
    let filter = logging::parse_filter(&settings.log.filter);
    found.extend(filter.err().map(|why| ("log.filter", why)));
    found
}

/// Problems that prevent only a server: who reaches it, and whom it reaches. `keyed`: the server requires API keys.
pub(super) fn server_problems(settings: &Settings, keyed: bool) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(check_origins(settings));
    found.extend(check_api_prefix(settings));
    found.extend(listener::problem(settings));
    found.extend(cluster::problems(settings));
    found.extend(upstream::problems(settings));
    found.extend(check_webhooks(settings));
    found.extend(check_bind(settings).filter(|_| !keyed));
    found
}

fn out_of_bounds(settings: &Map<String, Value>) -> Vec<Problem> {
    let value = |key| tree::get(settings, key).and_then(Value::as_u64);
    SETTINGS
        .iter()
        .filter_map(|setting| Some((&*setting.key, value(&setting.key)?, setting.range?)))
        .filter(|(_, value, (min, max))| !(min..=max).contains(&value))
        .map(|(key, value, (min, max))| (key, format!("must be {min} to {max}, not {value}")))
        .collect()
}

fn step_tokens(settings: &Settings) -> Option<Problem> {
    let engine = &settings.engine;
    (engine.step_tokens < engine.sequences_max).then(|| {
        let why = format!(
            "{} is fewer than engine.sequences_max ({}): running sequences would wait for each other",
            engine.step_tokens, engine.sequences_max
        );
        ("engine.step_tokens", why)
    })
}

/// The default floor yields to a smaller ceiling.
fn min_streams(settings: &Settings) -> Option<Problem> {
    let limits = &settings.adaptive_limits;
    let is_set = limits.min_streams != Settings::default().adaptive_limits.min_streams;
    (is_set && limits.min_streams > limits.max_streams).then(|| {
        let why = format!(
            "{} is more than adaptive_limits.max_streams ({})",
            limits.min_streams, limits.max_streams
        );
        ("adaptive_limits.min_streams", why)
    })
}

fn draft_model(settings: &Settings) -> Option<Problem> {
    let engine = &settings.engine;
    let drafts = engine.speculation == Speculation::Draft;
    let why = match (drafts, &engine.draft_model) {
        (true, None) => "not set; engine.speculation is draft",
        (false, Some(_)) => "set, but engine.speculation is not draft",
        _ => return None,
    };
    Some(("engine.draft_model", why.to_owned()))
}

fn check_origins(settings: &Settings) -> Option<Problem> {
    let why = Origins::parse(&settings.server.origins).err()?;
    Some(("server.origins", why))
}

fn check_api_prefix(settings: &Settings) -> Option<Problem> {
    let prefix = settings.server.api_prefix.as_str();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '~');
    let is_segment = |segment: &str| {
        let is_relative = matches!(segment, "." | "..");
        !segment.is_empty() && !is_relative && segment.chars().all(is_plain)
    };
    let is_path = || {
        let segments = prefix.strip_prefix('/');
        segments.is_some_and(|segments| segments.split('/').all(is_segment))
    };
    let why = if prefix.is_empty() {
        return None;
    } else if prefix.len() > API_PREFIX_BYTES_MAX {
        let bytes = prefix.len();
        format!("has {bytes} bytes; at most {API_PREFIX_BYTES_MAX}")
    } else if !is_path() {
        format!(
            "{prefix:?} is no path such as /llm: a slash before each part, none at the end, and letters, digits, '.', '_', '-', '~'"
        )
    } else if !settings.cluster.servers.is_empty() {
        "set, but also cluster.servers: instances of a cluster ask each other without a prefix; let a proxy take it off".to_owned()
    } else {
        return None;
    };
    Some(("server.api_prefix", why))
}

fn check_webhooks(settings: &Settings) -> Option<Problem> {
    let why = settings.webhooks.hosts().err()?;
    Some(("webhooks.allowed_hosts", why))
}

fn check_bind(settings: &Settings) -> Option<Problem> {
    let server = &settings.server;
    (!server.bind.ip().is_loopback() && !server.no_auth).then(|| {
        let why = format!(
            "{} can be reached by other hosts: require API keys (--api-key KEY, or --keys FILE and keys.file), \
             or give --no-auth if something else protects it",
            server.bind
        );
        ("server.bind", why)
    })
}
