//! A job with a name, in a cluster: one job of a name and key at all gateways.
//!
//! The protocol is that of [`cluster::job_names`]. The name is reserved here from before the question until the response: a
//! gateway that asks meanwhile gets 409.

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
    ClaimedName, JetStreamName, NameAnswers, NameClaim, NameRefusal, OtherGateways,
};
use cluster::names::InstanceId;
use gateway::job_names::name_is_taken;
use gateway::submit::reserve_job_name;
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
        let _reserved = reserve_job_name(&app.gateway, caller, id.clone())?;
        let claim = name_claim(app, &head, caller.owner, &id);
        let claimed = claim.claim().await.map_err(refused)?;
        let response = next.run(Request::from_parts(head, Body::from(body))).await;
        if let Some(stream) = opened_stream(&response) {
            keep_name(app, &claim, claimed, stream).await?;
        }
        Ok(response)
    };
    let run: Result<Response, ApiError> = run.await;
    run.unwrap_or_else(|error| Rejected::from(error).into_response())
}

fn name_claim(
    app: &App,
    head: &Parts,
    owner: stream::Owner,
    id: &JobId,
) -> NameClaim<JetStreamName, AskedGateways> {
    let owners = app.gateway.owners.get();
    let random = app.gateway.generations.ids.next_random();
    NameClaim {
        own: app.peer_calls.peers.own_id().unwrap_or_default(),
        claim: u128::from_be_bytes(random) as u64,
        store: owners.and_then(|owners| owners.job_name_records(owner, id)),
        others: AskedGateways {
            app: app.clone(),
            request: PassedRequest::get(head, format!("/v1/jobs/{}", id.as_str())),
        },
    }
}

/// The stream of the job, if there is one.
fn opened_stream(response: &Response) -> Option<StreamId> {
    let id = response.headers().get(STREAM_ID);
    let id = id.filter(|_| response.status().is_success())?;
    id.to_str().ok()?.parse().ok()
}

/// Notes the stream of the job. If another gateway has got the name meanwhile, the job is cancelled.
async fn keep_name(
    app: &App,
    claim: &NameClaim<JetStreamName, AskedGateways>,
    claimed: ClaimedName,
    id: StreamId,
) -> Result<(), ApiError> {
    if claim.confirm(claimed, id.to_bits()).await {
        return Ok(());
    }
    tracing::warn!(stream = %id, "another gateway has the name of a job, since this one was silent: cancelled");
    let streams = &app.gateway.generations.streams;
    if let Ok(record) = streams.registry().lookup(id, stream::Caller::Admin) {
        record.cancel();
    }
    streams.remove_stream(id);
    Err(name_is_taken())
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

/// The other gateways, asked for the job of a name.
struct AskedGateways {
    app: App,
    request: PassedRequest,
}

impl OtherGateways for AskedGateways {
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
                Ok(StatusCode::CONFLICT) => {
                    answers.answered.push(peer.id);
                    answers.reserved_at.push(peer.id);
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
