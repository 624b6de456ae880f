//! Query parameters of a read: `offset`, `live` and `cursor`.

use generate::error::ApiError;
use wire::durable_streams::step_offset::StepOffset;
use wire::query::Query;

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFrom {
    /// An offset; `-1` is the beginning.
    Offset(StepOffset),
    /// `now`: the end of the messages so far.
    Tail,
}

/// How a read waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// Not at all.
    CatchUp,
    /// Until there is a message, for a limited time.
    LongPoll,
    /// Until the end of the stream, as server-sent events.
    Events,
}

/// The parameters of a read.
pub(super) struct ReadOptions {
    pub(super) from: ReadFrom,
    pub(super) mode: ReadMode,
    /// The cursor of the client's last live read.
    pub(super) cursor: Option<String>,
}

impl ReadOptions {
    /// Parses the query of a read of a stream with `choices` choices.
    ///
    /// # Errors
    /// An unknown mode; an offset that is missing, repeated or not an offset of such a stream.
    pub(super) fn parse(query: &Query, choices: usize) -> Result<Self, ApiError> {
        let mode = match query.get("live") {
            None => ReadMode::CatchUp,
            Some("long-poll") => ReadMode::LongPoll,
            Some("sse") => ReadMode::Events,
            Some(_) => {
                let message = "live: must be long-poll or sse";
                return Err(ApiError::field("live", "invalid_value", message));
            }
        };
        let from = match query.get("offset") {
            None if mode != ReadMode::CatchUp => {
                let message =
                    "offset: a live read needs one (-1, now, or an offset of this stream)";
                return Err(ApiError::field("offset", "invalid_offset", message));
            }
            None | Some("-1") => ReadFrom::Offset(StepOffset::default()),
            Some("now") => ReadFrom::Tail,
            Some(text) => {
                let offset = StepOffset::parse(text, choices).ok_or_else(invalid_offset)?;
                ReadFrom::Offset(offset)
            }
        };
        if query.count("offset") > 1 {
            return Err(invalid_offset());
        }
        let cursor = query.get("cursor").map(str::to_owned);
        Ok(Self { from, mode, cursor })
    }
}

/// The error of an offset that the stream does not have.
pub(super) fn invalid_offset() -> ApiError {
    let message = "offset: must be -1, now, or one offset that this stream has sent";
    ApiError::field("offset", "invalid_offset", message)
}
