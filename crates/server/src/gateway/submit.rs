//! From a request's body to a stream that waits for its permit, whichever format it is in and whichever
//! way it came.

use crate::gateway::admission::Class;
use crate::gateway::handles::Gateway;
use crate::gateway::job_names::Claim;
use crate::gateway::keys::Caller;
use crate::gateway::open::{Asked, OpenedStream, open};
use crate::gateway::served::Held;
use crate::gateway::streams::Wishes;
use crate::wire::anthropic::message_request;
use crate::wire::fields::Fields;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::native::job_id::JobId;
use crate::wire::native::request;
use crate::wire::ollama;
use crate::wire::openai::{chat_request, completion_request};
use crate::wire::responses;
use crate::wire::thinking_request;
use generate::error::ApiError;
use generate::request::Ask;
use std::time::Instant;

/// A body that came, and what was said beside it.
pub(crate) struct Submission<'a> {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
    pub(crate) body: &'a [u8],
    /// How urgent it is, if that was said beside it.
    pub(crate) class: Option<Class>,
    /// When the caller's patience ends, likewise.
    pub(crate) deadline: Option<Instant>,
    /// Whether it is streamed whatever it says itself.
    pub(crate) streamed: bool,
    /// The model, if the request waited for it; otherwise the model must be ready.
    pub(crate) held: Option<Held>,
}

impl Submission<'_> {
    /// Reads it and opens its stream. `wishes` is told whether the answer is streamed.
    ///
    /// # Errors
    /// All its bad fields at once; or there is no room for it.
    pub(crate) fn open(
        self,
        gateway: &Gateway,
        caller: &Caller,
        wishes: impl FnOnce(bool) -> Result<Wishes, ApiError>,
    ) -> Result<OpenedStream, ApiError> {
        let held = match self.held {
            Some(held) => held,
            None => gateway
                .models
                .hold_now(Fields::parse(self.body)?.string("model").as_deref())?,
        };
        let made = held.made.as_ref();
        let written = made.and_then(|made| made.written_into(self.format, self.body));
        let body = written.as_deref().unwrap_or(self.body);
        let Parsed {
            mut ask,
            job_id,
            note,
        } = parse(self.format, body, &held, gateway, caller)?;
        ask.delivery.stream |= self.streamed;
        let claim = job_id
            .clone()
            .map(|id| claim(gateway, caller, id))
            .transpose()?;
        let mut wishes = wishes(ask.delivery.stream)?;
        wishes.resumable |= ask.delivery.background;
        let asked = Asked {
            format: self.format,
            framing: self.framing,
            held,
            wishes,
            ask,
            body_bytes: body.len(),
            class: self.class,
            deadline: self.deadline,
            response_id: job_id.map(|id| id.as_str().to_owned()),
            program: None,
        };
        let opened = open(&gateway.generations, caller, asked)?;
        if let Some(claim) = claim {
            claim.keep(opened.entry().id());
        }
        if let Some(note) = note {
            gateway
                .responses
                .keep(opened.entry(), note, &gateway.generations.ids)?;
        }
        Ok(opened)
    }
}

/// A body that was understood.
struct Parsed {
    ask: Ask,
    /// What a job is to be called.
    job_id: Option<JobId>,
    /// What is to be kept of a response.
    note: Option<responses::Note>,
}

fn parse(
    format: Format,
    body: &[u8],
    held: &Held,
    gateway: &Gateway,
    caller: &Caller,
) -> Result<Parsed, ApiError> {
    let mut fields = Fields::parse(body)?;
    // Whose it is was looked up before; that it is no text is said with all else that is wrong.
    fields.string("model");
    let served = &held.serving.model;
    let model = (served.id.as_str(), served.handle.capabilities);
    let in_vain = thinking_request::in_vain(format, &fields, model)?;
    let vocab = held.serving.model.handle.tokenizer.vocab_size();
    let (mut job_id, mut note) = (None, None);
    let mut ask = match format {
        Format::Chat => chat_request::parse(fields, vocab)?,
        Format::Completion => completion_request::parse(fields, vocab)?,
        Format::Messages => message_request::parse(fields, vocab)?,
        Format::Job => {
            let job = request::parse(fields, vocab)?;
            job_id = job.id;
            job.ask
        }
        Format::Responses => {
            let history = |id: &str| gateway.responses.history(id, caller);
            let (ask, kept) = responses::parse(fields, vocab, history)?;
            note = kept;
            ask
        }
        Format::OllamaChat => ollama::chat_request::parse(fields, vocab)?,
        Format::OllamaGenerate => ollama::generate_request::parse(fields, vocab)?,
    };
    ask.delivery.ignored.add(&in_vain);
    Ok(Parsed { ask, job_id, note })
}

fn claim<'a>(gateway: &'a Gateway, caller: &Caller, id: JobId) -> Result<Claim<'a>, ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |owner, id| registry.entry(id, stream::Caller::Owner(owner)).is_ok();
    gateway.job_names.claim(
        caller.owner,
        id,
        is_known,
        gateway.generations.limits.now().retry_after,
    )
}
