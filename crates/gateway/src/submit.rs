//! From a request's body to an opened stream: parsing in the body's wire protocol, names of jobs, stored responses.

use crate::admission::Priority;
use crate::handles::Gateway;
use crate::job_names::{NameClaim, NameReservation};
use crate::keys::Caller;
use crate::models::ModelLease;
use crate::open::{OpenedStream, ParsedRequest, open_stream};
use crate::webhooks::WebhookPlace;
use generate::error::ApiError;
use generate::request::StreamOptions;
use std::time::Instant;
use wire::fields::Fields;
use wire::framing::Framing;
use wire::model_defaults::RequestedModel;
use wire::protocol::Protocol;
use wire::request_parser::ParsedBody;
use wire::shared::job_id::JobId;
use wire::stored_request::History;

/// When the stream of a request is resumable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumable {
    /// Always.
    Yes,
    /// Never.
    No,
    /// If the response is streamed.
    IfStreamed,
}

impl Resumable {
    /// `Yes` or `No`, as the client chose.
    pub fn from_choice(resumable: bool) -> Self {
        if resumable { Self::Yes } else { Self::No }
    }
}

/// A request whose body was parsed as JSON, and the values from the request's route and header fields.
pub struct UnparsedRequest<'a> {
    /// Wire protocol of the body and of the response.
    pub protocol: Protocol,
    /// Framing of a streaming response.
    pub framing: Framing,
    /// Fields of the body.
    pub fields: Fields<'a>,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Overrides the body's priority.
    pub priority: Option<Priority>,
    /// Deadline from a header field; the earlier one of this and the body's holds.
    pub deadline: Option<Instant>,
    /// When the stream continues without a client.
    pub resumable: Resumable,
    /// Whether a resumable stream is recorded in the journal.
    pub durable: bool,
    /// Whether the client sends acknowledgements.
    pub explicit_acks: bool,
    /// Whether the response is streamed even if the body does not request that.
    pub streamed: bool,
    /// Lease of the model, if the request has waited for the model; `None`: the model must be ready.
    pub lease: Option<ModelLease>,
}

impl UnparsedRequest<'_> {
    /// Parses the fields and opens the stream.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub fn open(mut self, gateway: &Gateway, caller: &Caller) -> Result<OpenedStream, ApiError> {
        let model = self.fields.string("model");
        let lease = match self.lease {
            Some(lease) => lease,
            None => gateway.models.hold_now(model.as_deref())?,
        };
        let ParsedBody {
            mut request,
            job_id,
            stored_request,
        } = parse_body(self.protocol, self.fields, &lease, gateway, caller)?;
        let model_bytes = lease.made.as_ref().map(|derived| derived.text_bytes());
        request.stream_options.stream |= self.streamed;
        let claim = job_id
            .clone()
            .map(|id| claim_job_name(gateway, caller, id))
            .transpose()?;
        let resumable = match self.resumable {
            Resumable::Yes => true,
            Resumable::No => false,
            Resumable::IfStreamed => request.stream_options.stream,
        };
        let resumable = resumable || request.stream_options.background;
        let place = take_webhook_place(gateway, caller, &mut request.stream_options, resumable)?;
        let parsed = ParsedRequest {
            protocol: self.protocol,
            framing: self.framing,
            lease,
            resumable,
            durable: self.durable,
            explicit_acks: self.explicit_acks,
            ask: request,
            body_bytes: self.body_bytes + model_bytes.unwrap_or(0),
            priority: self.priority,
            deadline: self.deadline,
            response_id: job_id.map(|id| id.as_str().to_owned()),
            program: None,
            stored_request,
        };
        let mut opened = open_stream(&gateway.generations, caller, parsed)?;
        if let Some(claim) = claim {
            claim.assign_stream(opened.record().id());
        }
        if let Some(note) = opened.take_stored_note() {
            gateway.responses.store_response(opened.record(), note)?;
        }
        gateway.end_reports().watch(opened.record(), place);
        Ok(opened)
    }
}

/// Checks the webhook of a request, and takes the place of its event.
fn take_webhook_place(
    gateway: &Gateway,
    caller: &Caller,
    options: &mut StreamOptions,
    resumable: bool,
) -> Result<Option<WebhookPlace>, ApiError> {
    let Some(url) = options.webhook.take() else {
        return Ok(None);
    };
    if !resumable {
        let why = "webhook: needs a stream that continues without its client: set background, submit the \
                   job at /v1/jobs, or send X-Stream-Resumable: 1";
        return Err(ApiError::field("webhook", "invalid_webhook", why));
    }
    let (url, place) = gateway.outbox.accept(&url, caller)?;
    options.webhook = Some(url);
    Ok(Some(place))
}

fn parse_body(
    protocol: Protocol,
    fields: Fields<'_>,
    lease: &ModelLease,
    gateway: &Gateway,
    caller: &Caller,
) -> Result<ParsedBody, ApiError> {
    let served = &lease.serving.model;
    let model = RequestedModel {
        id: &served.id,
        derived: lease.made.as_deref(),
        sampling: gateway
            .generations
            .limits
            .now()
            .sampling_defaults(lease.recommended_sampling()),
        stops: served.handle.template.stops(),
        capabilities: served.handle.capabilities,
        adapters: &served.handle.adapters,
        vocab_size: served.handle.tokenizer.vocab_size(),
    };
    let history = |id: &str| {
        let history = gateway.responses.history(id, caller)?;
        Ok(Box::new(history) as Box<dyn History>)
    };
    protocol.parse(fields, model, &history)
}

/// Reserves the name of a caller's job, before the other gateways of a cluster are asked.
///
/// # Errors
/// The caller has a job of this name, or another request has reserved the name.
pub fn reserve_job_name(
    gateway: &Gateway,
    caller: &Caller,
    id: JobId,
) -> Result<NameReservation, ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |owner, id| registry.entry(id, stream::Caller::Owner(owner)).is_ok();
    gateway.job_names.reserve_name(caller.owner, id, is_known)
}

fn claim_job_name<'a>(
    gateway: &'a Gateway,
    caller: &Caller,
    id: JobId,
) -> Result<NameClaim<'a>, ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |owner, id| registry.entry(id, stream::Caller::Owner(owner)).is_ok();
    gateway.job_names.claim_name(
        caller.owner,
        id,
        is_known,
        gateway.generations.limits.now().retry_after,
    )
}
