//! `millrace ps`: the loaded models of a running server, from the server's API.

use super::columns::{self, Align};
use crate::args::{PsArgs, Secret};
use crate::clock::now_unix_s;
use crate::config::{Settings, bind};
use crate::failure::Failure;
use serde::Deserialize;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use ureq::Agent;
use ureq::http::StatusCode;

/// Bytes of a list of loaded models.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// Time without a byte after which the request fails.
const SILENCE: Duration = Duration::from_secs(10);
/// An expiry later than this is printed as never.
const FOR_EVER_S: i64 = 1 << 32;

/// Response of `/api/ps`.
#[derive(Deserialize)]
struct List {
    models: Vec<Running>,
}

#[derive(Deserialize)]
struct Running {
    name: String,
    size: u64,
    context_length: u64,
    expires_at: String,
}

/// Prints a line for each loaded model.
pub(crate) fn ps(args: &PsArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    let url = match &args.url {
        None => of_settings(&config.settings),
        Some(url) if url.contains("://") => url.trim_end_matches('/').to_owned(),
        // The syntax of `--bind`; other text has a host name for the resolver.
        Some(authority) => match bind::parse(authority) {
            Ok(address) => format!("http://{address}"),
            Err(_) => format!("http://{}", authority.trim_end_matches('/')),
        },
    };
    let list = fetch_list(&url, args.api_key.as_ref().map(Secret::reveal))?;
    let rows = list.models.iter().map(|model| {
        [
            model.name.clone(),
            columns::bytes(model.size),
            model.context_length.to_string(),
            shown_expiry(&model.expires_at),
        ]
    });
    let head = ["NAME", "MEMORY", "CONTEXT", "UNLOADED"];
    let align = [Align::Left, Align::Right, Align::Right, Align::Left];
    let table = columns::table(head, align, rows);
    write!(std::io::stdout().lock(), "{table}")?;
    Ok(())
}

/// URL of a server with these settings, from this machine.
fn of_settings(settings: &Settings) -> String {
    let bind = settings.server.bind;
    let host = match bind.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host,
    };
    format!("http://{}", SocketAddr::new(host, bind.port()))
}

fn fetch_list(url: &str, key: Option<&str>) -> Result<List, Failure> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(SILENCE))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE));
    let agent: Agent = config.build().into();
    let mut request = agent.get(format!("{url}/api/ps"));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let unreachable = |why: ureq::Error| {
        Failure::user(format!(
            "no server answers at {url}: {why}\n  `millrace serve` starts one; --url says where another is"
        ))
    };
    let mut response = request.call().map_err(unreachable)?;
    let status = response.status();
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(Failure::user(format!(
                "the server at {url} requires an API key: --api-key KEY, or the variable MILLRACE_API_KEY"
            )));
        }
        _ => return Err(Failure::user(format!("{url}/api/ps answered {status}"))),
    }
    let body = response.body_mut().with_config().limit(LIST_BYTES_MAX);
    let text = body.read_to_string().map_err(unreachable)?;
    serde_json::from_str(&text).map_err(|why| {
        Failure::user(format!(
            "{url}/api/ps returned an unexpected response: {why}"
        ))
    })
}

/// Time until an idle model is unloaded.
fn shown_expiry(expires_at: &str) -> String {
    let Ok(expires) = expires_at.parse::<jiff::Timestamp>() else {
        return expires_at.to_owned();
    };
    match expires.as_second() - now_unix_s() {
        FOR_EVER_S.. => "never".to_owned(),
        left => match u64::try_from(left) {
            Ok(left) => format!("in {}", columns::span(left)),
            Err(_) => "now".to_owned(),
        },
    }
}
