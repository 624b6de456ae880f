//! Requests that name something that another gateway has: a job, a stored answer, a delivery, or a stream without records.
//!
//! The id of such a thing does not always say where it is: the name of a job is the client's, and a stored answer outlives
//! the stream. So this gateway looks first, and then asks all other gateways at once; the first that has it answers. The same
//! finds streams while JetStream, which knows the owners, is away.
//!
//! A job with a name, in a cluster: one job of a name and key at all gateways.
//!
//! The protocol is that of [`cluster::job_names`]. The response waits until the name is taken; a job whose name another
//! gateway has got meanwhile is withdrawn.

use crate::access::authentication;
use crate::app::App;
use crate::peers::{FORWARDED, FirstHit, LivingBody, PassedRequest, PeerCalls, Unanswered};
use crate::request::foreign_stream::{OWNER_SILENT, OwnerUnknown, forward, undecided};
use crate::request::request_body;
use crate::response::Rejected;
use crate::response::stream_response::STREAM_ID;
use axum::body::Body;
use axum::extract::{Request, State};
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
use gateway::stream_owners::{StreamPlace, locate_stream};
use gateway::streams::registry_caller;
use generate::error::ApiError;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Deserialize;
use std::borrow::Cow;
use std::time::Duration;
use stream::StreamId;
use wire::responses::ID_PREFIX;
use wire::shared::job_outcome::JobId;

/// Bytes of an id that is looked up elsewhere.
const ID_BYTES_MAX: usize = 128;

/// Things that a request may find at another gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Named by the path. The status says that a gateway does not have it.
    InPath(StatusCode),
    /// `previous_response_id` in the body.
    PreviousResponse,
    /// `job_id` in the body, which no other gateway may have ([`run_named_job`]).
    JobName,
}

impl Wanted {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/v1/")?.split('/');
        let named = Self::InPath(StatusCode::NOT_FOUND);
        let (kind, id) = (parts.next()?, parts.next());
        match (kind, id, parts.next(), parts.next()) {
            ("jobs" | "inference", None, ..) => (*method == Method::POST).then_some(Self::JobName),
            ("responses", None | Some("input_tokens"), ..) => {
                (*method == Method::POST).then_some(Self::PreviousResponse)
            }
            ("streams", None | Some("feed"), ..) => None,
            ("jobs" | "responses" | "runs" | "stream" | "streams", Some(_), ..)
            | ("chat", Some("completions"), Some(_), _)
            | ("webhooks", Some("deliveries"), Some(_), _) => Some(named),
            ("ai-sdk", Some("chat"), Some(_), Some("stream")) => {
                Some(Self::InPath(StatusCode::NO_CONTENT))
            }
            _ => None,
        }
    }
}

/// Passes the request to the route, or to the gateway that has what the request names.
pub(crate) async fn find_elsewhere(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let is_first = !request.headers().contains_key(FORWARDED);
    let wanted = Wanted::of(request.method(), request.uri().path());
    let is_elsewhere = match wanted {
        // Another gateway may begin at this moment.
        Some(Wanted::JobName) => app.peer_calls.is_clustered(),
        _ => app.peer_calls.has_gateways(),
    };
    let Some(wanted) = wanted.filter(|_| is_first && is_elsewhere) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    let body = match request_body::read(&head.headers, body, &app.config.now()).await {
        Ok(body) => body,
        Err(error) => return Rejected::from(error).into_response(),
    };
    let found = match wanted {
        Wanted::InPath(missing) => {
            let passed = PassedRequest::of(&head, body.clone());
            let here = next.run(Request::from_parts(head, Body::from(body))).await;
            let is_owner_unknown = here.extensions().get::<OwnerUnknown>().is_some();
            return if here.status() == missing || is_owner_unknown {
                first_elsewhere(&app.peer_calls, &passed, missing, here).await
            } else {
                here
            };
        }
        Wanted::PreviousResponse => previous_response(&app, &head, &body).await,
        Wanted::JobName => {
            let id = BodyNames::of(&body).job_id.and_then(|id| JobId::parse(&id));
            return match id {
                Some(id) => run_named_job(&app, (head, body), id, next).await,
                None => next.run(Request::from_parts(head, Body::from(body))).await,
            };
        }
    };
    match found {
        Answer::Here => next.run(Request::from_parts(head, Body::from(body))).await,
        Answer::At(instance, address) => {
            let passed = Request::from_parts(head, Body::from(body));
            let peers = &app.peer_calls.peers;
            let answered = tokio::select! {
                answered = forward(&app, (instance, &address), passed) => answered,
                () = peers.clone().wait_until_gone(instance) => Err("no heartbeat".to_owned()),
            };
            answered.unwrap_or_else(|why| unreachable(&address, &why))
        }
        Answer::Rejected(response) => *response,
    }
}

/// The gateway that answers a request with a name in the body.
enum Answer {
    /// The route of this gateway.
    Here,
    /// This gateway, with its address.
    At(InstanceId, String),
    /// None: the response is sent as it is.
    Rejected(Box<Response>),
}

/// The response of the first gateway that has what the path names; `here` if no gateway has it.
async fn first_elsewhere(
    calls: &PeerCalls,
    passed: &PassedRequest,
    missing: StatusCode,
    here: Response,
) -> Response {
    let is_miss = |status| status == missing || status == StatusCode::NOT_FOUND;
    match calls.first_hit(passed, is_miss).await {
        FirstHit::Hit(peer, response) => {
            response.map(|body| Body::new(LivingBody::new(body, &calls.peers, peer.id)))
        }
        FirstHit::Nowhere => here,
        FirstHit::Unknown(_) if here.status() != missing => here,
        FirstHit::Unknown(unanswered) => not_asked(&unanswered),
    }
}

/// The gateway that has the response before this one.
async fn previous_response(app: &App, head: &Parts, body: &[u8]) -> Answer {
    let Some(id) = BodyNames::of(body).previous_response_id else {
        return Answer::Here;
    };
    let is_here = |id: &str| {
        let caller = authentication::caller(&head.extensions);
        caller.is_ok_and(|caller| app.gateway.responses.find_response(id, caller).is_ok())
    };
    if !is_plain(&id) || is_here(&id) {
        return Answer::Here;
    }
    let mut owner_unknown = None;
    if let Some(stream) = id.strip_prefix(ID_PREFIX).and_then(|id| id.parse().ok())
        && app.gateway.owners.is_set()
    {
        let Ok(caller) = authentication::caller(&head.extensions) else {
            return Answer::Here;
        };
        match locate_stream(&app.gateway, stream, registry_caller(caller)).await {
            StreamPlace::At(instance, address) => return Answer::At(instance, address),
            // One that was taken over now is here; an ended one may be stored at another gateway.
            StreamPlace::Here if is_here(&id) => return Answer::Here,
            StreamPlace::Here | StreamPlace::Unknown => {}
            StreamPlace::Silent => owner_unknown = Some(OWNER_SILENT.to_owned()),
            StreamPlace::Undecided(why) => owner_unknown = Some(why),
        }
    }
    let request = PassedRequest::get(head, format!("/v1/responses/{id}"));
    let is_miss = |status| status == StatusCode::NOT_FOUND;
    match app.peer_calls.first_hit(&request, is_miss).await {
        FirstHit::Hit(peer, response) if response.status() == StatusCode::OK => {
            let at = |address| Answer::At(peer.id, address);
            peer.address.map_or(Answer::Here, at)
        }
        FirstHit::Hit(..) | FirstHit::Nowhere => match owner_unknown {
            Some(why) => Answer::Rejected(Box::new(undecided(&why))),
            None => Answer::Here,
        },
        FirstHit::Unknown(unanswered) => Answer::Rejected(Box::new(not_asked(&unanswered))),
    }
}

/// The names in a body; none in a body that is no JSON object, which the route rejects.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BodyNames<'a> {
    #[serde(borrow)]
    previous_response_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    job_id: Option<Cow<'a, str>>,
}

impl<'a> BodyNames<'a> {
    fn of(body: &'a [u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

/// Whether an id can stand in a path.
fn is_plain(id: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_good)
}

fn not_asked(unanswered: &[Unanswered]) -> Response {
    Rejected::from(Unanswered::error(unanswered)).into_response()
}

fn unreachable(address: &str, why: &str) -> Response {
    tracing::warn!(address, "another gateway does not answer: {why}");
    undecided("the gateway that has the response before this one does not answer")
}

/// `Retry-After` while it is not known whether the name is used.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Passes a request to its route if no gateway has a job of this name.
async fn run_named_job(app: &App, (head, body): (Parts, Bytes), id: JobId, next: Next) -> Response {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_may_be_elsewhere() {
        let named = Some(Wanted::InPath(StatusCode::NOT_FOUND));
        let rows = [
            ("GET", "/v1/jobs/mine", named),
            ("POST", "/v1/jobs/mine/cancel", named),
            ("GET", "/v1/jobs/mine/stream", named),
            ("POST", "/v1/jobs", Some(Wanted::JobName)),
            ("POST", "/v1/inference", Some(Wanted::JobName)),
            ("GET", "/v1/jobs", None),
            ("GET", "/v1/responses/resp_1", named),
            ("GET", "/v1/responses/resp_1/input_items", named),
            ("POST", "/v1/responses", Some(Wanted::PreviousResponse)),
            (
                "POST",
                "/v1/responses/input_tokens",
                Some(Wanted::PreviousResponse),
            ),
            ("GET", "/v1/chat/completions", None),
            ("POST", "/v1/chat/completions", None),
            ("DELETE", "/v1/chat/completions/chatcmpl-1", named),
            ("GET", "/v1/chat/completions/chatcmpl-1/messages", named),
            ("GET", "/v1/streams", None),
            ("GET", "/v1/streams/feed", None),
            ("GET", "/v1/streams/1/events", named),
            ("GET", "/v1/stream/1", named),
            ("GET", "/v1/runs/1", named),
            ("GET", "/v1/webhooks/deliveries", None),
            ("GET", "/v1/webhooks/deliveries/1", named),
            (
                "GET",
                "/v1/ai-sdk/chat/1/stream",
                Some(Wanted::InPath(StatusCode::NO_CONTENT)),
            ),
            ("POST", "/v1/ai-sdk/chat", None),
            ("GET", "/v1/models/a", None),
            ("GET", "/metrics", None),
        ];
        for (method, path, expected) in rows {
            let method = method.parse().unwrap();
            assert_eq!(Wanted::of(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn names_are_read_from_good_bodies_only() {
        let names = |body: &str| {
            let names = BodyNames::of(body.as_bytes());
            let text = |name: Option<Cow<'_, str>>| name.map(Cow::into_owned);
            (text(names.previous_response_id), text(names.job_id))
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(
            names(r#"{"input":["previous_response_id"],"previous_response_id":"resp_1"}"#),
            (some("resp_1"), None)
        );
        assert_eq!(names(r#"{"job_id":"a\u0062"}"#), (None, some("ab")));
        for bad in ["", "[]", r#"{"job_id":1}"#, r#"{"job_id":"a""#] {
            assert_eq!(names(bad), (None, None), "{bad}");
        }
        assert!(is_plain("resp_0-9aZ"));
        let long = "a".repeat(ID_BYTES_MAX + 1);
        for bad in ["", "a/b", "a?b", "é", "%2e", &long] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
