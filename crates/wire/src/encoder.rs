//! The encoder of a wire protocol: typed events to frames, and collected answers to non-streaming responses.
//!
//! The order of events on one stream, as [`generate::output::event`] defines the order:
//!
//! ```text
//! (Queued | Loading)*  Opened  Started?  (Delta | ToolCall | StateChanged | ChoiceEnded)*
//! Usage?  (Finished | Failed)
//! ```
//!
//! `Rejected` ends a stream that was never opened. `Started` is sent when the engine begins to prefill the prompt, and
//! may come between any two other events. For a client that resumes, the encoder gets `Resumed` in place of `Opened`,
//! and the events before the client's position through [`Encoder::replay_event`].

use crate::frame_writer::FrameWriter;
use crate::shared::finish_reason;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{Event, Usage};
use stream::End;
use text::Tokenizer;

/// The last frame of a completed stream, in protocols with such a frame.
pub(crate) const DONE: &str = "[DONE]";

/// Writes one stream in one wire protocol. Strings that are equal in every frame are prepared when the encoder is
/// created; encoding a token allocates nothing.
pub trait Encoder: Send {
    /// Writes the frames of one event; no frame where the protocol has none for the event.
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>);

    /// Updates the encoder's state by an event that the client received on an earlier connection. Replayed events come
    /// before all others.
    fn replay_event(&mut self, _event: &Event<'_>) {}

    /// Writes the body of the non-streaming response.
    fn encode_collected(
        &self,
        answers: &[CollectedAnswer],
        tokenizer: &Tokenizer,
        usage: Usage,
        out: &mut BytesMut,
    );

    /// The error response of a stream that failed before its first frame was sent.
    fn end_error(&self, end: End) -> ApiError {
        finish_reason::end_error(end)
    }

    /// Writes the frame that keeps an idle connection open.
    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        out.write_comment(format_args!("ping"));
    }
}

/// Writes the events of a waiting request as comments, for protocols without frames for these events.
pub fn write_wait_comment(event: &Event<'_>, out: &mut FrameWriter<'_>) {
    match event {
        Event::Queued { position } => {
            out.write_comment(format_args!("queued, position {position}"));
        }
        Event::Loading { state, percent } => out.write_comment(format_args!("{state} {percent} %")),
        _ => {}
    }
}
