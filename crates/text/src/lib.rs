//! Bytes to ids to events. Knows no engine and no HTTP.

mod decoder;
mod stop;
mod template;
mod tokenizer;
mod vocab;

pub use decoder::Decoder;
pub use stop::{StopHit, StopMatcher};
pub use template::{ChatTemplate, Message, RenderInput, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};
pub use vocab::{TokenKind, VocabModel, VocabSpec};
