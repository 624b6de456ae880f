//! How long a prompt may be: the longest text that is rendered or tokenized at all, and how prompts that leave no room
//! for the answer are shortened.

use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use crate::request::GenerationParams;
use serde::{Deserialize, Serialize};
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

/// Tokens left for an answer without `max_tokens`, where a prompt is truncated; at most an eighth of the context.
pub const ANSWER_TOKENS_RESERVED: usize = 512;

/// Part that is dropped from a prompt that leaves no room for the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// Nothing: a prompt as long as the context is an error.
    #[default]
    Disabled,
    /// Whole turns from the beginning of a conversation. Instructions, the last user message and the last message stay.
    Turns,
    /// Tokens from the beginning, except for the beginning-of-sequence token: at most this many tokens stay. `None`: as
    /// many as leave room for the answer.
    LastTokens(Option<usize>),
}

impl Truncation {
    /// Whether nothing is dropped.
    pub fn is_disabled(&self) -> bool {
        *self == Self::Disabled
    }
}

/// Truncation of the prompts of one request, with the room that answers need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTruncation {
    /// Part of a prompt that is dropped.
    pub truncation: Truncation,
    max_tokens: Option<usize>,
    min_tokens: usize,
}

impl PromptTruncation {
    /// Truncation of the prompts of a request with these parameters.
    pub fn of(params: &GenerationParams) -> Self {
        Self {
            truncation: params.truncation,
            max_tokens: params.max_tokens,
            min_tokens: params.sampling.min_tokens as usize,
        }
    }

    /// Tokens of the longest prompt that is not truncated, in a context of `context_max` tokens: `max_tokens` are left
    /// for the answer, but never more than half of the context; without `max_tokens`, [`ANSWER_TOKENS_RESERVED`].
    pub fn prompt_tokens_max(self, context_max: usize) -> usize {
        let reserved = match self.max_tokens {
            Some(max) => max.min(context_max / 2),
            None => ANSWER_TOKENS_RESERVED.min(context_max / 8),
        };
        let reserved = reserved.max(self.min_tokens).max(1);
        context_max.saturating_sub(reserved).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::SamplingParams;

    #[test]
    fn room_of_the_answer_is_bounded() {
        for (max_tokens, min_tokens, want) in [
            (None, 0, 7 * 512),
            (Some(100), 0, 3996),
            (Some(1 << 20), 0, 2048),
            (Some(0), 0, 4095),
            (Some(3000), 3000, 1096),
            (None, 5000, 1),
        ] {
            let params = GenerationParams {
                max_tokens,
                sampling: SamplingParams {
                    min_tokens,
                    ..SamplingParams::default()
                },
                ..GenerationParams::default()
            };
            let tokens = PromptTruncation::of(&params).prompt_tokens_max(4096);
            assert_eq!(tokens, want, "{max_tokens:?} {min_tokens}");
        }
    }

    #[test]
    fn truncation_survives_a_record() {
        let plain = serde_json::to_string(&GenerationParams::default()).expect("JSON");
        assert!(!plain.contains("truncation"), "{plain}");
        for truncation in [
            Truncation::Turns,
            Truncation::LastTokens(None),
            Truncation::LastTokens(Some(7)),
        ] {
            let params = GenerationParams {
                truncation,
                ..GenerationParams::default()
            };
            let json = serde_json::to_string(&params).expect("JSON");
            let again: GenerationParams = serde_json::from_str(&json).expect("params");
            assert_eq!(again.truncation, truncation, "{json}");
        }
    }
}
