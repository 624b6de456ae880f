//! Options and errors of a load run: what is sent, and to which server.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// Most requests of a run. This and the next bounds limit the client's memory.
pub const REQUESTS_MAX: usize = 1_000_000;
/// Most clients of a closed loop, and most requests in flight of an open loop.
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Most words of a prompt.
pub const PROMPT_MAX: usize = 1 << 20;

/// Streaming endpoint of OpenAI's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// Arrival process of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Open loop: Poisson process.
    Poisson {
        /// Mean requests per second.
        rate: f64,
    },
    /// Closed loop: number of clients; each sends the next request after a response.
    Clients(usize),
}

/// Latency targets of goodput; all given targets must be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyTargets {
    /// Target for the time to first token, from the arrival of the request.
    pub first_token: Option<Duration>,
    /// Target for the mean time per output token.
    pub between_tokens: Option<Duration>,
}

/// Options of a load run.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Address of the server.
    pub target: Target,
    /// Endpoint of the requests.
    pub endpoint: Endpoint,
    /// Name of the model; `None` takes the first that the server lists.
    pub model: Option<String>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// Approximate prompt tokens; two probes measure the tokens per word.
    pub prompt_tokens: usize,
    /// `max_tokens` of each request.
    pub max_tokens: NonZeroU32,
    /// Sends `ignore_eos`, so that responses have `max_tokens` tokens (llama.cpp, vLLM and Millrace have the
    /// field).
    pub ignore_eos: bool,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f64,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Number of measured requests.
    pub requests: usize,
    /// Number of warm-up requests before, which are not measured.
    pub warmup: usize,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// Timeout from the arrival of a request to its last byte.
    pub timeout: Duration,
    /// Latency targets of goodput.
    pub targets: LatencyTargets,
    /// Process of the server, for CPU time and memory; must be on this machine.
    pub pid: Option<u32>,
}

/// The load run could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

impl LoadError {
    pub(super) fn of(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Address of a server and the path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, for the connection and the `Host` header.
    pub(crate) authority: String,
    /// Path before the endpoints without a trailing slash; ends in `/v1`.
    pub(crate) base: String,
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(String);

impl std::str::FromStr for Target {
    type Err = TargetError;

    /// Parses `http://HOST[:PORT][/PATH]`; `/v1` is appended where the path does not end in it.
    fn from_str(url: &str) -> Result<Self, TargetError> {
        let wrong = |why: &str| TargetError(format!("{url:?}: {why}"));
        let uri: http::Uri = url.parse().map_err(|why| wrong(&format!("{why}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("TLS would be measured too; use http")),
            _ => return Err(wrong("must begin with http://")),
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("names no host"))?;
        let port = uri.port_u16().unwrap_or(80);
        let path = uri.path().trim_end_matches('/');
        let base = if path.ends_with("/v1") {
            path.to_owned()
        } else {
            format!("{path}/v1")
        };
        Ok(Self {
            authority: format!("{host}:{port}"),
            base,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_url_forms_are_parsed() {
        let rows = [
            ("http://127.0.0.1:8420", "127.0.0.1:8420", "/v1"),
            ("http://127.0.0.1:8420/", "127.0.0.1:8420", "/v1"),
            ("http://127.0.0.1:8420/v1", "127.0.0.1:8420", "/v1"),
            ("http://host/v1/", "host:80", "/v1"),
            ("http://host:1/proxy", "host:1", "/proxy/v1"),
            ("http://[::1]:9", "[::1]:9", "/v1"),
        ];
        for (url, authority, base) in rows {
            let target: Target = url.parse().unwrap();
            assert_eq!(
                (&*target.authority, &*target.base),
                (authority, base),
                "{url}"
            );
        }
        for url in [
            "https://host",
            "host:80",
            "http://",
            "ftp://host",
            "",
            "/v1",
        ] {
            let error = url.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(&format!("{url:?}")), "{error}");
        }
    }
}
