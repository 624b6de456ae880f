//! One event of OpenAI's completions without ids: its text is covered by tokens of the vocabulary here.

use super::openai_event::CompletionEvent;
use super::{EventError, TokenChunk};
use std::sync::Arc;
use text::TextCover;

/// Parses the events of a response with one choice.
pub(crate) struct TextEvents {
    cover: Arc<TextCover>,
    /// Whether the next text begins a text.
    at_text_start: bool,
    has_logprobs: bool,
}

impl TextEvents {
    /// For a response that begins a text, or continues one.
    pub(crate) fn new(cover: Arc<TextCover>, at_text_start: bool, has_logprobs: bool) -> Self {
        Self {
            cover,
            at_text_start,
            has_logprobs,
        }
    }

    pub(super) fn parse(&mut self, data: &[u8]) -> Result<TokenChunk, EventError> {
        let Some(choice) = CompletionEvent::choice(data)? else {
            return Ok(TokenChunk::default());
        };
        let mut ids = Vec::new();
        self.cover
            .push_ids(&choice.text, self.at_text_start, &mut ids);
        self.at_text_start &= choice.text.is_empty();
        Ok(TokenChunk {
            logprobs: if self.has_logprobs {
                vec![f32::NAN; ids.len()]
            } else {
                Vec::new()
            },
            finish: choice.finish()?,
            is_cover: !ids.is_empty(),
            ids,
        })
    }
}
