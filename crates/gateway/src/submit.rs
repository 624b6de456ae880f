//! From a request's body to an opened stream: parsing in the body's wire protocol, names of jobs, stored responses.

use crate::handles::Gateway;
use crate::job_names::{NameClaim, name_is_taken};
use crate::keys::Caller;
use crate::models::ModelLease;
use crate::open::{OpenedStream, ParsedRequest, Resumable, StreamRequest};
use crate::webhooks::WebhookPlace;
use generate::error::ApiError;
use generate::request::StreamOptions;
use stream::StreamId;
use wire::fields::Fields;
use wire::model_defaults::RequestedModel;
use wire::protocol::Protocol;
use wire::request_parser::ParsedBody;
use wire::shared::job_id::JobId;
use wire::stored_request::History;

impl StreamRequest {
    /// Parses the fields of a body of `body_bytes` bytes, opens the stream, and starts the generation once there is a permit. To be
    /// called inside a runtime. Without a lease, the model must be ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub fn open(
        mut self,
        gateway: &Gateway,
        (mut fields, body_bytes): (Fields<'_>, usize),
        lease: Option<ModelLease>,
    ) -> Result<OpenedStream, ApiError> {
        let model = fields.string("model");
        let lease = match lease {
            Some(lease) => lease,
            None => gateway.models.hold_now(model.as_deref())?,
        };
        let ParsedBody {
            request: mut ask,
            job_id,
            stored_request,
        } = parse_body(self.protocol, fields, &lease, gateway, &self.caller)?;
        let model_bytes = lease.made.as_ref().map(|derived| derived.text_bytes());
        let options = &mut ask.stream_options;
        options.stream |= self.streamed;
        let claim = job_id
            .clone()
            .map(|id| claim_job_name(gateway, &self.caller, id))
            .transpose()?;
        let is_resumable = self.resumable.of_request(options);
        self.resumable = Resumable::from_choice(is_resumable);
        let place = take_webhook_place(gateway, &self.caller, options, is_resumable)?;
        let parsed = ParsedRequest {
            request: self,
            lease,
            ask,
            body_bytes: body_bytes + model_bytes.unwrap_or(0),
            response_id: job_id.map(|id| id.as_str().to_owned()),
            program: None,
            stored_request,
        };
        let mut queued = parsed.enter_queue(&gateway.generations)?;
        if let Some(claim) = claim {
            claim.assign_stream(queued.record().id());
        }
        if let Some(note) = queued.take_stored_note() {
            gateway.responses.store_response(queued.record(), note)?;
        }
        gateway.end_reports().watch(queued.record(), place);
        Ok(queued.start())
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

/// Expects that the caller has no job of this name here, before the other gateways of a cluster are asked.
///
/// # Errors
/// The caller has one.
pub fn expect_unused_name(gateway: &Gateway, caller: &Caller, id: &JobId) -> Result<(), ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |id| {
        registry
            .entry(id, stream::Caller::Owner(caller.owner))
            .is_ok()
    };
    match gateway.job_names.find_stream(caller.owner, id) {
        Some(stream) if is_known(stream) => Err(name_is_taken()),
        _ => Ok(()),
    }
}

/// Ends a job whose name another gateway has: no client has its id, and no webhook is sent, unless it has ended.
pub async fn withdraw_job(gateway: &Gateway, id: StreamId) {
    let streams = &gateway.generations.streams;
    if let Ok(record) = streams.registry().lookup(id, stream::Caller::Admin) {
        record.withdraw();
        streams.forget_stream(&record).written().await;
    }
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
