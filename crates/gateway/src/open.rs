//! Opening a stream: from a request's body to a registered stream in the admission queue. All generations, of all
//! wire protocols, are opened here.

use crate::generation::Generation;
use crate::handles::{Gateway, GenerationHandles};
use crate::job_names::{NameClaim, name_is_taken};
use crate::keys::{Caller, KeyPermit};
use crate::media::LongBody;
use crate::metrics::{MeteredProtocol, MeteredRequest};
use crate::models::{ModelLease, ReadyModel};
use crate::pending_generation::{self, Entrance, PendingGeneration};
use crate::read_request::ReadRequest;
use crate::records::{DescriptionKind, RecordedPrompts, StreamDescription, unix_us};
use crate::remote_images::expect_no_remote;
pub use crate::requested_delivery::{RequestedDelivery, Resumable};
use crate::requested_images::RequestedImages;
use crate::stored::{HistoryImages, StoredNote};
use crate::streams::{DurableStream, StreamRecord, StreamRun, StreamTerms};
use crate::webhooks::WebhookPlace;
use crate::workflows::Program;
use admission::{AdmissionRequest, QueuePosition};
use engine::Account;
use generate::error::ApiError;
use generate::request::{GenerateRequest, GenerationParams, IgnoredFields};
use generate::sampling::ReportedSampling;
use generate::stream_source::StreamMeta;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use stream::{Registration, StreamId};
use wire::clock;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::shared::job_outcome::JobId;
use wire::stored_request::StoredRequest;

/// A request for a stream: the caller, the wire protocol, the delivery, and the body, whose fields are not read.
pub struct StreamRequest {
    /// Sender of the request.
    pub caller: Caller,
    /// Wire protocol of the body and of the response.
    pub protocol: Protocol,
    /// Framing of a streaming response.
    pub framing: Framing,
    /// Scheduling and delivery of the stream.
    pub delivery: RequestedDelivery,
    /// Whether the response is streamed even if the body does not request that.
    pub streamed: bool,
    /// The body, parsed as JSON.
    pub body: RequestBody,
    /// The check of a body that is longer than those without images may be; `None` of a shorter one.
    pub long_body: Option<LongBody>,
}

/// A request whose body was parsed.
pub struct ParsedRequest {
    /// Caller, wire protocol and delivery.
    pub request: StreamRequest,
    /// The requested model.
    pub lease: ModelLease,
    /// The body in the server's own types.
    pub ask: GenerateRequest,
    /// Bytes of the request's body, and of what the model adds.
    pub body_bytes: usize,
    /// Id of the response; `None`: a new id.
    pub response_id: Option<String>,
    /// A program that is run instead.
    pub program: Option<Program>,
    /// The part that is stored with the answer.
    pub stored_request: Option<StoredRequest>,
    /// The place of the event that reports the end.
    pub webhook_place: Option<WebhookPlace>,
    /// Images, whose headers were read.
    pub images: Option<RequestedImages>,
    /// The right of the key to open the stream, if it was taken before.
    pub key: Option<KeyPermit>,
}

/// A registered stream whose generation begins once there is a permit.
pub struct OpenedStream {
    /// The stream's record in the registry.
    pub record: Arc<StreamRecord>,
    /// Fields of the request that have no meaning here.
    pub ignored_fields: IgnoredFields,
    /// The position in the admission queue; `None` if the request was admitted at once.
    pub queue_position: Option<QueuePosition>,
    /// The model that the stream runs on.
    pub ready_model: Arc<ReadyModel>,
    /// The wait for the start. Dropping it cancels a stream, unless the stream is resumable.
    pub start: Pin<Box<dyn Future<Output = Result<Generation, ApiError>> + Send>>,
}

impl StreamRequest {
    /// Parses the fields of the body, opens the stream, and starts the generation once there is a permit. To be called inside a
    /// runtime. Images of a durable stream are in the journal before the stream is.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub async fn open(
        self,
        gateway: &Gateway,
        lease: ModelLease,
    ) -> Result<OpenedStream, ApiError> {
        let previous = self.body.fields().string("previous_response_id");
        let responses = &gateway.responses;
        let images = responses.history_images(previous.as_deref(), &self.caller);
        // In boxes, as are the other waits for images: the tasks of all streams are as large as their largest future.
        let images = Box::pin(images).await;
        let mut read = ReadRequest::new(self, gateway, Some(lease), &images)?;
        let fetched = match gateway.generations.images.remote.get() {
            Some(remote) => Box::pin(read.fetch_images(remote, gateway)).await,
            None => Ok(()),
        };
        let (mut parsed, claim) = match fetched.and_then(|()| read.parsed(gateway)) {
            Ok(parsed) => parsed,
            Err(refusal) => return Err(Box::pin(refusal.into_error(&gateway.models)).await),
        };
        Box::pin(parsed.write_images(gateway)).await?;
        parsed.open_named(gateway, claim)
    }

    /// As [`Self::open`], without waiting: the model must be ready, images of other servers are errors, and a stream with images
    /// is not durable.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_now(self, gateway: &Gateway) -> Result<OpenedStream, ApiError> {
        let read = ReadRequest::new(self, gateway, None, &HistoryImages::default())?;
        let why = "is a URL, and a socket takes no images of other servers: send a data URL";
        expect_no_remote(read.images(), why)?;
        let parsed = read.parsed(gateway);
        let (parsed, claim) =
            parsed.map_err(|refusal| refusal.into_error_blocking(&gateway.models))?;
        parsed.open_named(gateway, claim)
    }
}

impl ParsedRequest {
    /// Counts the request against the caller's key, requests a permit, registers the stream, and starts the generation once there
    /// is a permit. To be called inside a runtime.
    ///
    /// # Errors
    /// A limit of the key, the queue or the registry is exceeded.
    pub fn open(mut self, gateway: &Gateway) -> Result<OpenedStream, ApiError> {
        let (now, handles) = (clock::now(), &gateway.generations);
        let ignored_fields = std::mem::take(&mut self.ask.stream_options.ignored_fields);
        if let Some(priority) = self.request.delivery.priority {
            self.ask.stream_options.priority = priority;
        }
        let closed_objects = handles.limits.now().closed_objects;
        let seed = || handles.ids.next_seed();
        resolve_params(&mut self.ask.params, closed_objects, seed);
        let caller = &self.request.caller;
        let new_key = || caller.open_streams_permit(self.ask.choices());
        let key = self.key.take().map_or_else(new_key, Ok)?;
        let admission = admission_request(handles, &self, (key.account(), now));
        let serving = Arc::clone(&self.lease.serving);
        let described = self.images.as_ref().and_then(RequestedImages::to_describe);
        let described = described.map(|(parts, _)| parts.len());
        let entrance = match described {
            // A permit that waits for another model would hold a slot without any work.
            Some(_) => Entrance::AfterImages(Box::new(admission)),
            None => Entrance::Queued(serving.admission.request_permit(admission)?),
        };
        let registered = self.register_stream(handles, admission.deadline, now);
        let (registration, description, stored_note) = registered.map_err(|full| ApiError {
            retry_after: serving.admission.next_slot().or(full.retry_after),
            ..full
        })?;
        let record = Arc::clone(registration.payload());
        let queue_position = entrance.queue_position();
        if let Some(place) = queue_position.clone() {
            record.set_queue_position(place);
        }
        if let Some(count) = described {
            record.expect_images(count);
        }
        let pending = PendingGeneration {
            handles: handles.clone(),
            serving: self.lease.serving,
            ask: self.ask,
            program: self.program,
            images: self.images,
            described: None,
            description,
            context_max: serving.model.handle.context_max,
            body_bytes: self.body_bytes,
            run: StreamRun::new(registration, key),
            deadline: admission.deadline,
            class: admission.class,
            measured: measured_request(&record, now),
            attempt: None,
        };
        if let Some(note) = stored_note {
            gateway.responses.store_response(&record, note)?;
        }
        gateway.end_reports().watch(&record, self.webhook_place);
        Ok(OpenedStream {
            record,
            ignored_fields,
            queue_position,
            ready_model: serving,
            start: Box::pin(pending.run_for_client(entrance)),
        })
    }

    fn open_named(
        self,
        gateway: &Gateway,
        claim: Option<NameClaim<'_>>,
    ) -> Result<OpenedStream, ApiError> {
        let opened = self.open(gateway)?;
        if let Some(claim) = claim {
            claim.assign_stream(opened.record.id());
        }
        Ok(opened)
    }

    /// Writes the images of a stream that is to be durable, and those of an answer that is to be stored, into the journal's
    /// blobs. Without room for them, or with an error of the disk, the stream is not durable, and the stored items have
    /// the images themselves.
    async fn write_images(&mut self, gateway: &Gateway) -> Result<(), ApiError> {
        let delivery = &self.request.delivery;
        let is_resumable = delivery.is_resumable(&self.ask.stream_options);
        let is_wanted = delivery.durable && (is_resumable || self.stored_request.is_some());
        let Some(images) = &mut self.images else {
            return Ok(());
        };
        if is_wanted {
            images.write_blobs(&gateway.generations).await;
        }
        match &mut self.stored_request {
            Some(stored) => images.take_out_of(stored, &gateway.generations).await,
            None => Ok(()),
        }
    }

    /// Bytes that the text of the prompts, and as many tokens as their images have, would take.
    fn prompt_bytes(&self) -> usize {
        let tokens = self.images.as_ref().map_or(0, RequestedImages::tokens);
        self.body_bytes + tokens * admission::BYTES_PER_TOKEN
    }

    /// Registers the stream, and records its beginning. Returns the description for the record of the prepared prompts, and the
    /// note of an answer that is to be stored.
    ///
    /// # Errors
    /// The registry is full.
    fn register_stream(
        &mut self,
        handles: &GenerationHandles,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<RegisteredStream, ApiError> {
        let meta = stream_meta(handles, self, now);
        let terms = stream_terms(handles, self);
        let durable = self.request.delivery.durable;
        let note = self.stored_request.take();
        let note = note.map(|note| StoredNote::new(note, durable, &meta, &handles.ids));
        let (durable, description) = self
            .record_opening(handles, (&meta, &terms), deadline, note.as_ref())
            .unzip();
        let registration = handles.streams.open(meta, terms, durable, now)?;
        Ok((registration, description, note))
    }

    /// Records the beginning of a resumable stream, if there is a journal and the client wants that; an answer of which
    /// another process has the beginning is not recorded. The description is for the record of the prepared prompts, and has none.
    fn record_opening(
        &mut self,
        handles: &GenerationHandles,
        (meta, terms): (&StreamMeta, &StreamTerms),
        deadline: Option<Instant>,
        stored_note: Option<&StoredNote>,
    ) -> Option<(DurableStream, StreamDescription)> {
        let is_new = self.ask.params.continued.is_none();
        let blobs = match &self.images {
            // Without blobs, the bytes of the images are not recorded.
            Some(images) => images.blobs()?.to_vec(),
            None => Vec::new(),
        };
        let is_wanted = terms.resumable && self.request.delivery.durable && is_new;
        let journal = handles.journal.get().filter(|_| is_wanted)?;
        let mut description = StreamDescription {
            deadline_unix_us: deadline.map(unix_us),
            stored: stored_note.and_then(|note| serde_json::to_value(note).ok()),
            ..self.describe(meta, terms, handles.limits.now().closed_objects)
        };
        let prompts = std::mem::take(&mut self.ask.prompts);
        description.prompts = RecordedPrompts::Requested(prompts);
        let encoded = description.encode();
        if let RecordedPrompts::Requested(prompts) = std::mem::take(&mut description.prompts) {
            self.ask.prompts = prompts;
        }
        let durable = journal.open_stream(meta.id.to_bits(), encoded.ok()?)?;
        let durable = durable.with_blobs(blobs);
        let durable = match description.kind {
            DescriptionKind::WorkflowRun => durable.without_continuation(),
            DescriptionKind::Generation
            | DescriptionKind::StoredBlob
            | DescriptionKind::WebhookDelivery
            | DescriptionKind::Retired => durable,
        };
        Some((durable, description))
    }

    /// The description without prompts, deadline and note. Settings that decide the answer are part of the description.
    fn describe(
        &self,
        meta: &StreamMeta,
        terms: &StreamTerms,
        closed_objects: bool,
    ) -> StreamDescription {
        let model = &self.lease.serving.model;
        let job_id = self.response_id.clone();
        let mut params = self.ask.params.clone();
        params.closed_objects.get_or_insert(closed_objects);
        StreamDescription {
            kind: match self.program {
                Some(_) => DescriptionKind::WorkflowRun,
                None => DescriptionKind::Generation,
            },
            owner: terms.owner.0,
            protocol: terms.protocol,
            framing: terms.framing,
            reasoning_field: terms.reasoning_field,
            explicit_acks: terms.explicit_acks,
            credit_window: terms.credit_window,
            detached_tokens: terms.detached_tokens,
            response_id: meta.response_id.clone(),
            created_unix_s: meta.created_unix_s,
            opened_unix_us: unix_us(meta.arrived),
            deadline_unix_us: None,
            model: meta.model.clone(),
            model_key: model.id.clone(),
            identity: model.identity_now(),
            context_max: model.handle.context_max,
            n: self.ask.n,
            params,
            stream_options: self.ask.stream_options.clone(),
            priority: meta.stream_options.priority,
            prompts: RecordedPrompts::default(),
            images: self
                .images
                .as_ref()
                .map_or_else(Vec::new, RequestedImages::to_records),
            body_bytes: self.body_bytes,
            job_id: job_id.filter(|_| terms.protocol == Protocol::Job),
            stored: None,
        }
    }
}

/// A registered stream, its description if it is durable, and the note of an answer that is to be stored.
type RegisteredStream = (
    Registration<StreamRecord>,
    Option<StreamDescription>,
    Option<StoredNote>,
);

/// What the metrics know of a request from its arrival on.
fn measured_request(record: &StreamRecord, arrived: Instant) -> MeteredRequest {
    MeteredRequest {
        protocol: MeteredProtocol::Wire(record.terms().protocol),
        stream: record.meta().stream_options.stream,
        attached: false,
        arrived,
    }
}

/// The request of a permit for a stream of this account, at the time of arrival; counted.
fn admission_request(
    handles: &GenerationHandles,
    parsed: &ParsedRequest,
    (account, now): (Account, Instant),
) -> AdmissionRequest {
    handles.metrics.record_request();
    let (request, ask) = (&parsed.request, &parsed.ask);
    let client_deadline = ask.stream_options.deadline.map(|deadline| now + deadline);
    let estimator = parsed
        .lease
        .serving
        .resource_estimator(&handles.limits.now());
    AdmissionRequest {
        class: ask.stream_options.priority,
        account,
        need: estimator.estimate_bytes(
            parsed.prompt_bytes(),
            ask.prompts.len(),
            pending_generation::requested_choices(ask),
        ),
        is_recallable: parsed.program.is_none(),
        deadline: request
            .delivery
            .deadline
            .into_iter()
            .chain(client_deadline)
            .min(),
        who: handles
            .ids
            .fingerprint_of(&(request.caller.owner.0, &ask.prompts)),
    }
}

fn stream_meta(handles: &GenerationHandles, parsed: &ParsedRequest, now: Instant) -> StreamMeta {
    let (ask, protocol) = (&parsed.ask, parsed.request.protocol);
    let sampling = &ask.params.sampling;
    let id = StreamId::from_random(handles.ids.next_random());
    let fresh = || protocol.response_id(id, |prefix| handles.ids.prefixed_id(prefix));
    StreamMeta {
        id,
        response_id: parsed.response_id.clone().unwrap_or_else(fresh),
        created_unix_s: clock::unix_s(),
        arrived: now,
        model: parsed.lease.name.to_string(),
        stream_options: ask.stream_options.clone(),
        prompts: ask.prompts.len(),
        choices: ask.choices() as usize,
        sampling: ReportedSampling::of(&ask.params),
        stops: ask.params.stops.clone(),
        logprobs: sampling.logprobs,
        top_n: sampling.top_logprobs as usize,
    }
}

fn stream_terms(handles: &GenerationHandles, parsed: &ParsedRequest) -> StreamTerms {
    let (request, options) = (&parsed.request, &parsed.ask.stream_options);
    let limits = handles.limits.now();
    let resumable = request.delivery.is_resumable(options);
    let detachable = !resumable && options.stream && limits.clocks.detaches();
    StreamTerms {
        owner: request.caller.owner,
        protocol: request.protocol,
        framing: request.framing,
        reasoning_field: limits.reasoning_field,
        resumable,
        detachable,
        explicit_acks: request.delivery.explicit_acks,
        credit_window: if options.background {
            0
        } else {
            limits.credit_window
        },
        detached_tokens: if resumable || detachable {
            limits.streams.detached_tokens
        } else {
            0
        },
    }
}

/// Sets the parameters that the request leaves to the server. The stream's description has the values: after a restart the
/// stream draws the same random numbers, and settings that changed do not change the grammar.
fn resolve_params(
    params: &mut GenerationParams,
    closed_objects: bool,
    new_seed: impl FnOnce() -> u64,
) {
    params.seed = Some(params.seed.unwrap_or_else(new_seed));
    params.closed_objects.get_or_insert(closed_objects);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_that_the_request_sets_are_kept() {
        let mut given = GenerationParams {
            seed: Some(3),
            closed_objects: Some(false),
            ..GenerationParams::default()
        };
        let mut absent = GenerationParams::default();
        for params in [&mut given, &mut absent] {
            resolve_params(params, true, || 7);
        }
        assert_eq!((given.seed, given.closed_objects), (Some(3), Some(false)));
        assert_eq!((absent.seed, absent.closed_objects), (Some(7), Some(true)));
    }
}
