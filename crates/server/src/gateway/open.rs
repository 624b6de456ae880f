//! From an `Ask` to a stream with a name that waits for its permit: the one way every generation takes,
//! whichever format it was asked for in.

use crate::gateway::admission::{Asking, Class, Ticket};
use crate::gateway::begin::{self, Beginning};
use crate::gateway::keys::Caller;
use crate::gateway::served::Held;
use crate::gateway::streams::{Answers, Entry, Marks, Opening, Reached, Run, Wishes, named};
use crate::gateway::workflows::Program;
use crate::generate::ask::Ask;
use crate::generate::clock;
use crate::generate::error::ApiError;
use crate::generate::stream_meta::StreamMeta;
use crate::metrics;
use crate::router::App;
use crate::stream_body::StreamBody;
use crate::wire::dialect::Dialect;
use crate::wire::field_table::IgnoredFields;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::whole;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Instant;
use stream::StreamId;

/// A request that was understood.
pub(crate) struct Asked {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
    /// The model it is for.
    pub(crate) held: Held,
    pub(crate) ask: Ask,
    /// Bytes of the request's body.
    pub(crate) body_bytes: usize,
    pub(crate) wishes: Wishes,
    /// How urgent its header says it is.
    pub(crate) class: Option<Class>,
    /// When its header says the caller's patience ends.
    pub(crate) deadline: Option<Instant>,
    /// What the answer is to be called; `None`: a fresh name.
    pub(crate) response_id: Option<String>,
    /// A program that is run instead.
    pub(crate) program: Option<Program>,
}

/// A stream that is registered and has its place in the queue.
pub(crate) struct Opened {
    beginning: Beginning,
    ticket: Ticket,
    entry: Arc<Entry>,
    ignored: IgnoredFields,
}

/// Counts the request against the caller's key, asks for its permit, and registers its stream.
///
/// # Errors
/// The key, the queue or the registry has no room for it.
pub(crate) fn open(app: &Arc<App>, caller: &Caller, mut asked: Asked) -> Result<Opened, ApiError> {
    let now = clock::now();
    let ignored = std::mem::take(&mut asked.ask.delivery.ignored);
    if let Some(class) = asked.class {
        asked.ask.delivery.class = class;
    }
    let ask = &asked.ask;
    let key = caller.open(ask.choices())?;
    let patience = ask.delivery.patience.map(|patience| now + patience);
    let asking = Asking {
        class: ask.delivery.class,
        account: key.account(),
        need: asked.held.serving.sizing(&app.config.now()).estimate(
            asked.body_bytes,
            ask.prompts.len(),
            begin::answers(ask),
        ),
        is_recallable: asked.program.is_none(),
        deadline: asked.deadline.into_iter().chain(patience).min(),
        who: app.idents.digest(&(caller.owner.0, &ask.prompts)),
    };
    let admission = &asked.held.serving.admission;
    let ticket = admission.ask(asking)?;
    let (meta, opening) = (meta(app, &asked, now), opening(app, caller, &asked));
    let registration = app.streams.open(meta, opening, now);
    let registration = registration.map_err(|full| ApiError {
        retry_after: admission.next_place().or(full.retry_after),
        ..full
    })?;
    let entry = Arc::clone(registration.payload());
    if let Some(place) = ticket.place() {
        entry.waits(place);
    }
    let beginning = Beginning {
        app: Arc::clone(app),
        serving: asked.held.serving,
        ask: asked.ask,
        program: asked.program,
        body_bytes: asked.body_bytes,
        run: Run::new(registration, key),
        deadline: asking.deadline,
        class: asking.class,
        measured: metrics::Opened {
            dialect: asked.format.name(),
            stream: entry.meta().delivery.stream,
            attached: false,
            arrived: now,
        },
    };
    Ok(Opened {
        beginning,
        ticket,
        entry,
        ignored,
    })
}

impl Opened {
    /// Its stream.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The answer: its events as they come, or all of it at its end.
    pub(crate) async fn answer(self) -> Response {
        let entry = Arc::clone(&self.entry);
        let ignored = self.ignored.clone();
        let answer = if entry.meta().delivery.stream {
            self.stream().await
        } else {
            self.whole().await
        };
        let format = entry.opening().format;
        let mut answer = named(
            answer.unwrap_or_else(|error| format.refusal(&error)),
            &entry,
        );
        ignored.write(answer.headers_mut());
        answer
            .extensions_mut()
            .insert(Answers(Arc::downgrade(&entry)));
        answer
    }

    /// Runs it without a client, if it is resumable.
    pub(crate) fn detach(self) -> Arc<Entry> {
        drop(self.beginning.keep(self.ticket));
        self.entry
    }

    /// The answer's events for a client that has its head already. What it is refused for from here on
    /// is one of them.
    pub(crate) fn body(self, dialect: Box<dyn Dialect>) -> StreamBody {
        let keep_alive = self.beginning.app.config.now().keep_alive;
        let place = self.ticket.place();
        let metrics = Arc::clone(&self.beginning.app.metrics);
        let beginning = self.beginning.run(self.ticket);
        // Nobody else counts this refusal.
        let counted = async move {
            let began = beginning.await;
            began.inspect_err(|error| metrics.rejected(error.code))
        };
        StreamBody::waiting(Box::pin(counted), place, dialect, keep_alive)
    }

    async fn stream(self) -> Result<Response, ApiError> {
        let entry = Arc::clone(&self.entry);
        let opening = entry.opening();
        let dialect = encoder(&entry);
        let keep_alive = self.beginning.app.config.now().keep_alive;
        let body = match self.ticket.place() {
            Some(_) => self.body(dialect),
            None => {
                let generation = self.beginning.run(self.ticket).await?;
                StreamBody::new(generation, dialect, keep_alive)
            }
        };
        let nothing = || vec![Reached::default(); entry.meta().choices];
        let marks = || Marks::new(entry.id(), nothing()).framed(opening.framing);
        let is_marked = opening.resumable || opening.detachable;
        Ok(opening.framing.answer(match is_marked {
            true => body.marked(marks()),
            false => body,
        }))
    }

    async fn whole(self) -> Result<Response, ApiError> {
        let dialect = encoder(&self.entry);
        let serving = Arc::clone(&self.beginning.serving);
        let generation = self.beginning.run(self.ticket).await?;
        let body = whole::collect(generation, dialect, &serving.model.tokenizer).await?;
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// The encoder of a stream in the protocol of its request.
fn encoder(entry: &Entry) -> Box<dyn Dialect> {
    let opening = entry.opening();
    let (format, framing) = (opening.format, opening.framing);
    format.dialect(entry.source(), framing, opening.reasoning_field)
}

fn meta(app: &App, asked: &Asked, now: Instant) -> StreamMeta {
    let (ask, format) = (&asked.ask, asked.format);
    let sampling = &ask.control.sampling;
    let id = StreamId::from_random(app.idents.random());
    let fresh = || match format.id_prefix() {
        Some(prefix) => app.idents.id(prefix),
        None => format.named_by(id),
    };
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

fn opening(app: &App, caller: &Caller, asked: &Asked) -> Opening {
    let (ask, wishes, format) = (&asked.ask, asked.wishes, asked.format);
    let config = app.config.now();
    let detachable = !wishes.resumable && ask.delivery.stream && config.clocks.detaches();
    let detached_tokens = match wishes.resumable || detachable {
        true => config.streams.detached_tokens,
        false => 0,
    };
    Opening {
        owner: caller.owner,
        format,
        framing: asked.framing,
        reasoning_field: config.reasoning_field,
        resumable: wishes.resumable,
        detachable,
        explicit_acks: wishes.explicit_acks,
        credit_window: match ask.delivery.background {
            true => 0,
            false => config.credit_window,
        },
        detached_tokens,
    }
}
