//! Records that are appended to a writer, for a copy of the streams on another machine.

use crate::record::Record;
use crate::stream_table::StreamKey;

/// Receives records on the thread that appends them, before the disk does and also while the disk fails. No method may
/// wait.
pub trait RecordTap: Send {
    /// A stream begins.
    fn open_stream(&mut self, key: StreamKey, id: u128, description: &[u8]);

    /// A record was appended to a stream. Tokens may be more than one record holds.
    fn append(&mut self, id: u128, record: &Record<'_>);

    /// The retention of a stream has ended.
    fn forget_stream(&mut self, id: u128);

    /// The next stream that the tap needs once more from memory, if any: the caller passes the state to
    /// [`copy_stream`](Self::copy_stream). Each call returns another stream.
    fn next_copy(&mut self) -> Option<(StreamKey, u128)>;

    /// Receives a stream once more: the description, and the records that `write` passes on.
    fn copy_stream(&mut self, id: u128, description: &[u8], write: RecordSource<'_>);
}

/// Passes the records of a stream to its argument.
pub type RecordSource<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&Record<'_>));
