//! Layout of a segment: a header, then frames, one for each write.
//!
//! Both magics contain bytes that UTF-8 never contains, so no text of a request looks like the beginning of a frame.
//! Integers are little-endian.

use crate::file_system::{FileSystem, read_fully};
use crate::record::{BATCH_BYTES_MAX, FRAME_BYTES_MAX, Record, WASTED_BYTES_MAX};
use crate::record_encoding::{RecordAddress, RecordError, encode_record};
use crate::segment::SegmentName;

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

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A segment before the frames were read.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: SegmentName,
    pub(crate) bytes: u64,
    /// Number of the first frame, where the header is intact.
    pub(crate) first_frame: Option<u64>,
}

/// Where a frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramePlace {
    /// Index in the list of segments.
    pub(crate) segment: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A frame with a right checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundFrame {
    pub(crate) header: FrameHeader,
    pub(crate) place: FramePlace,
}

/// Reads frames through a window on one file at a time.
pub(crate) struct FrameReader<'f, F: FileSystem> {
    fs: &'f F,
    segments: &'f [SegmentFile],
    /// Index of the open file.
    segment: usize,
    file: Option<F::File>,
    /// Bytes of the file from `window_start` on.
    window: Vec<u8>,
    window_start: u64,
    /// Place in the file of the next byte to examine.
    position: u64,
    /// Bytes of this segment whose checksum was wrong.
    wasted: u64,
    /// Segments that could not be read to their end.
    pub(crate) read_errors: u64,
}

impl<'f, F: FileSystem> FrameReader<'f, F> {
    pub(crate) fn new(fs: &'f F, segments: &'f [SegmentFile]) -> Self {
        let mut reader = Self {
            fs,
            segments,
            segment: 0,
            file: None,
            window: Vec::new(),
            window_start: 0,
            position: 0,
            wasted: 0,
            read_errors: 0,
        };
        reader.open_segment(0);
        reader
    }

    /// A reader of the frames from a place on.
    pub(crate) fn starting_at(fs: &'f F, segments: &'f [SegmentFile], place: FramePlace) -> Self {
        let mut reader = Self::new(fs, segments);
        reader.open_segment(place.segment);
        reader.position = place.start;
        reader.window_start = place.start;
        reader
    }

    /// The next frame; the records are in [`records`](Self::records) until the next call.
    pub(crate) fn next_frame(&mut self) -> Option<FoundFrame> {
        while self.segment < self.segments.len() {
            if self.fill_window(FRAME_HEADER_BYTES) < FRAME_HEADER_BYTES {
                self.open_segment(self.segment + 1);
            } else if let Some(frame) = self.frame_here() {
                self.position = frame.place.end;
                return Some(frame);
            } else if self.wasted > WASTED_BYTES_MAX {
                self.read_errors += 1;
                self.open_segment(self.segment + 1);
            } else {
                self.skip_to_magic();
            }
        }
        None
    }

    /// Records of the frame that [`next_frame`](Self::next_frame) returned.
    pub(crate) fn records(&self, frame: &FoundFrame) -> &[u8] {
        let start = (frame.place.start - self.window_start) as usize + FRAME_HEADER_BYTES;
        let end = (frame.place.end - self.window_start) as usize;
        self.window.get(start..end).unwrap_or_default()
    }

    fn open_segment(&mut self, index: usize) {
        self.segment = index;
        self.wasted = 0;
        self.window.clear();
        self.file = None;
        let Some(segment) = self.segments.get(index) else {
            return;
        };
        self.position = match segment.first_frame {
            Some(_) => SEGMENT_HEADER_BYTES as u64,
            None => 0,
        };
        self.window_start = self.position;
        self.file = self.fs.open_file(&segment.name.to_string()).ok();
        self.read_errors += u64::from(self.file.is_none());
    }

    fn file_bytes(&self) -> u64 {
        self.segments.get(self.segment).map_or(0, |s| s.bytes)
    }

    /// A frame that begins at the position.
    fn frame_here(&mut self) -> Option<FoundFrame> {
        let found = FoundHeader::parse(self.unread())?;
        let segment = self.segments.get(self.segment)?;
        let bytes = FRAME_HEADER_BYTES + found.length;
        let end = self.position + bytes as u64;
        if found.header.boot != segment.name.boot || end > self.file_bytes() {
            return None;
        }
        if self.fill_window(bytes) < bytes || !found.matches(&self.unread()[..bytes]) {
            self.wasted += bytes as u64;
            return None;
        }
        let place = FramePlace {
            segment: self.segment,
            start: self.position,
            end,
        };
        Some(FoundFrame {
            header: found.header,
            place,
        })
    }

    /// The part of the window from the position on.
    fn unread(&self) -> &[u8] {
        let start = (self.position - self.window_start) as usize;
        self.window.get(start..).unwrap_or_default()
    }

    /// Moves to the next place, after this one, where a frame may begin.
    fn skip_to_magic(&mut self) {
        self.position += 1;
        let rest = self.unread();
        let place = rest
            .windows(FRAME_MAGIC.len())
            .position(|bytes| bytes == FRAME_MAGIC);
        let skipped = place.unwrap_or((rest.len() + 1).saturating_sub(FRAME_MAGIC.len()));
        self.position += skipped as u64;
    }

    /// Reads until the window has `needed` bytes from the position on, and returns how many there are.
    fn fill_window(&mut self, needed: usize) -> usize {
        let present = self.unread().len();
        if present >= needed {
            return present;
        }
        let Some(file) = &self.file else {
            return 0;
        };
        let start = self.window.len() - present;
        self.window.drain(..start);
        self.window_start = self.position;
        let from = self.position + present as u64;
        let left = self.file_bytes().saturating_sub(from);
        let reading = left.min((needed - present).max(READ_BYTES) as u64) as usize;
        self.window.resize(present + reading, 0);
        let read = read_fully(file, &mut self.window[present..], from);
        self.window
            .truncate(present + read.as_ref().map_or(0, |read| *read));
        self.read_errors += u64::from(read.is_err());
        self.window.len()
    }
}

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
