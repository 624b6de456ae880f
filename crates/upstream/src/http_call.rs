//! HTTP with an upstream: one request for tokens, and error texts without secrets.

use super::config::{DESCRIPTION_BYTES_MAX, ERROR_BYTES_MAX, UpstreamAddress, UpstreamConfig};
use super::event::{Chunk, EventError, EventLines, EventParser, TokenChunk};
use bytes::Bytes;
use http::request::Builder;
use http::{Request, Response, StatusCode, header};
use http_client::{HttpClient, Incoming, next_bytes, read_body};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Anthropic's status of an overloaded server.
const OVERLOADED: u16 = 529;

/// Why a call ended without an end of the answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Another upstream, or a later call, may succeed.
    Unavailable(String),
    /// As `Unavailable`, and the upstream answered that it failed on the request.
    Errored(String),
    /// The upstream rejected the request, or does not speak the protocol.
    Refused(String),
}

impl CallError {
    /// The error whose text does not repeat the key of the request, or other keys.
    fn without_secrets(self, key: Option<&str>) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unavailable(without_secrets(&why, key)),
            Self::Errored(why) => Self::Errored(without_secrets(&why, key)),
            Self::Refused(why) => Self::Refused(without_secrets(&why, key)),
        }
    }
}

/// Reports of a call, in order.
#[derive(Debug)]
pub(crate) enum Report {
    /// The upstream has taken the request.
    Accepted,
    /// Tokens, and the end of the answer.
    Tokens(TokenChunk),
    /// The call failed.
    Failed(CallError),
}

/// A call of one choice; `key` is returned with each report.
pub(crate) struct HttpCall<K> {
    pub(crate) key: K,
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) client: HttpClient,
    pub(crate) address: UpstreamAddress,
    pub(crate) route: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) parser: EventParser,
    /// Tokens of this call that may be read; nothing is read beyond them, so that the upstream waits.
    pub(crate) credit: watch::Receiver<u64>,
    pub(crate) reports: mpsc::Sender<(K, Report)>,
}

impl<K: Copy> HttpCall<K> {
    /// Runs to the end of the answer. Dropping the future closes the connection, which cancels the upstream's work.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.stream_tokens().await {
            let error = error.without_secrets(self.config.api_key.as_deref());
            self.report(Report::Failed(error)).await;
        }
    }

    async fn stream_tokens(&mut self) -> Result<(), CallError> {
        let mut body = self.send().await?;
        self.report(Report::Accepted).await;
        let (mut lines, mut events, mut read) = (EventLines::default(), Vec::new(), 0);
        loop {
            self.wait_for_credit(read).await;
            let bytes = next_bytes(&mut body, self.config.silence_max).await;
            let Some(bytes) = bytes.map_err(|why| unavailable(&why))? else {
                return Err(unavailable(&"the response ended before the answer"));
            };
            let pushed = lines.push(&bytes, &mut events);
            for data in events.drain(..) {
                let Chunk::Tokens(chunk) = self.parser.parse(&data)? else {
                    return Err(unavailable(&"the response ended without a reason"));
                };
                self.wait_for_credit(read).await;
                read += chunk.ids.len() as u64;
                let is_last = chunk.finish.is_some();
                self.report(Report::Tokens(chunk)).await;
                if is_last {
                    return Ok(());
                }
            }
            pushed.map_err(|_| CallError::Refused("an event is too long".to_owned()))?;
        }
    }

    async fn send(&self) -> Result<Incoming, CallError> {
        let target = Target {
            config: &self.config,
            client: &self.client,
            address: &self.address,
        };
        let response = target.post(self.route, &self.body).await;
        let response = response.map_err(CallError::Unavailable)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let why = target.status_error(response).await;
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                CallError::Unavailable(why)
            }
            StatusCode::REQUEST_TIMEOUT => CallError::Errored(why),
            status if status.as_u16() == OVERLOADED => CallError::Unavailable(why),
            status if status.is_server_error() => CallError::Errored(why),
            _ => CallError::Refused(why),
        })
    }

    async fn wait_for_credit(&mut self, read: u64) {
        // The sender is dropped with the request, and this future with it.
        let _ = self.credit.wait_for(|credit| read < *credit).await;
    }

    async fn report(&self, report: Report) {
        // The relay is gone where this fails.
        let _ = self.reports.send((self.key, report)).await;
    }
}

impl From<EventError> for CallError {
    fn from(error: EventError) -> Self {
        match error {
            EventError::Failed(why) => Self::Unavailable(why),
            EventError::Misunderstood(why) => Self::Refused(why),
        }
    }
}

fn unavailable(why: &impl ToString) -> CallError {
    CallError::Unavailable(why.to_string())
}

/// An upstream and how it is used.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) config: &'a UpstreamConfig,
    pub(crate) client: &'a HttpClient,
    pub(crate) address: &'a UpstreamAddress,
}

impl Target<'_> {
    /// Posts JSON; returns the head of the response, for which there is `head_max`.
    ///
    /// # Errors
    /// There is no response; why.
    pub(crate) async fn post(self, route: &str, body: &[u8]) -> Result<Response<Incoming>, String> {
        let request = Request::post(self.address.url_of(route))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        let body = Bytes::copy_from_slice(body);
        self.exchange(request, body, self.config.head_max).await
    }

    /// The JSON of a route about the upstream itself.
    ///
    /// # Errors
    /// There is no such response in time; why.
    pub(crate) async fn get_json(self, route: &str) -> Result<Value, String> {
        let request = Request::get(self.address.url_of(route));
        let time = self.config.connect_max;
        let response = self.exchange(request, Bytes::new(), time).await?;
        if response.status() != StatusCode::OK {
            return Err(self.status_error(response).await);
        }
        let body = read_body(response.into_body(), DESCRIPTION_BYTES_MAX, time).await;
        let body = body.map_err(|why| format!("{route}: {why}"))?;
        serde_json::from_slice(&body).map_err(|why| format!("{route}: {why}"))
    }

    /// Status and beginning of the body of an error response.
    pub(crate) async fn status_error(self, response: Response<Incoming>) -> String {
        let status = response.status();
        let time = self.config.connect_max;
        let body = read_body(response.into_body(), ERROR_BYTES_MAX, time).await;
        let text = String::from_utf8_lossy(body.as_deref().unwrap_or_default()).into_owned();
        format!("status {status}: {text:.300}")
    }

    async fn exchange(
        self,
        mut request: Builder,
        body: Bytes,
        head_max: Duration,
    ) -> Result<Response<Incoming>, String> {
        if let Some(key) = &self.config.api_key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.body(body).map_err(|why| why.to_string())?;
        let response = self.client.send(request, head_max).await;
        response.map_err(|why| why.to_string())
    }
}

/// Replacement of a secret.
const HIDDEN: &str = "[hidden]";
/// Letters and digits in a row from which on a word may be a credential.
const CREDENTIAL_CHARS_MIN: usize = 20;
/// Beginnings of credentials.
const PREFIXES: [&str; 5] = ["sk-", "hf_", "ghp_", "eyJ", "mr-"];

/// The text on one line and without credentials: `key`, words after `Bearer`, and words that look like credentials.
pub(crate) fn without_secrets(text: &str, key: Option<&str>) -> String {
    let text = match key.filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, HIDDEN),
        None => text.to_owned(),
    };
    let (mut out, mut word, mut hides_next) =
        (String::with_capacity(text.len()), String::new(), false);
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() || matches!(c, '_' | '-' | '*') {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let is_secret = hides_next || is_credential(&word);
            hides_next = word.eq_ignore_ascii_case("bearer");
            out.push_str(if is_secret { HIDDEN } else { &word });
            word.clear();
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out.pop();
    out
}

/// Whether a word looks like a key: by its beginning, or long and of letters and digits.
fn is_credential(word: &str) -> bool {
    let has = |is: fn(char) -> bool| word.chars().any(is);
    let is_long = word.chars().count() >= CREDENTIAL_CHARS_MIN;
    PREFIXES
        .iter()
        .any(|prefix| word.starts_with(prefix) && word.len() > prefix.len() + 3)
        || is_long && has(|c| c.is_ascii_digit()) && has(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_an_upstream_repeats_are_hidden() {
        for (text, want) in [
            ("model `m` does not exist", "model `m` does not exist"),
            (
                "status 401: no such key: k 1\n",
                "status 401: no such key: [hidden] ",
            ),
            (
                "authorization: Bearer abc",
                "authorization: Bearer [hidden]",
            ),
            (
                "Incorrect API key provided: sk-ab***yz.",
                "Incorrect API key provided: [hidden].",
            ),
            (
                "{\"key\":\"0123456789abcdef0123\"}",
                "{\"key\":\"[hidden]\"}",
            ),
            ("Qwen2.5-Coder-0.5B-Instruct", "Qwen2.5-Coder-0.5B-Instruct"),
        ] {
            assert_eq!(without_secrets(text, Some("k 1")), want);
        }
        assert_eq!(without_secrets("a", Some("")), "a");
    }
}
