//! The encoder of a wire protocol: typed events to frames, and the answers that are not streamed.
//!
//! The order of events on one stream, as [`generate::output::event`] has it:
//!
//! ```text
//! (Queued | Loading)*  Opened  Started?  (Delta | ToolCall | StateChanged | ChoiceEnded)*
//! Usage?  (Finished | Failed)
//! ```
//!
//! `Rejected` ends a stream that was never opened. `Started` comes as soon as the engine works on the prompt, and
//! may come between any two other events. A client that resumes gets no `Opened`; the encoder gets `Resumed` and the
//! events before the client's position through [`Encoder::replay`] in its place.

use crate::frame_writer::FrameWriter;
use crate::openai::ending;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{Event, Usage};
use stream::End;
use text::Tokenizer;

/// Writes one stream in one wire protocol. Strings that are the same in every frame are prepared once, when the
/// encoder is made; encoding a token allocates nothing.
pub trait Encoder: Send {
    /// Writes the frames of one event; none where the protocol has no frame for the event.
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>);

    /// Takes note of an event that the client has from an earlier connection. Replayed events come before all others.
    fn replay(&mut self, _event: &Event<'_>) {}

    /// Writes the body of the non-streaming response.
    fn collect(
        &self,
        answers: &[CollectedAnswer],
        tokenizer: &Tokenizer,
        usage: Usage,
        out: &mut BytesMut,
    );

    /// The error response of a stream that ended badly before anything was sent.
    fn error(&self, end: End) -> ApiError {
        ending::error(end)
    }

    /// Writes the frame that keeps an idle connection open.
    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        out.comment(format_args!("ping"));
    }
}

/// Events of a waiting request, as comments: for protocols that have no frames for them.
pub fn comment_on_wait(event: &Event<'_>, out: &mut FrameWriter<'_>) {
    match event {
        Event::Queued { position } => out.comment(format_args!("queued, position {position}")),
        Event::Loading { state, percent } => out.comment(format_args!("{state} {percent} %")),
        _ => {}
    }
}
