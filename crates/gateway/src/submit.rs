//! From a request's body to an opened stream: parsing in the body's wire protocol, names of jobs, stored responses.

use crate::admission::Priority;
use crate::handles::Gateway;
use crate::job_names::NameClaim;
use crate::keys::Caller;
use crate::models::ModelLease;
use crate::open::{OpenedStream, ParsedRequest, open};
use generate::error::ApiError;
use generate::request::GenerateRequest;
use std::time::Instant;
use wire::ai_sdk;
use wire::anthropic::message_request;
use wire::fields::Fields;
use wire::format::Format;
use wire::framing::Framing;
use wire::jobs::job_id::JobId;
use wire::jobs::request;
use wire::openai::{chat_request, completion_request};
use wire::{ollama, responses, thinking_request};

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
    /// The client's choice.
    pub fn chosen(resumable: bool) -> Self {
        if resumable { Self::Yes } else { Self::No }
    }
}

/// A request's body, and what its route and header fields add.
pub struct UnparsedRequest<'a> {
    /// Wire protocol of the body and of the response.
    pub format: Format,
    /// Framing of a streaming response.
    pub framing: Framing,
    /// The request's body.
    pub body: &'a [u8],
    /// Overrides the body's priority.
    pub priority: Option<Priority>,
    /// Overrides nothing: the earlier deadline holds.
    pub deadline: Option<Instant>,
    /// When the stream continues without a client.
    pub resumable: Resumable,
    /// Whether the client acknowledges tokens itself.
    pub explicit_acks: bool,
    /// Streams the response whatever the body chooses.
    pub streamed: bool,
    /// The model, if the request has waited for it; else the model must be ready.
    pub lease: Option<ModelLease>,
}

impl UnparsedRequest<'_> {
    /// Parses the body and opens the stream.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub fn open(self, gateway: &Gateway, caller: &Caller) -> Result<OpenedStream, ApiError> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => gateway
                .models
                .hold_now(Fields::parse(self.body)?.string("model").as_deref())?,
        };
        let made = lease.made.as_ref();
        let written = made.and_then(|made| made.written_into(self.format, self.body));
        let body = written.as_deref().unwrap_or(self.body);
        let ParsedBody {
            mut ask,
            job_id,
            note,
        } = parse(self.format, body, &lease, gateway, caller)?;
        ask.stream_options.stream |= self.streamed;
        let claim = job_id
            .clone()
            .map(|id| claim(gateway, caller, id))
            .transpose()?;
        let resumable = match self.resumable {
            Resumable::Yes => true,
            Resumable::No => false,
            Resumable::IfStreamed => ask.stream_options.stream,
        };
        let parsed = ParsedRequest {
            format: self.format,
            framing: self.framing,
            lease,
            resumable: resumable || ask.stream_options.background,
            explicit_acks: self.explicit_acks,
            ask,
            body_bytes: body.len(),
            priority: self.priority,
            deadline: self.deadline,
            response_id: job_id.map(|id| id.as_str().to_owned()),
            program: None,
        };
        let opened = open(&gateway.generations, caller, parsed)?;
        if let Some(claim) = claim {
            claim.keep(opened.record().id());
        }
        if let Some(note) = note {
            gateway
                .responses
                .keep(opened.record(), note, &gateway.generations.ids)?;
        }
        Ok(opened)
    }
}

/// A body that was understood.
struct ParsedBody {
    ask: GenerateRequest,
    /// What a job is to be called.
    job_id: Option<JobId>,
    /// The part of a response that is stored.
    note: Option<responses::StoredRequest>,
}

fn parse(
    format: Format,
    body: &[u8],
    lease: &ModelLease,
    gateway: &Gateway,
    caller: &Caller,
) -> Result<ParsedBody, ApiError> {
    let mut fields = Fields::parse(body)?;
    // The model was looked up before; a `model` that is no text is reported with the other invalid fields.
    fields.string("model");
    let served = &lease.serving.model;
    let model = (served.id.as_str(), served.handle.capabilities);
    let in_vain = thinking_request::in_vain(format, &fields, model)?;
    let vocab = lease.serving.model.handle.tokenizer.vocab_size();
    let (mut job_id, mut note) = (None, None);
    let mut ask = match format {
        Format::Chat => chat_request::parse(fields, vocab)?,
        Format::Completion => completion_request::parse(fields, vocab)?,
        Format::Messages => message_request::parse(fields, vocab)?,
        Format::Job => {
            let job = request::parse(fields, vocab)?;
            job_id = job.id;
            job.request
        }
        Format::Responses => {
            let history = |id: &str| gateway.responses.history(id, caller);
            let (ask, kept) = responses::parse(fields, vocab, history)?;
            note = kept;
            ask
        }
        Format::AiSdkUi => ai_sdk::parse(fields, vocab)?,
        Format::OllamaChat => ollama::chat_request::parse(fields, vocab)?,
        Format::OllamaGenerate => ollama::generate_request::parse(fields, vocab)?,
    };
    ask.stream_options.ignored_fields.add(&in_vain);
    Ok(ParsedBody { ask, job_id, note })
}

fn claim<'a>(gateway: &'a Gateway, caller: &Caller, id: JobId) -> Result<NameClaim<'a>, ApiError> {
    let registry = gateway.generations.streams.registry();
    let is_known = |owner, id| registry.entry(id, stream::Caller::Owner(owner)).is_ok();
    gateway.job_names.claim(
        caller.owner,
        id,
        is_known,
        gateway.generations.limits.now().retry_after,
    )
}
