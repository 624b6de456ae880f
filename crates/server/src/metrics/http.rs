//! Metrics of HTTP requests, and the handler of `GET /metrics`.

use super::merged_text::MergedText;
use super::{Metrics, MetricsSources, families, prometheus_text, snapshot};
use crate::peers::{ListScope, PassedRequest, PeerCalls, PeerReach};
use crate::request_line::RequestLine;
use crate::response::Rejected;
use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::metrics::counters::{self, Counter};
use generate::error::ApiError;
use std::sync::Arc;
use wire::item_page::Query;
use wire::shared::error_response::RejectedWith;

/// Statuses with a counter of their own.
const STATUSES: [(u16, &str); 25] = [
    (101, "101"),
    (200, "200"),
    (202, "202"),
    (204, "204"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (409, "409"),
    (410, "410"),
    (413, "413"),
    (415, "415"),
    (421, "421"),
    (422, "422"),
    (426, "426"),
    (429, "429"),
    (CLIENT_DISCONNECTED, "499"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
    (529, "529"),
];

/// The status of nginx for a client that disconnected before the response.
const CLIENT_DISCONNECTED: u16 = 499;

/// Requests of one route, by status.
#[derive(Debug, Default)]
pub(crate) struct StatusCounters {
    known: [Counter; STATUSES.len()],
    beyond: Counter,
}

impl StatusCounters {
    fn of(&self, status: u16) -> &Counter {
        let known = STATUSES.iter().position(|&(code, _)| code == status);
        known.map_or(&self.beyond, |at| &self.known[at])
    }

    /// The counts that are not zero.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = STATUSES.iter().zip(&self.known);
        known
            .map(|(&(_, name), counter)| (name, counter.get()))
            .chain([(counters::BEYOND, self.beyond.get())])
            .filter(|&(_, count)| count > 0)
    }
}

/// Counts a request when the response head is known, or when the request is dropped without a response.
pub(crate) async fn count_request(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let route: Option<&MatchedPath> = request.extensions().get();
    if let (Some(line), Some(route)) = (request.extensions().get::<Arc<RequestLine>>(), route) {
        line.set_route(route);
    }
    let mut counted = CountedRequest {
        metrics,
        route: request.extensions().get().cloned(),
        status: None,
    };
    let response = next.run(request).await;
    counted.status = Some(response.status());
    if let Some(RejectedWith(code)) = response.extensions().get() {
        counted.metrics.count_rejection(code);
    }
    response
}

/// A request without a response yet; counted on drop.
struct CountedRequest {
    metrics: Arc<Metrics>,
    route: Option<MatchedPath>,
    status: Option<StatusCode>,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let status = match self.status {
            Some(status) => status.as_u16(),
            None if std::thread::panicking() => 500,
            None => CLIENT_DISCONNECTED,
        };
        let route = self.route.as_ref().map_or("none", MatchedPath::as_str);
        self.metrics.requests.value_of(route).of(status).add(1);
    }
}

/// `GET /metrics`: as Prometheus text, or as one JSON object for clients that accept JSON. With `scope=cluster`, the text
/// of all living instances.
pub(crate) async fn show_metrics(
    State(sources): State<MetricsSources>,
    State(calls): State<Arc<PeerCalls>>,
    head: Parts,
) -> Result<Response, Rejected> {
    let headers = &head.headers;
    let query = Query::of(&head.uri)?;
    let scope = ListScope::parse(&query, headers, ListScope::Instance)?;
    let json = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| {
            accept
                .split([',', ';'])
                .any(|kind| kind.trim() == "application/json")
        });
    if json {
        if scope == ListScope::Cluster {
            let message = "scope: cluster is there as Prometheus text only (Accept: text/plain)";
            return Err(ApiError::field("scope", "invalid_value", message).into());
        }
        return Ok(Json(snapshot::take_snapshot(&sources)).into_response());
    }
    let own = families::write_families(&sources);
    let text = match scope {
        ListScope::Instance => own,
        ListScope::Cluster => cluster_text(&calls, &head, &own).await,
    };
    let headers = [(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)];
    Ok((headers, text).into_response())
}

/// The metrics of this instance and of all others that answer in time.
async fn cluster_text(calls: &PeerCalls, head: &Parts, own: &str) -> String {
    let role = calls.peers.own_role().unwrap_or_default().name();
    let instance = calls.peers.own_name().unwrap_or_default();
    let mut text = MergedText::default();
    text.add(own, &instance, role);
    let request = PassedRequest::get(head, "/metrics".to_owned());
    let all = calls.ask_all(PeerReach::All, &request).await;
    let mut up = vec![(instance, role, 1.0)];
    for answer in &all.answers {
        let (id, role) = (answer.peer.id.to_string(), answer.peer.role.name());
        text.add(&String::from_utf8_lossy(&answer.body), &id, role);
        up.push((id, role, 1.0));
    }
    for silent in all.unanswered {
        tracing::debug!(instance = silent.instance, "no metrics: {}", silent.reason);
        up.push((silent.instance, silent.role.name(), 0.0));
    }
    let help = "Whether the instance has answered with its metrics: 1 or 0.";
    text.add_gauge("millrace_instance_up", help, &up);
    if text.skipped > 0 {
        tracing::debug!(lines = text.skipped, "metrics of other instances left out");
    }
    text.finish()
}
