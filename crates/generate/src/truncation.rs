//! How prompts that leave no room for the answer are shortened.

use crate::request::GenerationParams;
use serde::{Deserialize, Serialize};

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
