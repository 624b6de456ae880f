//! The formats answers are written in, by name.

use crate::dialect::Dialect;
use crate::openai::chat_frames::Chat;
use crate::openai::chunk::Naming;
use crate::openai::completion_frames::Completion;
use crate::streams::Opening;

/// A format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

impl Format {
    /// All there are.
    pub(crate) const ALL: [Self; 2] = [Self::Chat, Self::Completion];

    /// How `?dialect=` and the streams API spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "openai.chat",
            Self::Completion => "openai.completions",
        }
    }

    /// The format that is spelled so.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What the ids of its answers begin with.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completion => "cmpl-",
        }
    }

    /// The writer of a stream's frames in this format, whichever format it was opened in.
    pub(crate) fn dialect(self, opening: &Opening) -> Box<dyn Dialect> {
        let naming = Naming {
            id: &opening.response_id,
            created_unix_s: opening.created_unix_s,
            model: &opening.model,
        };
        let (delivery, logprobs) = (&opening.delivery, opening.logprobs);
        match self {
            Self::Chat => Box::new(Chat::new(&naming, delivery, logprobs)),
            Self::Completion => Box::new(Completion::new(&naming, delivery, logprobs)),
        }
    }
}
