//! Longest prompt text that is rendered or tokenized at all.

use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use text::OUTPUT_BYTES_MAX;

/// Bytes that the text of a prompt may have.
#[derive(Clone, Copy, Debug)]
pub struct PromptLimit {
    bytes_max: usize,
    /// Bytes one token stands for at most, and tokens of the context, where the bound comes from these.
    context: Option<(usize, usize)>,
}

impl PromptLimit {
    /// Room of a context, if each token was the vocabulary's longest.
    pub fn of_context(model: &ModelHandle) -> Self {
        let token_bytes = model.tokenizer.bytes_per_token_max();
        let most = model.context_max.saturating_mul(token_bytes);
        Self {
            bytes_max: most.min(OUTPUT_BYTES_MAX),
            context: (most < OUTPUT_BYTES_MAX).then_some((token_bytes, model.context_max)),
        }
    }

    /// Room of a prompt that may be longer than the context.
    pub const WIDEST: Self = Self {
        bytes_max: OUTPUT_BYTES_MAX,
        context: None,
    };

    /// Bytes of the longest text.
    pub fn bytes_max(self) -> usize {
        self.bytes_max
    }

    /// Checks the length of a text.
    ///
    /// # Errors
    /// The text is too long.
    pub fn expect(self, field: &str, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes_max {
            Ok(())
        } else {
            Err(self.too_long(field, bytes))
        }
    }

    /// The error for a prompt with at least this number of bytes.
    pub fn too_long(self, field: &str, bytes: usize) -> ApiError {
        let Some((token_bytes, context_max)) = self.context else {
            let most = self.bytes_max;
            let message =
                format!("{field}: the prompt has at least {bytes} bytes; at most {most} are taken");
            return ApiError::field(field, "too_long", message);
        };
        // No token stands for more bytes, so the prompt has at least so many tokens.
        let tokens = bytes.div_ceil(token_bytes.max(1));
        ApiError::full_context(field, tokens, context_max)
    }
}
