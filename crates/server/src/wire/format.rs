//! The formats answers are written in, by name.

use crate::wire::anthropic::message_frames::Messages;
use crate::wire::dialect::Dialect;
use crate::wire::framing::Framing;
use crate::wire::native::frames::Job;
use crate::wire::ollama::frames::{Frames, Place};
use crate::wire::openai::chat_frames::{Chat, ReasoningField};
use crate::wire::openai::chunk::Naming;
use crate::wire::openai::completion_frames::Completion;
use crate::wire::{anthropic, native, ollama, openai, responses};
use axum::body::Body;
use axum::http::Response;
use generate::error::ApiError;
use generate::stream_source::StreamSource;
use std::sync::Arc;
use stream::StreamId;

/// A format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/v1/inference`, `/v1/jobs`.
    Job,
    /// `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
    /// `/api/chat`.
    OllamaChat,
    /// `/api/generate`.
    OllamaGenerate,
}

impl Format {
    /// All there are.
    pub(crate) const ALL: [Self; 7] = [
        Self::Chat,
        Self::Completion,
        Self::Job,
        Self::Messages,
        Self::Responses,
        Self::OllamaChat,
        Self::OllamaGenerate,
    ];

    /// How `?dialect=` and the streams API spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "openai.chat",
            Self::Completion => "openai.completions",
            Self::Job => "native.job",
            Self::Messages => "anthropic.messages",
            Self::Responses => "openai.responses",
            Self::OllamaChat => "ollama.chat",
            Self::OllamaGenerate => "ollama.generate",
        }
    }

    /// The format that is spelled so.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What the ids of its answers begin with; `None`: an answer goes by its stream's id.
    pub(crate) fn id_prefix(self) -> Option<&'static str> {
        match self {
            Self::Chat => Some("chatcmpl-"),
            Self::Completion => Some("cmpl-"),
            Self::Job | Self::Responses | Self::OllamaChat | Self::OllamaGenerate => None,
            Self::Messages => Some("msg_"),
        }
    }

    /// What an answer is called that goes by its stream's id.
    pub(crate) fn named_by(self, id: StreamId) -> String {
        match self {
            Self::Responses => format!("{}{id}", responses::ID_PREFIX),
            _ => id.to_string(),
        }
    }

    /// An error as the answer to a request.
    pub(crate) fn refusal(self, error: &ApiError) -> Response<Body> {
        match self {
            Self::Chat | Self::Completion | Self::Responses => openai::refusal::response(error),
            Self::Job => native::refusal::response(error),
            Self::Messages => anthropic::refusal::response(error),
            Self::OllamaChat | Self::OllamaGenerate => ollama::refusal::response(error),
        }
    }

    /// How its answers are cut into frames where nothing else is asked for.
    pub(crate) fn framing(self) -> Framing {
        match self {
            Self::Chat | Self::Completion | Self::Job | Self::Messages | Self::Responses => {
                Framing::Events
            }
            Self::OllamaChat | Self::OllamaGenerate => Framing::Lines,
        }
    }

    /// The writer of a stream's frames in this format, whichever format it was opened in.
    pub(crate) fn dialect(
        self,
        source: &Arc<StreamSource>,
        framing: Framing,
        reasoning: ReasoningField,
    ) -> Box<dyn Dialect> {
        let meta = source.meta();
        let naming = Naming {
            id: &meta.response_id,
            created_unix_s: meta.created_unix_s,
            model: &meta.model,
        };
        let (delivery, logprobs) = (&meta.delivery, meta.logprobs);
        match self {
            Self::Chat => Box::new(Chat::new(&naming, delivery, logprobs, reasoning)),
            Self::Completion => Box::new(Completion::new(&naming, delivery, logprobs)),
            Self::Job => Box::new(Job::new(naming.id, naming.model, &meta.stops)),
            Self::Messages => Box::new(Messages::new(&naming, &meta.stops)),
            Self::Responses => Box::new(responses::Frames::new(source)),
            Self::OllamaChat => Box::new(Frames::new(source, Place::Message, framing)),
            Self::OllamaGenerate => Box::new(Frames::new(source, Place::Response, framing)),
        }
    }
}
