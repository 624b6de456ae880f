//! Bounds of the settings.

use super::Settings;
use std::ops::RangeInclusive;

/// A key and what is wrong with its value.
type Problem = (&'static str, String);

/// A key, its value, and where the value must lie.
type Row = (&'static str, u64, RangeInclusive<u64>);

/// Any count of things that cost memory each.
const COUNT: RangeInclusive<u64> = 1..=1 << 20;
/// A pause or a time-out: up to an hour.
const MS: RangeInclusive<u64> = 10..=3_600_000;

/// Every value that is out of bounds, for a server that asks for keys or does not.
pub(super) fn problems(settings: &Settings, keyed: bool) -> Vec<Problem> {
    let rows = model(settings).into_iter().chain(server(settings));
    let mut found: Vec<_> = rows
        .filter(|(_, value, range)| !range.contains(value))
        .map(|(key, value, range)| {
            let (min, max) = range.into_inner();
            (key, format!("{value} is not in {min}..={max}"))
        })
        .collect();
    found.extend(step_tokens(settings));
    found.extend(bind(settings).filter(|_| !keyed));
    found
}

fn model(settings: &Settings) -> Vec<Row> {
    let (model, engine) = (&settings.model, &settings.engine);
    let threads = model.threads.unwrap_or(1) as u64;
    let context = model.context.unwrap_or(1) as u64;
    vec![
        ("model.kv_mib", model.kv_mib as u64, 1..=1 << 24),
        ("model.context", context, 1..=1 << 24),
        ("model.threads", threads, 1..=1024),
        (
            "engine.sequences_max",
            engine.sequences_max as u64,
            1..=65_536,
        ),
        ("engine.step_tokens", engine.step_tokens as u64, 2..=65_536),
        ("engine.inbox_max", engine.inbox_max as u64, COUNT),
    ]
}

fn server(settings: &Settings) -> Vec<Row> {
    let server = &settings.server;
    let per_ip = server.connections_per_ip_max as u64;
    vec![
        ("server.io_threads", server.io_threads as u64, 1..=256),
        (
            "server.open_requests_max",
            server.open_requests_max as u64,
            COUNT,
        ),
        (
            "server.connections_max",
            server.connections_max as u64,
            COUNT,
        ),
        ("server.connections_per_ip_max", per_ip, COUNT),
        (
            "server.body_bytes_max",
            server.body_bytes_max as u64,
            1024..=1 << 30,
        ),
        ("server.header_timeout_ms", server.header_timeout_ms, MS),
        ("server.body_timeout_ms", server.body_timeout_ms, MS),
        (
            "server.drain_timeout_ms",
            server.drain_timeout_ms,
            0..=3_600_000,
        ),
        ("streams.keep_alive_ms", settings.streams.keep_alive_ms, MS),
    ]
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

fn bind(settings: &Settings) -> Option<Problem> {
    let server = &settings.server;
    (!server.bind.ip().is_loopback() && !server.no_auth).then(|| {
        let why = format!(
            "{} can be reached by other hosts; give it keys (keys.file), or say --no-auth if that is meant",
            server.bind
        );
        ("server.bind", why)
    })
}
