//! Sending an event: one thread and one connection for each attempt. The outbox bounds the number of attempts.
//!
//! The client follows no redirect, uses no proxy, keeps no connection, and reads nothing of the response's body.

use super::checked_resolver::CheckedResolver;
use gateway::webhooks::{AttemptOutcome, SendWebhook, WebhookRequest};
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use ureq::Agent;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::unversioned::transport::DefaultConnector;
use wire::clock;

/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Name of the threads.
const THREAD: &str = "webhook";
const USER_AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));

/// The HTTP client.
pub(crate) struct HttpSender;

impl SendWebhook for HttpSender {
    fn send(&self, request: WebhookRequest, outcome: oneshot::Sender<AttemptOutcome>) {
        let attempt = move || {
            let _ = outcome.send(post(&request));
        };
        if let Err(error) = thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(attempt)
        {
            tracing::warn!(%error, "no thread for an attempt of a webhook's delivery");
        }
    }
}

fn post(request: &WebhookRequest) -> AttemptOutcome {
    let config = Agent::config_builder()
        .timeout_global(Some(request.timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .max_idle_connections(0)
        .max_response_header_size(HEAD_BYTES_MAX)
        .user_agent(USER_AGENT)
        .build();
    let resolver = CheckedResolver {
        allow_private: request.allow_private,
    };
    let agent = Agent::with_parts(config, DefaultConnector::new(), resolver);
    let sent = agent
        .post(&request.url)
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-id", &request.id)
        .header("webhook-timestamp", request.unix_s.to_string())
        .header("webhook-signature", &request.signatures)
        .send(request.body.as_bytes());
    match sent {
        Ok(response) => {
            let retry_after = response.headers().get(RETRY_AFTER);
            let retry_after = retry_after.and_then(|value| value.to_str().ok());
            AttemptOutcome::Answered {
                status: response.status().as_u16(),
                retry_after: retry_after.and_then(|text| delay(text, clock::wall(clock::now()))),
            }
        }
        Err(error) => AttemptOutcome::Failed(error.to_string()),
    }
}

/// `Retry-After`: seconds, or a date.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, want) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(delay(text, now), want.map(Duration::from_secs), "{text}");
        }
    }
}
