//! What each wire format has to be able to say.

use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::Answer;
use generate::output::event::{Event, Usage};
use generate::output::position::Position;
use generate::stream_change::Change;
use stream::End;
use text::Tokenizer;

/// The writer of one request's frames: everything constant is rendered once, when it is made.
pub(crate) trait Dialect: Send {
    /// What is said before anything happens.
    fn open(&mut self, choices: usize, usage: Usage, out: &mut BytesMut);
    /// In the place of `open`, for a client that was told as much of each choice before.
    fn resume(&mut self, _reached: &[Position]) {}
    /// An event of those. They come before all others.
    fn known(&mut self, _event: &Event<'_>) {}
    /// What is to be said as soon as it is so, in frames of its own. They carry no place to come back to.
    fn before(&mut self, _usage: Usage, _out: &mut BytesMut) {}
    /// Whether it wants to be told what happens to the stream.
    fn follows(&self) -> bool {
        false
    }
    /// Something happened to the stream; told only where it is followed.
    fn change(&mut self, _change: Change, _out: &mut BytesMut) {}
    /// What has to be said before an event, in frames of its own. They carry no place to come back to.
    fn opening(&mut self, _event: &Event<'_>, _out: &mut BytesMut) {}
    /// One event.
    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut);
    /// All choices ended well, the first of them so: before the last counts, and also where the client
    /// was told of its end before.
    fn ended_well(&mut self, _first: End) {}
    /// The last counts, before the ending, where they are a frame of their own. Not called where it ends
    /// badly before any token was made.
    fn usage(&mut self, _usage: Usage, _out: &mut BytesMut) {}
    /// Usage before a failed end.
    fn usage_so_far(&mut self, _end: End, usage: Usage, out: &mut BytesMut) {
        self.usage(usage, out);
    }
    /// All choices ended well.
    fn close(&mut self, usage: Usage, out: &mut BytesMut);
    /// Writes a failed end after bytes were sent.
    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut);
    /// The frame that follows `fail`'s, where there is one.
    fn after_fail(&self) -> &'static str {
        ""
    }
    /// Writes a rejection after the headers and before any event.
    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut);
    /// Writes the position in the queue; 1 = the next to be admitted.
    fn queued(&self, position: usize, out: &mut BytesMut);
    /// Nothing is wrong.
    fn ping(&self, out: &mut BytesMut);
    /// The whole answer at once.
    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut);
    /// The error response of a failed end before bytes were sent.
    fn refusal(&self, end: End) -> ApiError;
}
