//! A job with a name, in a cluster: one job of a name and key at all gateways.
//!
//! The protocol is that of [`cluster::job_names`]. The response waits until the name is taken; a job whose name another
//! gateway has got meanwhile is withdrawn.

use crate::access::authentication;
use crate::app::App;
use crate::peers::PassedRequest;
use crate::response::error_response::Rejected;
use crate::response::stream_response::STREAM_ID;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use cluster::job_names::{
    JetStreamName, NameAnswers, NameClaim, NameLookup, NameRecord, NameRefusal,
};
use cluster::names::InstanceId;
use cluster::records::PublishOutcome;
use gateway::job_names::name_is_taken;
use gateway::open::{expect_unused_name, withdraw_job};
use generate::error::ApiError;
use http::StatusCode;
use http::request::Parts;
use std::time::Duration;
use stream::StreamId;
use wire::shared::job_id::JobId;

/// `Retry-After` while it is not known whether the name is used.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Passes a request to its route if no gateway has a job of this name.
pub(crate) async fn run_named_job(
    app: &App,
    (head, body): (Parts, Bytes),
    id: JobId,
    next: Next,
) -> Response {
    let run = async {
        let caller = authentication::caller(&head.extensions)?;
        expect_unused_name(&app.gateway, caller, &id)?;
        let owners = app.gateway.owners.get();
        let claim = NameClaim {
            own: app.peer_calls.peers.own_id().unwrap_or_default(),
            lookup: GatewayLookup {
                app: app.clone(),
                store: owners.and_then(|owners| owners.job_name_records(caller.owner, &id)),
                request: PassedRequest::get(&head, format!("/v1/jobs/{}", id.as_str())),
            },
        };
        let after = claim.expect_unused().await.map_err(refused)?;
        let response = next.run(Request::from_parts(head, Body::from(body))).await;
        if let Some(stream) = opened_stream(&response) {
            // A task: a client that disconnects leaves no job without its name.
            let taken = tokio::spawn(take_name(app.clone(), claim, after, stream)).await;
            let stops = |_| NameRefusal::Unclear("the gateway stops".to_owned());
            taken.map_err(stops).flatten().map_err(refused)?;
        }
        Ok(response)
    };
    let run: Result<Response, ApiError> = run.await;
    run.unwrap_or_else(|error| Rejected::from(error).into_response())
}

/// Takes the name for a job that was opened, or withdraws the job.
async fn take_name(
    app: App,
    claim: NameClaim<GatewayLookup>,
    after: u64,
    stream: StreamId,
) -> Result<(), NameRefusal> {
    let taken = claim.take(after, stream.to_bits()).await;
    if taken.is_err() {
        tracing::debug!(%stream, "the name of a job was not free any more: withdrawn");
        withdraw_job(&app.gateway, stream).await;
    }
    taken
}

/// The stream of the job, if there is one.
fn opened_stream(response: &Response) -> Option<StreamId> {
    let id = response.headers().get(STREAM_ID);
    let id = id.filter(|_| response.status().is_success())?;
    id.to_str().ok()?.parse().ok()
}

fn refused(refusal: NameRefusal) -> ApiError {
    match refusal {
        NameRefusal::Taken => name_is_taken(),
        NameRefusal::Unclear(why) => {
            let message = format!("job_id: it is not known whether a job has this name: {why}");
            ApiError::capacity("recovering", message, RETRY_AFTER)
        }
    }
}

/// The records of a name, and the other gateways, asked for its job.
struct GatewayLookup {
    app: App,
    /// `None` without JetStream.
    store: Option<JetStreamName>,
    request: PassedRequest,
}

impl NameLookup for GatewayLookup {
    async fn last(&self) -> Result<Option<(u64, NameRecord)>, String> {
        match &self.store {
            Some(store) => store.last().await,
            None => Ok(None),
        }
    }

    async fn append(&self, expected: u64, record: NameRecord) -> PublishOutcome {
        match &self.store {
            Some(store) => store.append(expected, record).await,
            None => PublishOutcome::Stored(0),
        }
    }

    async fn ask(&self) -> NameAnswers {
        let mut answers = NameAnswers::default();
        for (peer, status) in self.app.peer_calls.ask_statuses(&self.request).await {
            let why = match status {
                Ok(StatusCode::OK) => {
                    answers.is_used = true;
                    continue;
                }
                Ok(StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    answers.answered.push(peer.id);
                    continue;
                }
                Ok(status) => format!("it answered with status {}", status.as_u16()),
                Err(why) => why,
            };
            answers.unanswered = Some(format!("gateway {}: {why}", peer.id));
        }
        answers
    }

    fn is_gone(&self, instance: InstanceId) -> bool {
        let owners = self.app.gateway.owners.get();
        owners.is_none_or(|owners| owners.is_gone(instance))
    }

    async fn has_records(&self, stream: u128) -> Result<bool, String> {
        match self.app.gateway.owners.get() {
            Some(owners) => owners.has_records(stream).await,
            None => Ok(false),
        }
    }
}
