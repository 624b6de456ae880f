//! Layout of a segment: a header, then frames, one for each write.
//!
//! Both magics contain bytes that UTF-8 never contains, so no text of a request looks like the beginning of a frame.
//! Integers are little-endian.

use crate::limits::FRAME_BYTES_MAX;

/// Version of the segment layout.
pub(crate) const LAYOUT_VERSION: u32 = 1;

const SEGMENT_MAGIC: [u8; 8] = *b"\xFFMRJSEG\xFE";

/// Bytes of a segment's header: magic, version u32, first frame u64, CRC-32 of the bytes before.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 24;

/// First bytes of a frame.
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"\xFFMR\xFE";

/// Bytes of a frame's header: magic, length u32, CRC-32, number u64, boot u64, settled u64.
pub(crate) const FRAME_HEADER_BYTES: usize = 36;

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u32,
    /// Number of the first frame in the segment.
    pub(crate) first_frame: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.first_frame.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Option<Self> {
        let is_intact =
            bytes[..8] == SEGMENT_MAGIC && crc32fast::hash(&bytes[..20]) == u32_at(bytes, 20);
        is_intact.then(|| Self {
            version: u32_at(bytes, 8),
            first_frame: u64_at(bytes, 12),
        })
    }
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Number of the frame in the journal, without gaps over segments and boots.
    pub(crate) number: u64,
    /// Number of the process that wrote the frame.
    pub(crate) boot: u64,
    /// Frames below this number were on the disk (fsync), or given up after a failed sync, when this one was written.
    pub(crate) settled: u64,
}

/// A frame's header as found in a file; the CRC is not compared yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundHeader {
    pub(crate) header: FrameHeader,
    /// Bytes of the records.
    pub(crate) length: usize,
    crc: u32,
}

impl FrameHeader {
    /// Fills the first [`FRAME_HEADER_BYTES`] of `frame`, whose records stand behind them.
    pub(crate) fn write_into(self, frame: &mut [u8]) {
        let length = (frame.len() - FRAME_HEADER_BYTES) as u32;
        frame[..4].copy_from_slice(&FRAME_MAGIC);
        frame[4..8].copy_from_slice(&length.to_le_bytes());
        frame[12..20].copy_from_slice(&self.number.to_le_bytes());
        frame[20..28].copy_from_slice(&self.boot.to_le_bytes());
        frame[28..36].copy_from_slice(&self.settled.to_le_bytes());
        let crc = checksum(frame);
        frame[8..12].copy_from_slice(&crc.to_le_bytes());
    }
}

impl FoundHeader {
    /// A header with a possible length at the beginning of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.first_chunk()?;
        let length = u32_at(bytes, 4) as usize;
        let is_possible = bytes[..4] == FRAME_MAGIC && length <= FRAME_BYTES_MAX;
        is_possible.then(|| Self {
            header: FrameHeader {
                number: u64_at(bytes, 12),
                boot: u64_at(bytes, 20),
                settled: u64_at(bytes, 28),
            },
            length,
            crc: u32_at(bytes, 8),
        })
    }

    /// Whether `frame`, header and records, has the checksum of the header.
    pub(crate) fn matches(&self, frame: &[u8]) -> bool {
        checksum(frame) == self.crc
    }
}

/// CRC-32 of the length and of everything behind the checksum.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[4..8]);
    hasher.update(&frame[12..]);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let chunk = bytes[at..].first_chunk().copied();
    u32::from_le_bytes(chunk.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let chunk = bytes[at..].first_chunk().copied();
    u64::from_le_bytes(chunk.unwrap_or_default())
}
