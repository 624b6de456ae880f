//! Opening a stream: from a parsed request to a registered stream in the admission queue. All generations, of all
//! wire protocols, are opened here.

use crate::generation::Generation;
use crate::handles::GenerationHandles;
use crate::keys::Caller;
use crate::metrics::{MeteredProtocol, MeteredRequest};
use crate::models::{ModelLease, ReadyModel};
use crate::pending_generation::{self, PendingGeneration};
use crate::records::{DescriptionKind, RecordedPrompts, StreamDescription, unix_us};
use crate::stored::StoredNote;
use crate::streams::{DurableStream, StreamRecord, StreamRun, StreamTerms};
use crate::workflows::Program;
use admission::{AdmissionRequest, Priority, QueuePosition, Ticket};
use engine::Account;
use generate::error::ApiError;
use generate::request::{GenerateRequest, GenerationParams, IgnoredFields, StreamOptions};
use generate::sampling::ReportedSampling;
use generate::stream_source::StreamMeta;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use stream::StreamId;
use wire::clock;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::stored_request::StoredRequest;

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

    /// Whether the stream of a request with these options is resumable.
    pub(crate) fn of_request(self, options: &StreamOptions) -> bool {
        let is_chosen = match self {
            Self::Yes => true,
            Self::No => false,
            Self::IfStreamed => options.stream,
        };
        is_chosen || options.background
    }
}

/// What a request says besides its body: who asks, in which wire protocol, and how the stream is delivered. Built once from the
/// route and the header fields, then moved with the request.
pub struct StreamRequest {
    /// Sender of the request.
    pub caller: Caller,
    /// Wire protocol of the body and of the response.
    pub protocol: Protocol,
    /// Framing of a streaming response.
    pub framing: Framing,
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
}

/// A request whose body was parsed.
pub struct ParsedRequest {
    /// What the request says besides its body.
    pub request: StreamRequest,
    /// The requested model.
    pub lease: ModelLease,
    /// The body in the server's own types.
    pub ask: GenerateRequest,
    /// Bytes of the request's body.
    pub body_bytes: usize,
    /// Id of the response; `None`: a new id.
    pub response_id: Option<String>,
    /// A program that is run instead.
    pub program: Option<Program>,
    /// The part that is stored with the answer.
    pub stored_request: Option<StoredRequest>,
}

/// A registered stream with a request in the admission queue.
pub(crate) struct QueuedStream {
    pending: PendingGeneration,
    ticket: Ticket,
    record: Arc<StreamRecord>,
    ignored: IgnoredFields,
    stored_note: Option<StoredNote>,
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

impl ParsedRequest {
    /// Opens the stream and starts the generation once there is a permit. To be called inside a runtime.
    ///
    /// # Errors
    /// A limit of the key, the queue or the registry is exceeded.
    pub fn open(self, handles: &GenerationHandles) -> Result<OpenedStream, ApiError> {
        Ok(self.enter_queue(handles)?.start())
    }

    /// Counts the request against the caller's key, requests a permit, and registers the stream.
    ///
    /// # Errors
    /// A limit of the key, the queue or the registry is exceeded.
    pub(crate) fn enter_queue(
        mut self,
        handles: &GenerationHandles,
    ) -> Result<QueuedStream, ApiError> {
        let now = clock::now();
        let ignored = std::mem::take(&mut self.ask.stream_options.ignored_fields);
        if let Some(priority) = self.request.priority {
            self.ask.stream_options.priority = priority;
        }
        let closed_objects = handles.limits.now().closed_objects;
        let seed = || handles.ids.next_seed();
        resolve_params(&mut self.ask.params, closed_objects, seed);
        let key = self
            .request
            .caller
            .open_streams_permit(self.ask.choices())?;
        let admission = admission_request(handles, &self, (key.account(), now));
        let serving = Arc::clone(&self.lease.serving);
        let ticket = serving.admission.request_permit(admission)?;
        let meta = stream_meta(handles, &self, now);
        let (durable, ids) = (self.request.durable, &handles.ids);
        let stored_note = self.stored_request.take();
        let stored_note = stored_note.map(|note| StoredNote::new(note, durable, &meta, ids));
        let terms = stream_terms(handles, &self);
        let opening = StreamOpening {
            request: &mut self,
            meta: &meta,
            terms: &terms,
            deadline: admission.deadline,
            stored_note: stored_note.as_ref(),
        };
        let (durable, description) = opening.record_opening(handles).unzip();
        let registration = handles.streams.open(meta, terms, durable, now);
        let registration = registration.map_err(|full| ApiError {
            retry_after: serving.admission.next_slot().or(full.retry_after),
            ..full
        })?;
        let record = Arc::clone(registration.payload());
        if let Some(place) = ticket.queue_position() {
            record.set_queue_position(place);
        }
        let pending = PendingGeneration {
            handles: handles.clone(),
            serving: self.lease.serving,
            ask: self.ask,
            program: self.program,
            description,
            context_max: serving.model.handle.context_max,
            body_bytes: self.body_bytes,
            run: StreamRun::new(registration, key),
            deadline: admission.deadline,
            class: admission.class,
            measured: measured_request(&record, now),
            attempt: None,
        };
        Ok(QueuedStream {
            pending,
            ticket,
            record,
            ignored,
            stored_note,
        })
    }
}

impl QueuedStream {
    pub(crate) fn record(&self) -> &Arc<StreamRecord> {
        &self.record
    }

    /// The note of an answer that is to be stored.
    pub(crate) fn take_stored_note(&mut self) -> Option<StoredNote> {
        self.stored_note.take()
    }

    /// Starts the generation for the stream's client once there is a permit.
    pub(crate) fn start(self) -> OpenedStream {
        OpenedStream {
            record: self.record,
            ignored_fields: self.ignored,
            queue_position: self.ticket.queue_position(),
            ready_model: Arc::clone(&self.pending.serving),
            start: Box::pin(self.pending.run_for_client(self.ticket)),
        }
    }
}

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
            parsed.body_bytes,
            ask.prompts.len(),
            pending_generation::requested_choices(ask),
        ),
        is_recallable: parsed.program.is_none(),
        deadline: request.deadline.into_iter().chain(client_deadline).min(),
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
    let resumable = request.resumable.of_request(options);
    let detachable = !resumable && options.stream && limits.clocks.detaches();
    StreamTerms {
        owner: request.caller.owner,
        protocol: request.protocol,
        framing: request.framing,
        reasoning_field: limits.reasoning_field,
        resumable,
        detachable,
        explicit_acks: request.explicit_acks,
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

/// A stream that is about to be registered.
pub(crate) struct StreamOpening<'a> {
    pub(crate) request: &'a mut ParsedRequest,
    pub(crate) meta: &'a StreamMeta,
    pub(crate) terms: &'a StreamTerms,
    pub(crate) deadline: Option<Instant>,
    /// The note of an answer that is to be stored.
    pub(crate) stored_note: Option<&'a StoredNote>,
}

impl StreamOpening<'_> {
    /// Records the beginning of a resumable stream, if there is a journal and the client wants that; an answer of which
    /// another process has the beginning is not recorded. The description is
    /// for the record of the prepared prompts, and has none.
    pub(crate) fn record_opening(
        self,
        handles: &GenerationHandles,
    ) -> Option<(DurableStream, StreamDescription)> {
        let is_new = self.request.ask.params.continued.is_none();
        let is_wanted = self.terms.resumable && self.request.request.durable && is_new;
        let journal = handles.journal.get().filter(|_| is_wanted)?;
        let mut description = self.describe(handles.limits.now().closed_objects);
        let prompts = std::mem::take(&mut self.request.ask.prompts);
        description.prompts = RecordedPrompts::Requested(prompts);
        let encoded = description.encode();
        if let RecordedPrompts::Requested(prompts) = std::mem::take(&mut description.prompts) {
            self.request.ask.prompts = prompts;
        }
        let durable = journal.open_stream(self.meta.id.to_bits(), encoded.ok()?)?;
        let durable = match description.kind {
            DescriptionKind::WorkflowRun => durable.without_continuation(),
            DescriptionKind::Generation
            | DescriptionKind::StoredBlob
            | DescriptionKind::WebhookDelivery
            | DescriptionKind::Retired => durable,
        };
        Some((durable, description))
    }

    /// The description without prompts. Settings that decide the answer are part of the description.
    fn describe(&self, closed_objects: bool) -> StreamDescription {
        let (request, meta, terms) = (&*self.request, self.meta, self.terms);
        let model = &request.lease.serving.model;
        let job_id = request.response_id.clone();
        let mut params = request.ask.params.clone();
        params.closed_objects.get_or_insert(closed_objects);
        StreamDescription {
            kind: match request.program {
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
            deadline_unix_us: self.deadline.map(unix_us),
            model: meta.model.clone(),
            model_key: model.id.clone(),
            identity: model.identity_now(),
            context_max: model.handle.context_max,
            n: request.ask.n,
            params,
            stream_options: request.ask.stream_options.clone(),
            priority: meta.stream_options.priority,
            prompts: RecordedPrompts::default(),
            body_bytes: request.body_bytes,
            job_id: job_id.filter(|_| terms.protocol == Protocol::Job),
            stored: self
                .stored_note
                .and_then(|note| serde_json::to_value(note).ok()),
        }
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
