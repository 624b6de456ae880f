//! Frames written into memory that is used again.

use bytes::{Bytes, BytesMut};

/// Bytes a buffer begins with: a frame of a few tokens, several times. It is most of what an idle stream holds.
const FIRST_BYTES: usize = 1 << 10;
/// Bytes a buffer should have room for before a frame is begun in it.
const FRAME_BYTES: usize = 1 << 10;
/// Buffers taken in turn. A connection drops a frame before it asks for the next, so one would do; the second
/// is for a consumer that holds a frame while it asks for another.
const BUFFERS: usize = 2;

/// A ring of buffers. A buffer's memory is taken again once all frames written into it were dropped.
#[derive(Default)]
pub struct FrameBuffer {
    ring: [BytesMut; BUFFERS],
    at: usize,
}

impl FrameBuffer {
    /// An empty buffer to write the next frame into.
    pub fn begin(&mut self) -> &mut BytesMut {
        if !self.ring[self.at].try_reclaim(FRAME_BYTES) {
            let free = (0..BUFFERS).find(|&i| self.ring[i].try_reclaim(FRAME_BYTES));
            match free {
                Some(free) => self.at = free,
                None => self.ring[self.at].reserve(FIRST_BYTES),
            }
        }
        &mut self.ring[self.at]
    }

    /// The buffer of the frame that was begun.
    pub fn out(&mut self) -> &mut BytesMut {
        &mut self.ring[self.at]
    }

    /// What was written since [`begin`](Self::begin); `None` when that is nothing.
    pub fn take(&mut self) -> Option<Bytes> {
        let written = &mut self.ring[self.at];
        (!written.is_empty()).then(|| written.split().freeze())
    }
}
