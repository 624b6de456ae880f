//! One request to an upstream.

use super::address::UpstreamAddress;
use super::chunk::{Chunk, Finish, parse_chunk};
use super::config::{ERROR_BYTES_MAX, UpstreamConfig};
use super::event_lines::EventLines;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::net::TcpStream;
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

/// What a call reports, in order.
#[derive(Debug)]
pub(crate) enum Report {
    /// The upstream has taken the request.
    Accepted,
    /// Tokens, and the end of the answer.
    Tokens {
        ids: Vec<u32>,
        logprobs: Vec<f32>,
        finish: Option<Finish>,
    },
    /// The call failed.
    Failed(CallError),
}

/// A call of one choice; `key` is returned with each report.
pub(crate) struct HttpCall<K> {
    pub(crate) key: K,
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) address: UpstreamAddress,
    pub(crate) body: Vec<u8>,
    pub(crate) prompt: Vec<u32>,
    /// Tokens of this call that may be read; nothing is read beyond them, so that the upstream waits.
    pub(crate) credit: watch::Receiver<u64>,
    pub(crate) reports: mpsc::Sender<(K, Report)>,
}

impl<K: Copy> HttpCall<K> {
    /// Runs to the end of the answer. Dropping the future closes the connection, which cancels the upstream's work.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.stream_tokens().await {
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
                let chunk = parse_chunk(&data, &self.prompt).map_err(CallError::Refused)?;
                let Chunk::Tokens {
                    ids,
                    logprobs,
                    finish,
                } = chunk
                else {
                    return Err(unavailable(&"the response ended without finish_reason"));
                };
                self.wait_for_credit(read).await;
                read += ids.len() as u64;
                let is_last = finish.is_some();
                let tokens = Report::Tokens {
                    ids,
                    logprobs,
                    finish,
                };
                self.report(tokens).await;
                if is_last {
                    return Ok(());
                }
            }
            pushed.map_err(|_| CallError::Refused("an event is too long".to_owned()))?;
        }
    }

    async fn send(&self) -> Result<Incoming, CallError> {
        let authority = &self.address.authority;
        let socket = timeout(self.config.connect_max, TcpStream::connect(authority)).await;
        let socket = socket.map_err(|_| unavailable(&"connecting takes too long"))?;
        let io = TokioIo::new(socket.map_err(|why| unavailable(&why))?);
        let (mut sender, connection) = http1::handshake(io)
            .await
            .map_err(|why| unavailable(&why))?;
        // The connection ends when the response is dropped or complete.
        tokio::spawn(connection);
        let mut request = Request::post(self.address.completions_path())
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        if let Some(key) = &self.config.api_key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(&self.body)));
        let request = request.map_err(|why| CallError::Refused(why.to_string()))?;
        let response = timeout(self.config.head_max, sender.send_request(request)).await;
        let response = response.map_err(|_| unavailable(&"no response for too long"))?;
        let response = response.map_err(|why| unavailable(&why))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect();
        let body = timeout(self.config.connect_max, body).await;
        let body = body
            .ok()
            .and_then(Result::ok)
            .map(http_body_util::Collected::to_bytes);
        let text = String::from_utf8_lossy(body.as_deref().unwrap_or_default()).into_owned();
        let why = format!("status {status}: {text:.300}");
        let may_pass = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(match may_pass {
            true => CallError::Unavailable(why),
            false => CallError::Refused(why),
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

fn unavailable(why: &impl ToString) -> CallError {
    CallError::Unavailable(why.to_string())
}
