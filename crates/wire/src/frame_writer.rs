//! Frames of one stream on their way into a buffer: framing and event ids around the JSON of an encoder.

use crate::cursor::Closing;
use crate::event_id::{CursorText, EventIds};
use crate::framing::Framing;
use crate::{json, ndjson, sse};
use bytes::BytesMut;
use serde::Serialize;
use std::fmt::Arguments;

/// What a client that has a frame can resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameId {
    /// Nothing new: the frame is sent again after a reconnection, or never.
    None,
    /// All output up to and with the event that is being encoded.
    Position,
    /// All output, and the frames after it up to this one.
    Terminal(Closing),
}

/// Writes frames in one framing.
pub struct FrameWriter<'a> {
    framing: Framing,
    /// Positions of the client, where frames carry them.
    ids: Option<&'a EventIds>,
    /// Terminal frames that the client has.
    known: Closing,
    out: &'a mut BytesMut,
}

impl<'a> FrameWriter<'a> {
    /// A writer of frames without ids.
    pub fn new(framing: Framing, out: &'a mut BytesMut) -> Self {
        Self {
            framing,
            ids: None,
            known: Closing::Open,
            out,
        }
    }

    /// A writer of frames with ids, for a client that has some terminal frames.
    pub fn with_ids(self, ids: Option<&'a EventIds>, known: Closing) -> Self {
        Self { ids, known, ..self }
    }

    /// Framing of the stream.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Writes an object as one frame. `name` is the event's name where frames are server-sent events. Terminal frames
    /// that the client has are left out.
    pub fn frame(&mut self, id: FrameId, name: Option<&str>, object: &impl Serialize) {
        if self.is_known(id) {
            return;
        }
        let cursor = self.cursor(id);
        match self.framing {
            Framing::Sse => {
                sse::begin(cursor, name, self.out);
                json::write(object, self.out);
                sse::end(self.out);
            }
            Framing::Ndjson | Framing::WebSocket => {
                ndjson::write(object, cursor.as_ref(), self.out);
            }
        }
    }

    /// Writes plain text as one frame (`[DONE]`); only server-sent events have such frames.
    pub fn text(&mut self, id: FrameId, text: &str) {
        if self.framing == Framing::Sse && !self.is_known(id) {
            sse::begin(self.cursor(id), None, self.out);
            json::raw(self.out, text);
            sse::end(self.out);
        }
    }

    /// Writes a comment; only server-sent events have comments.
    pub fn comment(&mut self, text: Arguments<'_>) {
        if self.framing == Framing::Sse {
            sse::comment(text, self.out);
        }
    }

    /// `Done` is sent to whoever asks: without it a client would wait for an end.
    fn is_known(&self, id: FrameId) -> bool {
        match id {
            FrameId::Terminal(closing) => closing <= self.known && closing != Closing::Done,
            FrameId::None | FrameId::Position => false,
        }
    }

    fn cursor(&self, id: FrameId) -> Option<CursorText<'a>> {
        let closing = match id {
            FrameId::None => return None,
            FrameId::Position => Closing::Open,
            FrameId::Terminal(closing) => closing,
        };
        let with_stream = self.framing != Framing::WebSocket;
        self.ids.map(|ids| ids.cursor(closing, with_stream))
    }
}
