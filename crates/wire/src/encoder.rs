//! The encoder of a wire protocol: typed events to frames, and collected answers to non-streaming responses.
//!
//! The order of events on one stream, as [`generate::output::event`] defines the order:
//!
//! ```text
//! (Queued | Loading | Image)*  Opened  Started?  (Delta | ToolCall | StateChanged | ChoiceEnded)*
//! Usage?  (Finished | Failed)
//! ```
//!
//! `Rejected` ends a stream that was never opened. `Started` is sent when the engine begins to prefill the prompt, and
//! may come between any two other events. For a client that resumes, the encoder gets `Resumed` in place of `Opened`,
//! and the events before the client's position through [`Encoder::replay_event`].

use crate::cursor::{CursorText, EventIds, TerminalMarker};
use crate::framing::{self, Framing};
use crate::json;
use crate::shared::finish_reason;
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::images::DescriptionState;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{Event, Usage};
use serde::Serialize;
use std::fmt::Arguments;
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
    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut);

    /// The error response of a stream that failed before its first frame was sent.
    fn end_error(&self, end: End) -> ApiError {
        finish_reason::end_error(end)
    }

    /// Writes the frame that keeps an idle connection open.
    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        out.write_comment(format_args!("ping"));
    }
}

/// The complete answers to a request.
#[derive(Clone, Copy)]
pub struct Collected<'a> {
    /// Answer of each choice.
    pub answers: &'a [CollectedAnswer],
    /// Tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Token counts of all choices.
    pub usage: Usage,
}

/// Writes the events of a waiting request as comments, for protocols without frames for these events.
pub fn write_wait_comment(event: &Event<'_>, out: &mut FrameWriter<'_>) {
    match event {
        Event::Queued { position } => {
            out.write_comment(format_args!("queued, position {position}"));
        }
        Event::Loading { state, percent } => out.write_comment(format_args!("{state} {percent} %")),
        Event::Image {
            index,
            count,
            state: DescriptionState::Describing,
        } => {
            let number = index + 1;
            out.write_comment(format_args!("describing image {number} of {count}"));
        }
        _ => {}
    }
}

/// The position from which a client can resume after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameId {
    /// No new position: after a reconnection the frame is sent again, or never.
    None,
    /// The position after the event that is being encoded.
    Position,
    /// The position after all output and after the terminal frames up to this one.
    Terminal(TerminalMarker),
    /// No new position: the frame precedes this terminal frame, and is left out for a client that has received the terminal frame.
    Before(TerminalMarker),
}

/// Writes frames in one framing.
pub struct FrameWriter<'a> {
    framing: Framing,
    /// Current positions, where frames carry event ids.
    ids: Option<&'a EventIds>,
    /// Terminal frames that the client has received.
    known: TerminalMarker,
    /// True until an event with the reconnection time was written, where the body has one.
    retry_due: Option<&'a mut bool>,
    out: &'a mut BytesMut,
}

impl<'a> FrameWriter<'a> {
    /// A writer of frames without ids.
    pub fn new(framing: Framing, out: &'a mut BytesMut) -> Self {
        Self {
            framing,
            ids: None,
            known: TerminalMarker::None,
            retry_due: None,
            out,
        }
    }

    /// The writer with event ids, for a client that has received the terminal frames up to `known`.
    pub fn with_ids(self, ids: Option<&'a EventIds>, known: TerminalMarker) -> Self {
        Self { ids, known, ..self }
    }

    /// The writer whose next server-sent event sets the client's reconnection time, if `due`; that event clears `due`.
    pub fn with_retry(self, due: &'a mut bool) -> Self {
        let retry_due = Some(due);
        Self { retry_due, ..self }
    }

    /// Framing of the stream.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Writes an object as one frame. `name` is the event's name in server-sent events. Terminal frames that the
    /// client has received are left out.
    pub fn write_frame(&mut self, id: FrameId, name: Option<&str>, object: &impl Serialize) {
        if self.is_known(id) {
            return;
        }
        let cursor = self.cursor_for(id);
        match self.framing {
            Framing::Sse => {
                self.write_retry();
                framing::begin_event(cursor, name, self.out);
                json::write(object, self.out);
                framing::end_event(self.out);
            }
            Framing::Ndjson | Framing::WebSocket => {
                write_line(object, cursor.as_ref(), self.out);
            }
        }
    }

    /// Writes plain text as one frame (`[DONE]`); only server-sent events have such frames.
    pub fn write_text(&mut self, id: FrameId, text: &str) {
        if self.framing == Framing::Sse && !self.is_known(id) {
            self.write_retry();
            framing::begin_event(self.cursor_for(id), None, self.out);
            json::raw(self.out, text);
            framing::end_event(self.out);
        }
    }

    /// Writes a comment; only server-sent events have comments. Between events with ids no empty line follows: the `openai`
    /// package for Python takes an empty line after an id for an event, and fails on its empty data.
    pub fn write_comment(&mut self, text: Arguments<'_>) {
        if self.framing != Framing::Sse {
            return;
        }
        framing::write_comment_line(text, self.out);
        if self.ids.is_none() {
            json::raw(self.out, "\n");
        }
    }

    fn write_retry(&mut self) {
        if let Some(due) = &mut self.retry_due
            && std::mem::take(*due)
        {
            framing::write_retry(self.out);
        }
    }

    /// Whether the client has received the terminal frame. `Done` is always sent again: a client without `Done` would
    /// wait for the end.
    fn is_known(&self, id: FrameId) -> bool {
        match id {
            FrameId::Terminal(terminal) | FrameId::Before(terminal) => {
                terminal <= self.known && terminal != TerminalMarker::Done
            }
            FrameId::None | FrameId::Position => false,
        }
    }

    fn cursor_for(&self, id: FrameId) -> Option<CursorText<'a>> {
        let terminal = match id {
            FrameId::None | FrameId::Before(_) => return None,
            FrameId::Position => TerminalMarker::None,
            FrameId::Terminal(terminal) => terminal,
        };
        let with_stream = self.framing != Framing::WebSocket;
        self.ids.map(|ids| ids.cursor_text(terminal, with_stream))
    }
}

/// Initial capacity of a buffer in bytes: a frame of a few tokens. A stream whose frames are larger has a larger buffer.
const FIRST_BYTES: usize = 1 << 9;
/// Free bytes that a buffer must have before a frame is begun in the buffer.
const FRAME_BYTES: usize = 1 << 9;
/// Number of buffers. A connection drops a frame before taking the next, so one buffer would do; the second is for a
/// consumer that holds one frame while taking the next.
const BUFFERS: usize = 2;

/// A ring of buffers. The memory of a buffer is reclaimed once all frames written into that buffer were dropped.
#[derive(Default)]
pub struct FrameBuffer {
    ring: [BytesMut; BUFFERS],
    at: usize,
}

impl FrameBuffer {
    /// An empty buffer to write the next frame into.
    pub fn begin_frame(&mut self) -> &mut BytesMut {
        if !self.ring[self.at].try_reclaim(FRAME_BYTES) {
            let free = (0..BUFFERS).find(|&i| self.ring[i].try_reclaim(FRAME_BYTES));
            match free {
                Some(free) => self.at = free,
                None => self.ring[self.at].reserve(FIRST_BYTES),
            }
        }
        &mut self.ring[self.at]
    }

    /// The buffer of the current frame.
    pub fn current_frame(&mut self) -> &mut BytesMut {
        &mut self.ring[self.at]
    }

    /// The bytes written since [`begin`](Self::begin_frame); `None` if there are none.
    pub fn take_frame(&mut self) -> Option<Bytes> {
        let written = &mut self.ring[self.at];
        (!written.is_empty()).then(|| written.split().freeze())
    }
}

/// An object, followed by the cursor.
#[derive(Serialize)]
struct WithCursor<'a, T> {
    #[serde(flatten)]
    object: &'a T,
    cursor: &'a CursorText<'a>,
}

/// Writes one line of JSON; a cursor is the object's last field.
fn write_line(object: &impl Serialize, cursor: Option<&CursorText<'_>>, out: &mut BytesMut) {
    match cursor {
        Some(cursor) => json::write(&WithCursor { object, cursor }, out),
        None => json::write(object, out),
    }
    json::raw(out, "\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::output::position::Position;

    #[test]
    fn comments_between_events_with_ids_are_single_lines() {
        let ids = EventIds::new("a".repeat(32).parse().unwrap(), vec![Position::default()]);
        for (framing, ids, want) in [
            (Framing::Sse, None, ": ping\n\n"),
            (Framing::Sse, Some(&ids), ": ping\n"),
            (Framing::Ndjson, Some(&ids), ""),
        ] {
            let mut out = BytesMut::new();
            let writer = FrameWriter::new(framing, &mut out);
            let mut writer = writer.with_ids(ids, TerminalMarker::None);
            writer.write_comment(format_args!("ping"));
            assert_eq!(&out[..], want.as_bytes());
        }
    }
}
