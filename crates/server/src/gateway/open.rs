//! Opening a stream: from a parsed request to a registered stream in the admission queue. All generations, of all
//! wire protocols, are opened here.

use crate::gateway::admission::{Asking, Place, Priority, Ticket};
use crate::gateway::begin::{self, Beginning};
use crate::gateway::generation::Generation;
use crate::gateway::handles::GenerationHandles;
use crate::gateway::keys::Caller;
use crate::gateway::metrics::MeteredRequest;
use crate::gateway::served::{Held, Serving};
use crate::gateway::streams::{Entry, Opening, Run};
use crate::gateway::workflows::Program;
use crate::wire::clock;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use generate::error::ApiError;
use generate::request::{GenerateRequest, IgnoredFields};
use generate::stream_meta::StreamMeta;
use std::sync::Arc;
use std::time::Instant;
use stream::StreamId;

/// A request that was understood.
pub(crate) struct Asked {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
    /// The model it is for.
    pub(crate) held: Held,
    pub(crate) ask: GenerateRequest,
    /// Bytes of the request's body.
    pub(crate) body_bytes: usize,
    pub(crate) resumable: bool,
    pub(crate) explicit_acks: bool,
    /// Overrides the priority of the body.
    pub(crate) priority: Option<Priority>,
    /// When its header says the caller's patience ends.
    pub(crate) deadline: Option<Instant>,
    /// What the answer is to be called; `None`: a fresh name.
    pub(crate) response_id: Option<String>,
    /// A program that is run instead.
    pub(crate) program: Option<Program>,
}

/// A stream that is registered and whose request is in the admission queue.
pub(crate) struct OpenedStream {
    beginning: Beginning,
    ticket: Ticket,
    entry: Arc<Entry>,
    ignored: IgnoredFields,
}

/// Counts the request against the caller's key, asks for its permit, and registers its stream.
///
/// # Errors
/// The key, the queue or the registry has no room for it.
pub(crate) fn open(
    handles: &GenerationHandles,
    caller: &Caller,
    mut asked: Asked,
) -> Result<OpenedStream, ApiError> {
    let now = clock::now();
    let ignored = std::mem::take(&mut asked.ask.delivery.ignored);
    if let Some(priority) = asked.priority {
        asked.ask.delivery.class = priority;
    }
    let ask = &asked.ask;
    let key = caller.open(ask.choices())?;
    let patience = ask.delivery.patience.map(|patience| now + patience);
    let asking = Asking {
        class: ask.delivery.class,
        account: key.account(),
        need: asked.held.serving.sizing(&handles.limits.now()).estimate(
            asked.body_bytes,
            ask.prompts.len(),
            begin::answers(ask),
        ),
        is_recallable: asked.program.is_none(),
        deadline: asked.deadline.into_iter().chain(patience).min(),
        who: handles.ids.digest(&(caller.owner.0, &ask.prompts)),
    };
    let admission = &asked.held.serving.admission;
    let ticket = admission.ask(asking)?;
    let (meta, opening) = (meta(handles, &asked, now), opening(handles, caller, &asked));
    let registration = handles.streams.open(meta, opening, now);
    let registration = registration.map_err(|full| ApiError {
        retry_after: admission.next_place().or(full.retry_after),
        ..full
    })?;
    let entry = Arc::clone(registration.payload());
    if let Some(place) = ticket.place() {
        entry.waits(place);
    }
    let beginning = Beginning {
        handles: handles.clone(),
        serving: asked.held.serving,
        ask: asked.ask,
        program: asked.program,
        body_bytes: asked.body_bytes,
        run: Run::new(registration, key),
        deadline: asking.deadline,
        class: asking.class,
        measured: MeteredRequest {
            dialect: asked.format.name(),
            stream: entry.meta().delivery.stream,
            attached: false,
            arrived: now,
        },
    };
    Ok(OpenedStream {
        beginning,
        ticket,
        entry,
        ignored,
    })
}

impl OpenedStream {
    /// The stream's record in the registry.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The position in the admission queue; `None` if the request was admitted at once.
    pub(crate) fn queue_place(&self) -> Option<Place> {
        self.ticket.place()
    }

    /// Fields of the request that have no meaning here.
    pub(crate) fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }

    /// The model that the stream runs on.
    pub(crate) fn serving(&self) -> &Arc<Serving> {
        &self.beginning.serving
    }

    /// Waits for the permit and starts the generation; to be called inside a runtime. Dropping the future cancels a
    /// stream that is not resumable.
    pub(crate) fn start(self) -> impl Future<Output = Result<Generation, ApiError>> + Send + use<> {
        self.beginning.run(self.ticket)
    }

    /// Starts a resumable stream without a subscriber; to be called inside a runtime.
    pub(crate) fn detach(self) -> Arc<Entry> {
        drop(self.beginning.keep(self.ticket));
        self.entry
    }
}

fn meta(handles: &GenerationHandles, asked: &Asked, now: Instant) -> StreamMeta {
    let (ask, format) = (&asked.ask, asked.format);
    let sampling = &ask.control.sampling;
    let id = StreamId::from_random(handles.ids.random());
    let fresh = || format.response_id(id, |prefix| handles.ids.id(prefix));
    StreamMeta {
        id,
        response_id: asked.response_id.clone().unwrap_or_else(fresh),
        created_unix_s: clock::unix_s(),
        arrived: now,
        model: asked.held.name.to_string(),
        delivery: ask.delivery.clone(),
        prompts: ask.prompts.len(),
        choices: ask.choices() as usize,
        stops: ask.control.stops.clone(),
        logprobs: sampling.logprobs,
        top_n: sampling.top_logprobs as usize,
    }
}

fn opening(handles: &GenerationHandles, caller: &Caller, asked: &Asked) -> Opening {
    let (ask, format) = (&asked.ask, asked.format);
    let limits = handles.limits.now();
    let detachable = !asked.resumable && ask.delivery.stream && limits.clocks.detaches();
    let detached_tokens = match asked.resumable || detachable {
        true => limits.streams.detached_tokens,
        false => 0,
    };
    Opening {
        owner: caller.owner,
        format,
        framing: asked.framing,
        reasoning_field: limits.reasoning_field,
        resumable: asked.resumable,
        detachable,
        explicit_acks: asked.explicit_acks,
        credit_window: match ask.delivery.background {
            true => 0,
            false => limits.credit_window,
        },
        detached_tokens,
    }
}
