//! One request for tokens.

use super::address::UpstreamAddress;
use super::config::UpstreamConfig;
use super::event::{Chunk, EventError, EventLines, EventParser, TokenChunk};
use super::http_connection::Target;
use super::redaction::without_secrets;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Why a call ended without an end of the answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Another upstream, or a later call, may succeed.
    Unavailable(String),
    /// The upstream rejected the request, or does not speak the protocol.
    Refused(String),
}

impl CallError {
    /// The error whose text does not repeat the key of the request, or other keys.
    fn without_secrets(self, key: Option<&str>) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unavailable(without_secrets(&why, key)),
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
            let frame = timeout(self.config.silence_max, body.frame()).await;
            let frame = frame.map_err(|_| unavailable(&"no byte for too long"))?;
            let Some(frame) = frame else {
                return Err(unavailable(&"the response ended before the answer"));
            };
            let frame = frame.map_err(|why| unavailable(&why))?;
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            let pushed = lines.push(bytes, &mut events);
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
            address: &self.address,
        };
        let response = target.post(self.route, &self.body).await;
        let response = response.map_err(CallError::Unavailable)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let why = target.status_error(response).await;
        let may_pass = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(if may_pass {
            CallError::Unavailable(why)
        } else {
            CallError::Refused(why)
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
