//! How long a prompt's text may be before it is rendered or encoded any further.

use crate::gateway::served::ServedModel;
use crate::generate::error::ApiError;
use text::OUTPUT_BYTES_MAX;

/// Bytes that a prompt's text may have before it is looked at any further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptRoom {
    bytes_max: usize,
    /// Bytes one token stands for at most, and tokens of the context, where the bound comes from these.
    context: Option<(usize, usize)>,
}

impl PromptRoom {
    /// What a context could hold if each of its tokens was the longest there is.
    pub(crate) fn of_context(served: &ServedModel) -> Self {
        let token_bytes = served.tokenizer.bytes_per_token_max();
        let most = served.context_max.saturating_mul(token_bytes);
        Self {
            bytes_max: most.min(OUTPUT_BYTES_MAX),
            context: (most < OUTPUT_BYTES_MAX).then_some((token_bytes, served.context_max)),
        }
    }

    /// The room of a prompt that may be longer than the context.
    pub(crate) const WIDEST: Self = Self {
        bytes_max: OUTPUT_BYTES_MAX,
        context: None,
    };

    /// Bytes of the longest text there is room for.
    pub(crate) fn bytes_max(self) -> usize {
        self.bytes_max
    }

    /// # Errors
    /// A text of so many bytes has no room.
    pub(crate) fn expect(self, field: &str, bytes: usize) -> Result<(), ApiError> {
        match bytes <= self.bytes_max {
            true => Ok(()),
            false => Err(self.refusal(field, &bytes.to_string())),
        }
    }

    /// The refusal of a prompt with so many bytes, in words.
    pub(crate) fn refusal(self, field: &str, bytes: &str) -> ApiError {
        let most = self.bytes_max;
        let (code, words) = match self.context {
            Some((token_bytes, context_max)) => (
                "context_length_exceeded",
                format!(
                    "the prompt has {bytes} bytes; the model's context of {context_max} tokens holds at most \
                     {most}, {token_bytes} for each"
                ),
            ),
            None => (
                "too_long",
                format!("the prompt has {bytes} bytes; at most {most} are taken"),
            ),
        };
        ApiError::field(field, code, format!("{field}: {words}"))
    }
}
