//! The line of the log for each request, written when its response has ended.

use axum::extract::MatchedPath;
use axum::http::{HeaderMap, Method};
use generate::output::event::Times;
use generate::stream_source::{ChoiceLog, StreamSource};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::clock;

/// The header in which clients and proxies send an id of the request.
const REQUEST_ID: &str = "x-request-id";
/// Bytes of an id that comes from a client.
const ID_BYTES_MAX: usize = 128;
/// The status of nginx for a client that disconnected before the response.
const CLIENT_DISCONNECTED: u16 = 499;

/// What the log says about one request. Layers and handlers fill it in; its drop, at the end of the response, writes it.
pub(crate) struct RequestLine {
    id: Box<str>,
    method: &'static str,
    arrived: Instant,
    /// Pattern of the route.
    route: OnceLock<MatchedPath>,
    /// Name of the caller's key.
    key: OnceLock<Arc<str>>,
    /// 0: no response yet.
    status: AtomicU16,
    /// Code of the error.
    error: OnceLock<&'static str>,
    /// The generation.
    source: OnceLock<Arc<StreamSource>>,
    /// Whether the response is a stream of events.
    is_streamed: AtomicBool,
}

impl RequestLine {
    /// The line of a request that has arrived now.
    pub(crate) fn new(id: String, method: &Method) -> Self {
        Self {
            id: id.into(),
            method: known_method(method),
            arrived: clock::now(),
            route: OnceLock::new(),
            key: OnceLock::new(),
            status: AtomicU16::new(0),
            error: OnceLock::new(),
            source: OnceLock::new(),
            is_streamed: AtomicBool::new(false),
        }
    }

    /// Id of the request, also in the response.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Notes the pattern of the route.
    pub(crate) fn set_route(&self, route: &MatchedPath) {
        let _ = self.route.set(route.clone());
    }

    /// Notes the caller's key.
    pub(crate) fn set_key(&self, name: &Arc<str>) {
        let _ = self.key.set(Arc::clone(name));
    }

    /// Notes the status of the response.
    pub(crate) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Notes the code of the error that the response has.
    pub(crate) fn set_error(&self, code: &'static str) {
        let _ = self.error.set(code);
    }

    /// Notes the generation whose events the response has.
    pub(crate) fn set_source(&self, source: Arc<StreamSource>) {
        let _ = self.source.set(source);
    }

    /// Notes that the response is a stream of events.
    pub(crate) fn set_streamed(&self) {
        self.is_streamed.store(true, Ordering::Relaxed);
    }
}

/// Extension of a response: the generation that it answers with.
#[derive(Clone)]
pub(crate) struct AnsweredStream(pub(crate) Arc<StreamSource>);

/// Counts and times of a generation for its line.
#[derive(Default)]
struct LoggedGeneration {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    first_token: Option<Instant>,
}

impl LoggedGeneration {
    fn of(source: &StreamSource) -> Self {
        let Some(started) = source.started() else {
            return Self::default();
        };
        Self {
            prompt_tokens: started.prompt_tokens,
            cached_tokens: started.cached_tokens(),
            completion_tokens: started.choices.iter().map(ChoiceLog::answered).sum(),
            first_token: Times::of(started).first_token,
        }
    }
}

impl Drop for RequestLine {
    fn drop(&mut self) {
        let status = match self.status.load(Ordering::Relaxed) {
            0 => CLIENT_DISCONNECTED,
            status => status,
        };
        let route = self.route.get().map_or("none", MatchedPath::as_str);
        let total_ms = in_ms(clock::now().saturating_duration_since(self.arrived));
        let (id, method) = (&*self.id, self.method);
        let key = self.key.get().map(|name| &**name);
        let error = self.error.get().copied();
        if is_probe(route) {
            tracing::debug!(target: "requests", id, key, method, route, status, error, total_ms, "request");
            return;
        }
        let Some(source) = self.source.get() else {
            tracing::info!(target: "requests", id, key, method, route, status, error, total_ms, "request");
            return;
        };
        let counts = LoggedGeneration::of(source);
        let first = counts.first_token;
        let first_token_ms = first.map(|at| in_ms(at.saturating_duration_since(self.arrived)));
        tracing::info!(
            target: "requests",
            id,
            key,
            method,
            route,
            status,
            error,
            total_ms,
            model = source.meta().model,
            stream = self.is_streamed.load(Ordering::Relaxed),
            prompt_tokens = counts.prompt_tokens,
            cached_tokens = counts.cached_tokens,
            completion_tokens = counts.completion_tokens,
            first_token_ms,
            "request"
        );
    }
}

/// Whether a route is asked every few seconds by supervisors and collectors.
fn is_probe(route: &str) -> bool {
    route.starts_with("/health") || matches!(route, "/metrics" | "/v1/ready")
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The id that a client or a proxy gave the request: its plain characters, at most 128. `None`: there is no such header, or
/// more than one.
pub(crate) fn given_id(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(REQUEST_ID).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    // Harmless in a log and in a header.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.:/+=@".contains(*c);
    let bytes = value.as_bytes().iter();
    let id: String = bytes
        .map(|&byte| char::from(byte))
        .filter(is_plain)
        .take(ID_BYTES_MAX)
        .collect();
    Some(id).filter(|id| !id.is_empty())
}

/// The method; `OTHER` for one that a client invented.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
    ];
    let known = KNOWN.into_iter().find(|name| *name == method.as_str());
    known.unwrap_or("OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn id_of_a_client_is_kept_without_characters_that_could_harm() {
        let long = "a".repeat(4000);
        for (given, want) in [
            ("req_1-2.3:4/5+6=7@8", Some("req_1-2.3:4/5+6=7@8")),
            ("a b\u{1b}[31m\"c", Some("ab31mc")),
            (" ", None),
            ("", None),
            (&long, Some(&long[..128])),
        ] {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_bytes(given.replace('\u{1b}', "\t").as_bytes());
            headers.insert(REQUEST_ID, value.expect("a value"));
            assert_eq!(given_id(&headers).as_deref(), want, "{given}");
            headers.append(REQUEST_ID, HeaderValue::from_static("other"));
            assert_eq!(given_id(&headers), None, "two of them");
        }
        assert_eq!(given_id(&HeaderMap::new()), None);
    }
}
