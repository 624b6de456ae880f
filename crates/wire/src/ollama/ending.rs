//! The `done_reason` for each end of a stream.

use crate::openai;
use generate::error::ApiError;
use stream::End;

/// The `done_reason`, or the error of a bad end. Errors are those of all protocols; a tool call is an ordinary end here.
pub(crate) fn spell(end: End) -> Result<&'static str, ApiError> {
    openai::ending::spell(end).map(|reason| match reason {
        "length" => "length",
        _ => "stop",
    })
}
