//! Reading a journal after a restart.
//!
//! Frames are numbered without gaps over segments and boots, and each frame names the number below which all frames were
//! *settled* when it was written: on the disk, or given up after a failed sync. So a missing frame has one of two causes,
//! and the rest of the journal shows which:
//!
//! - **A torn tail**: no later frame was written after a sync that covered the missing one. The process or the machine
//!   died before the sync. The journal ends before the missing frame; everything behind is cut before the first append.
//! - **Damage**: a later frame shows that the missing one was settled. Reading goes on; streams with a hole in their
//!   sequence numbers are lost, streams without a later record are in doubt.
//!
//! Unreadable bytes without a missing number are harmless: what a failed write left, or the rest of the reserve.

use crate::file_system::{FileSystem, JournalFile, read_fully};
use crate::frame::{
    FoundFrame, FramePlace, FrameReader, LAYOUT_VERSION, SEGMENT_HEADER_BYTES, SegmentFile,
    SegmentHeader,
};
use crate::replay::{Replay, ReplayedJournal};
use crate::segment::SegmentName;
use crate::start_error::StartError;
use std::io;

/// Result of reading all segments.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) journal: ReplayedJournal,
    /// Number for the next frame.
    pub(crate) next_frame: u64,
    /// Where the journal ends; `None` where it must not be cut, because files could not be read.
    end: Option<JournalEnd>,
}

/// End of the usable journal: bytes of the last segment that stays.
#[derive(Clone, Copy, Debug)]
struct JournalEnd {
    segments: usize,
    last_bytes: u64,
}

/// Frames skipped where a file could not be read, so that later recoveries see the place as damaged.
const UNREADABLE_FRAMES: u64 = 1 << 32;

/// The segments in order. Nothing is changed.
pub(crate) fn list_segments<F: FileSystem>(fs: &F) -> Result<Vec<SegmentFile>, StartError> {
    let location = || fs.location();
    let names = fs.list_files().map_err(|source| StartError::Unlisted {
        location: location(),
        source,
    })?;
    let mut names: Vec<_> = names
        .iter()
        .filter_map(|name| SegmentName::parse(name))
        .collect();
    names.sort_unstable();
    let describe = |name: SegmentName| {
        let (bytes, header) = read_header(fs, name).map_err(|source| StartError::Unreadable {
            location: location(),
            segment: name.to_string(),
            source,
        })?;
        match header {
            Some(header) if header.version != LAYOUT_VERSION => Err(StartError::NewerVersion {
                location: location(),
                segment: name.to_string(),
                version: header.version,
            }),
            header => Ok(SegmentFile {
                name,
                bytes,
                first_frame: header.map(|header| header.first_frame),
            }),
        }
    };
    names.into_iter().map(describe).collect()
}

fn read_header<F: FileSystem>(
    fs: &F,
    name: SegmentName,
) -> io::Result<(u64, Option<SegmentHeader>)> {
    let file = fs.open_file(&name.to_string())?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    // A sector that cannot be read is no reason not to start: the frames are looked for one by one.
    let read = read_fully(&file, &mut bytes, 0).unwrap_or(0);
    let header = SegmentHeader::parse(&bytes).filter(|_| read == bytes.len());
    Ok((file.byte_length()?, header))
}

/// Rebuilds the streams. Nothing is changed.
pub(crate) fn scan_segments<F: FileSystem>(
    fs: &F,
    segments: &[SegmentFile],
    bytes_max: usize,
) -> Scan {
    let mut replay = Replay::new(bytes_max);
    let mut expected = segments.first().and_then(|segment| segment.first_frame);
    let mut settled_max = None;
    let mut last: Option<FramePlace> = None;
    let mut reader = FrameReader::new(fs, segments);
    while let Some(frame) = reader.next_frame() {
        let number = frame.header.number;
        let next = expected.unwrap_or(number);
        if number.saturating_add(1) < next {
            continue; // An older frame where none should be: left from a failed write.
        }
        if number > next {
            let settled = *settled_max.get_or_insert_with(|| highest_settled(fs, segments, &frame));
            if settled <= next {
                break;
            }
            replay.note_damage(next);
        }
        expected = Some(next.max(number.saturating_add(1)));
        last = Some(frame.place);
        replay.report.bytes += frame.place.end - frame.place.start;
        let segment = segments[frame.place.segment].name.number;
        replay.apply_frame(&frame.header, segment, reader.records(&frame));
    }
    let read_errors = reader.read_errors;
    let mut next_frame = expected.unwrap_or(0);
    if read_errors > 0 {
        replay.note_damage(next_frame);
        next_frame = next_frame.saturating_add(UNREADABLE_FRAMES);
    }
    let end = JournalEnd {
        segments: last.map_or(0, |place| place.segment + 1),
        last_bytes: last.map_or(0, |place| place.end),
    };
    let mut journal = replay.finish();
    let report = &mut journal.report;
    report.read_errors = read_errors;
    report.segments = segments.len() as u64;
    report.cut_bytes = end.bytes_behind(segments);
    Scan {
        journal,
        next_frame,
        end: (read_errors == 0).then_some(end),
    }
}

/// The highest number below which frames were settled, as the frames from `frame` on state.
fn highest_settled<F: FileSystem>(fs: &F, segments: &[SegmentFile], frame: &FoundFrame) -> u64 {
    let mut reader = FrameReader::starting_at(fs, segments, frame.place);
    let mut highest = 0;
    while let Some(frame) = reader.next_frame() {
        highest = highest.max(frame.header.settled);
    }
    highest
}

impl JournalEnd {
    /// Bytes of the segments behind the end.
    fn bytes_behind(self, segments: &[SegmentFile]) -> u64 {
        let all: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let before = segments.iter().take(self.segments.saturating_sub(1));
        all - before.map(|segment| segment.bytes).sum::<u64>() - self.last_bytes
    }
}

/// Removes everything behind the end of the journal, and returns the segments that stay. All of them are on the disk
/// afterwards.
pub(crate) fn cut_tail<F: FileSystem>(
    fs: &F,
    mut segments: Vec<SegmentFile>,
    scan: &Scan,
) -> io::Result<Vec<SegmentFile>> {
    let Some(end) = scan.end else {
        return Ok(segments);
    };
    // From the last one on, so that a crash in between leaves no hole.
    while segments.len() > end.segments {
        if let Some(segment) = segments.pop() {
            fs.remove_file(&segment.name.to_string())?;
        }
    }
    let last = segments.len().saturating_sub(1);
    for (index, segment) in segments.iter_mut().enumerate() {
        let file = fs.open_file(&segment.name.to_string())?;
        if index == last && segment.bytes > end.last_bytes {
            file.set_length(end.last_bytes)?;
            segment.bytes = end.last_bytes;
        }
        file.sync_data()?;
    }
    fs.sync_directory()?;
    Ok(segments)
}
