//! Reused memory for the frames of one stream.

use bytes::{Bytes, BytesMut};

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
