//! Events of a stream as bytes of its response: the encoder's JSON in the response's framing.

use bytes::BytesMut;
use generate::output::event::{Event, EventSink};
use std::time::Instant;
use wire::cursor::TerminalMarker;
use wire::encoder::Encoder;
use wire::event_id::EventIds;
use wire::frame_writer::FrameWriter;
use wire::framing::Framing;

/// Length of a frame that takes no events of further choices.
const FRAME_BYTES_ENOUGH: usize = 16 << 10;

/// State of the framing around the JSON of the encoder.
pub(super) struct FramingState {
    pub(super) framing: Framing,
    /// Writer of event ids, if the client can resume.
    pub(super) ids: Option<EventIds>,
    /// Terminal frames that the client has.
    pub(super) known: TerminalMarker,
    /// The next event sets the client's reconnection time.
    pub(super) retry_due: bool,
}

impl FramingState {
    pub(super) fn writer<'a>(&'a mut self, out: &'a mut BytesMut) -> FrameWriter<'a> {
        FrameWriter::new(self.framing, out)
            .with_ids(self.ids.as_ref(), self.known)
            .with_retry(&mut self.retry_due)
    }
}

/// Encodes the events of one poll.
pub(super) struct EventWriter<'a> {
    pub(super) encoder: &'a mut dyn Encoder,
    pub(super) framing: &'a mut FramingState,
    pub(super) started: &'a mut bool,
    pub(super) out: &'a mut BytesMut,
}

impl EventWriter<'_> {
    pub(super) fn encode(&mut self, event: &Event<'_>) {
        let mut out = self.framing.writer(self.out);
        self.encoder.encode(event, &mut out);
    }

    /// Encodes the start of the stream when the time of the start is known.
    pub(super) fn write_start(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && !std::mem::replace(self.started, true)
        {
            self.encode(&Event::Started { at });
        }
    }
}

impl EventSink for EventWriter<'_> {
    fn emit(&mut self, event: Event<'_>) -> bool {
        self.write_start(event.usage().and_then(|usage| usage.times.started));
        if let (Some(ids), Some(choice), Some(position)) =
            (&mut self.framing.ids, event.choice(), event.position())
        {
            ids.advance(choice, position);
        }
        self.encode(&event);
        self.out.len() < FRAME_BYTES_ENOUGH
    }

    fn replay(&mut self, event: &Event<'_>) {
        self.encoder.replay_event(event);
    }
}
