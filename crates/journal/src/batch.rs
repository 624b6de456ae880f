//! Records that are collected for one frame.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::limits::BATCH_BYTES_MAX;
use crate::record::Record;
use crate::record_encoder::{RecordAddress, RecordError, encode_record};

/// A frame under construction. The buffer is used again for each frame.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Number of the batch; grows with each frame that was written or given up.
    pub(crate) number: u64,
}

impl Batch {
    /// A batch that is full at `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: vec![0; FRAME_HEADER_BYTES],
            bytes_max: bytes_max.min(BATCH_BYTES_MAX),
            number: 1,
        }
    }

    pub(crate) fn push(
        &mut self,
        address: RecordAddress,
        record: &Record<'_>,
    ) -> Result<u64, RecordError> {
        encode_record(&mut self.bytes, address, record).map(|bytes| bytes as u64)
    }

    pub(crate) fn push_encoded(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == FRAME_HEADER_BYTES
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    pub(crate) fn byte_length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Header and records.
    pub(crate) fn finish(&mut self, header: FrameHeader) -> &[u8] {
        header.write_into(&mut self.bytes);
        &self.bytes
    }

    /// Begins the next batch. A buffer that grew for a large record is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.bytes.shrink_to(2 * BATCH_BYTES_MAX);
        self.number += 1;
    }

    /// Begins the next batch and returns the records of this one.
    pub(crate) fn take_records(&mut self) -> Vec<u8> {
        let records = self.bytes.split_off(FRAME_HEADER_BYTES);
        self.clear();
        records
    }
}
