//! How Ollama's format spells each ending: by its `done_reason`, or as an error.

use crate::wire::openai;
use generate::error::ApiError;
use stream::End;

/// The `done_reason`, or the error it is. The errors are those of all formats; a call of a tool is an
/// ordinary end here.
pub(crate) fn spell(end: End) -> Result<&'static str, ApiError> {
    openai::ending::spell(end).map(|reason| match reason {
        "length" => "length",
        _ => "stop",
    })
}

/// The error of a bad ending; a good one is not refused by anybody.
pub(crate) fn refusal(end: End) -> ApiError {
    spell(end)
        .err()
        .unwrap_or_else(|| ApiError::ours("lost", "the stream ended twice"))
}
