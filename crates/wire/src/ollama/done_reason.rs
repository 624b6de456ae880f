//! The `done_reason` for each end of a stream.

use crate::openai;
use generate::error::ApiError;
use stream::End;

/// The `done_reason` of a completed stream; an end by a tool call is "stop".
///
/// # Errors
/// The error of a stream that did not complete.
pub(crate) fn done_reason(end: End) -> Result<&'static str, ApiError> {
    openai::finish_reason::finish_reason(end).map(|reason| match reason {
        "length" => "length",
        _ => "stop",
    })
}
