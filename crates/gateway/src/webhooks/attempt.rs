//! One attempt to deliver an event: a request on a connection of its own. The table bounds the number of attempts.

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http_client::{ClientOptions, HttpClient, HttpError, Reach, retry_after};
use std::time::Duration;
use wire::clock;

const AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));

/// A request to be sent.
#[derive(Clone, Debug)]
pub(crate) struct WebhookRequest {
    /// An `http` or `https` URL of an allowed host.
    pub(crate) url: String,
    /// Header `webhook-id`.
    pub(crate) id: String,
    /// Header `webhook-timestamp`.
    pub(crate) unix_s: i64,
    /// Header `webhook-signature`.
    pub(crate) signatures: String,
    /// The event as JSON.
    pub(crate) body: Bytes,
    /// Time of the whole attempt.
    pub(crate) timeout: Duration,
    /// Whether the host may have addresses that are not public.
    pub(crate) allow_private: bool,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The receiver has answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// `Retry-After` as a delay.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    Failed(String),
}

/// Sends events. Follows no redirect, uses no proxy, keeps no connection, and reads nothing of a response's body.
pub(crate) struct WebhookSender {
    public: HttpClient,
    any: HttpClient,
}

impl WebhookSender {
    /// A sender without connections.
    pub(crate) fn new() -> Self {
        let client = |reach| {
            HttpClient::new(ClientOptions {
                reach,
                ..ClientOptions::default()
            })
        };
        Self {
            public: client(Reach::Public),
            any: client(Reach::Any),
        }
    }

    /// Sends a request, within its timeout.
    pub(crate) async fn send(&self, request: WebhookRequest) -> AttemptOutcome {
        match self.post(request).await {
            Ok(outcome) => outcome,
            Err(why) => AttemptOutcome::Failed(why.to_string()),
        }
    }

    async fn post(&self, request: WebhookRequest) -> Result<AttemptOutcome, HttpError> {
        let client = if request.allow_private {
            &self.any
        } else {
            &self.public
        };
        let post = Request::post(&request.url)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header("webhook-id", request.id)
            .header("webhook-timestamp", request.unix_s)
            .header("webhook-signature", request.signatures)
            .body(request.body);
        let post = post.map_err(|why| HttpError::Url(why.to_string()))?;
        let response = client.send(post, request.timeout).await?;
        Ok(AttemptOutcome::Answered {
            status: response.status().as_u16(),
            retry_after: retry_after(response.headers(), clock::wall(clock::now())),
        })
    }
}
