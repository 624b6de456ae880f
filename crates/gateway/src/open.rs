//! Opening a stream: from a parsed request to a registered stream in the admission queue. All generations, of all
//! wire protocols, are opened here.

use crate::admission::{AdmissionRequest, Priority, QueuePosition, Ticket};
use crate::generation::Generation;
use crate::handles::GenerationHandles;
use crate::keys::Caller;
use crate::metrics::{MeteredProtocol, MeteredRequest};
use crate::models::{ModelLease, ReadyModel};
use crate::pending_generation::{self, PendingGeneration};
use crate::stored_note::StoredNote;
use crate::stream_opening::StreamOpening;
use crate::streams::{StreamRecord, StreamRun, StreamTerms};
use crate::workflows::Program;
use engine::Account;
use generate::error::ApiError;
use generate::reported_sampling::ReportedSampling;
use generate::request::{GenerateRequest, GenerationParams, IgnoredFields};
use generate::stream_meta::StreamMeta;
use std::sync::Arc;
use std::time::Instant;
use stream::StreamId;
use wire::clock;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::stored_request::StoredRequest;

/// A request that was understood.
pub struct ParsedRequest {
    /// Wire protocol of the response.
    pub protocol: Protocol,
    /// Framing of a streaming response.
    pub framing: Framing,
    /// The requested model.
    pub lease: ModelLease,
    /// The request in the server's own types.
    pub ask: GenerateRequest,
    /// Bytes of the request's body.
    pub body_bytes: usize,
    /// Whether the stream continues without a client.
    pub resumable: bool,
    /// Whether a resumable stream is recorded in the journal.
    pub durable: bool,
    /// Whether the client sends acknowledgements.
    pub explicit_acks: bool,
    /// Overrides the priority of the body.
    pub priority: Option<Priority>,
    /// Deadline from the request's header.
    pub deadline: Option<Instant>,
    /// Id of the response; `None`: a new id.
    pub response_id: Option<String>,
    /// A program that is run instead.
    pub program: Option<Program>,
    /// The part that is stored with the answer.
    pub stored_request: Option<StoredRequest>,
}

/// A registered stream with a request in the admission queue.
pub struct OpenedStream {
    pending: PendingGeneration,
    ticket: Ticket,
    record: Arc<StreamRecord>,
    ignored: IgnoredFields,
    stored_note: Option<StoredNote>,
}

/// Counts the request against the caller's key, requests a permit, and registers the stream.
///
/// # Errors
/// A limit of the key, the queue or the registry is exceeded.
pub fn open_stream(
    handles: &GenerationHandles,
    caller: &Caller,
    mut request: ParsedRequest,
) -> Result<OpenedStream, ApiError> {
    let now = clock::now();
    let ignored = std::mem::take(&mut request.ask.stream_options.ignored_fields);
    if let Some(priority) = request.priority {
        request.ask.stream_options.priority = priority;
    }
    let closed_objects = handles.limits.now().closed_objects;
    let seed = || handles.ids.next_seed();
    resolve_params(&mut request.ask.params, closed_objects, seed);
    let key = caller.open_streams_permit(request.ask.choices())?;
    let admission_request = admission_request(handles, caller, &request, (key.account(), now));
    let serving = Arc::clone(&request.lease.serving);
    let ticket = serving.admission.request_permit(admission_request)?;
    let meta = stream_meta(handles, &request, now);
    let stored_request = request.stored_request.take();
    let (durable, ids) = (request.durable, &handles.ids);
    let stored_note = stored_request.map(|note| StoredNote::new(note, durable, &meta, ids));
    let terms = stream_terms(handles, caller, &request);
    let opening = StreamOpening {
        request: &mut request,
        meta: &meta,
        terms: &terms,
        deadline: admission_request.deadline,
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
        serving: request.lease.serving,
        ask: request.ask,
        program: request.program,
        description,
        context_max: serving.model.handle.context_max,
        body_bytes: request.body_bytes,
        run: StreamRun::new(registration, key),
        deadline: admission_request.deadline,
        class: admission_request.class,
        measured: MeteredRequest {
            protocol: MeteredProtocol::Wire(request.protocol),
            stream: record.meta().stream_options.stream,
            attached: false,
            arrived: now,
        },
        attempt: None,
    };
    Ok(OpenedStream {
        pending,
        ticket,
        record,
        ignored,
        stored_note,
    })
}

/// The request of a permit for a stream of this account, at the time of arrival; counted.
fn admission_request(
    handles: &GenerationHandles,
    caller: &Caller,
    request: &ParsedRequest,
    (account, now): (Account, Instant),
) -> AdmissionRequest {
    handles.metrics.record_request();
    let ask = &request.ask;
    let client_deadline = ask.stream_options.deadline.map(|deadline| now + deadline);
    let estimator = request
        .lease
        .serving
        .resource_estimator(&handles.limits.now());
    AdmissionRequest {
        class: ask.stream_options.priority,
        account,
        need: estimator.estimate_bytes(
            request.body_bytes,
            ask.prompts.len(),
            pending_generation::requested_choices(ask),
        ),
        is_recallable: request.program.is_none(),
        deadline: request.deadline.into_iter().chain(client_deadline).min(),
        who: handles.ids.fingerprint_of(&(caller.owner.0, &ask.prompts)),
    }
}

impl OpenedStream {
    /// The stream's record in the registry.
    pub fn record(&self) -> &Arc<StreamRecord> {
        &self.record
    }

    /// The position in the admission queue; `None` if the request was admitted at once.
    pub fn queue_position(&self) -> Option<QueuePosition> {
        self.ticket.queue_position()
    }

    /// Fields of the request that have no meaning here.
    pub fn ignored_fields(&self) -> &IgnoredFields {
        &self.ignored
    }

    /// The note of an answer that is to be stored.
    pub(crate) fn take_stored_note(&mut self) -> Option<StoredNote> {
        self.stored_note.take()
    }

    /// The model that the stream runs on.
    pub fn ready_model(&self) -> &Arc<ReadyModel> {
        &self.pending.serving
    }

    /// Waits for the permit and starts the generation; to be called inside a runtime. Dropping the future cancels a
    /// stream that is not resumable.
    pub fn start_generation(
        self,
    ) -> impl Future<Output = Result<Generation, ApiError>> + Send + use<> {
        self.pending.run_for_client(self.ticket)
    }

    /// Starts a resumable stream without a subscriber; to be called inside a runtime.
    pub fn run_detached(self) -> Arc<StreamRecord> {
        drop(self.pending.run_in_task(self.ticket));
        self.record
    }
}

fn stream_meta(handles: &GenerationHandles, request: &ParsedRequest, now: Instant) -> StreamMeta {
    let (ask, protocol) = (&request.ask, request.protocol);
    let sampling = &ask.params.sampling;
    let id = StreamId::from_random(handles.ids.next_random());
    let fresh = || protocol.response_id(id, |prefix| handles.ids.prefixed_id(prefix));
    StreamMeta {
        id,
        response_id: request.response_id.clone().unwrap_or_else(fresh),
        created_unix_s: clock::unix_s(),
        arrived: now,
        model: request.lease.name.to_string(),
        stream_options: ask.stream_options.clone(),
        prompts: ask.prompts.len(),
        choices: ask.choices() as usize,
        sampling: ReportedSampling::of(&ask.params),
        stops: ask.params.stops.clone(),
        logprobs: sampling.logprobs,
        top_n: sampling.top_logprobs as usize,
    }
}

fn stream_terms(
    handles: &GenerationHandles,
    caller: &Caller,
    request: &ParsedRequest,
) -> StreamTerms {
    let (ask, protocol) = (&request.ask, request.protocol);
    let limits = handles.limits.now();
    let detachable = !request.resumable && ask.stream_options.stream && limits.clocks.detaches();
    let detached_tokens = match request.resumable || detachable {
        true => limits.streams.detached_tokens,
        false => 0,
    };
    StreamTerms {
        owner: caller.owner,
        protocol,
        framing: request.framing,
        reasoning_field: limits.reasoning_field,
        resumable: request.resumable,
        detachable,
        explicit_acks: request.explicit_acks,
        credit_window: match ask.stream_options.background {
            true => 0,
            false => limits.credit_window,
        },
        detached_tokens,
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
