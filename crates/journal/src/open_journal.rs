//! Starting in two steps: lock and checks; recovery and first segment.

use crate::durability::{Health, SyncState};
use crate::file_system::FileSystem;
use crate::frame::{Batch, SEGMENT_HEADER_BYTES, SegmentFile};
use crate::journal_config::JournalConfig;
use crate::record::{OPEN_VERSION, Record};
use crate::recovered_stream::{Integrity, Recovered, RefusedStream};
use crate::recovery::{Scan, cut_tail, list_segments, scan_segments};
use crate::replayed_stream::ReplayedStream;
use crate::reserve::prepare_reserve;
use crate::segment::SegmentList;
use crate::start_error::StartError;
use crate::stream_table::{LiveStream, StreamKey, StreamTable};
use crate::writer::{Writer, WriterCounts};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// A locked journal of this version on a writable disk with space for a start. Nothing was read but the headers of the
/// segments.
pub struct LockedJournal<F: FileSystem> {
    fs: F,
    config: JournalConfig,
    lock: F::Lock,
    found: Vec<SegmentFile>,
    reserve: Option<F::File>,
}

/// Locks a journal and checks everything that does not need the records, so that a server can do this before the socket
/// is bound.
///
/// # Errors
/// The directory is locked, cannot be written, has no space, or was written by a newer version. Segments were not
/// changed.
pub fn lock_journal<F: FileSystem>(
    fs: F,
    config: JournalConfig,
) -> Result<LockedJournal<F>, StartError> {
    let location = fs.location();
    let lock = fs.lock_journal().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StartError::Locked { location },
        _ => unwritable(&fs, &config, error),
    })?;
    let found = list_segments(&fs)?;
    let reserve = prepare_reserve(&fs, &config).map_err(|error| unwritable(&fs, &config, error))?;
    Ok(LockedJournal {
        fs,
        config,
        lock,
        found,
        reserve,
    })
}

impl<F: FileSystem> LockedJournal<F> {
    /// Bytes of the segments: [`recover`](Self::recover) reads as many.
    pub fn segment_bytes(&self) -> u64 {
        self.found.iter().map(|segment| segment.bytes).sum()
    }

    /// Rebuilds the streams, cuts the torn tail, and begins a new segment. All recovered streams are live: the caller
    /// forgets those that are not wanted.
    ///
    /// # Errors
    /// The directory cannot be written, or has no space.
    pub fn recover(self) -> Result<(Writer<F>, Recovered), StartError> {
        let Self {
            fs,
            config,
            lock,
            found,
            reserve,
        } = self;
        let scan = scan_segments(&fs, &found, config.recovery_bytes_max);
        let boot = found.iter().map(|segment| segment.name.boot).max();
        let next_number = found.last().map_or(1, |segment| segment.name.number + 1);
        let present =
            cut_tail(&fs, found, &scan).map_err(|error| unwritable(&fs, &config, error))?;
        let boot = boot.unwrap_or(0).saturating_add(1);
        let mut writer = new_writer(fs, config, lock, boot, &scan);
        writer.add_segments(&present, next_number);
        writer.set_reserve(reserve);
        let created = writer.create_segment();
        created.map_err(|error| unwritable(&*writer.fs, &writer.config, error))?;
        let recovered = writer.add_streams(scan);
        Ok((writer, recovered))
    }
}

impl<F: FileSystem> fmt::Debug for LockedJournal<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedJournal")
            .field("location", &self.fs.location())
            .field("segments", &self.found.len())
            .finish_non_exhaustive()
    }
}

fn unwritable<F: FileSystem>(fs: &F, config: &JournalConfig, error: io::Error) -> StartError {
    let needed = config.reserve_bytes + SEGMENT_HEADER_BYTES as u64;
    StartError::from_write(fs.location(), error, needed)
}

/// [`lock_journal`] and [`LockedJournal::recover`] in one call.
///
/// # Errors
/// As of both.
pub fn open_journal<F: FileSystem>(
    fs: F,
    config: JournalConfig,
) -> Result<(Writer<F>, Recovered), StartError> {
    lock_journal(fs, config)?.recover()
}

/// Rebuilds the streams of a journal without a lock and without changing files. Keys of the result belong to no writer.
///
/// # Errors
/// The directory or a segment cannot be read, or was written by a newer version.
pub fn read_journal<F: FileSystem>(fs: &F, bytes_max: usize) -> Result<Recovered, StartError> {
    let found = list_segments(fs)?;
    let scan = scan_segments(fs, &found, bytes_max);
    let mut table = StreamTable::default();
    let mut recovered = Recovered {
        report: scan.journal.report,
        ..Recovered::default()
    };
    for (handle, stream) in scan.journal.streams {
        let key = table.insert(LiveStream::new(stream.id, handle));
        recovered.push(key, stream);
    }
    Ok(recovered)
}

fn new_writer<F: FileSystem>(
    fs: F,
    config: JournalConfig,
    lock: F::Lock,
    boot: u64,
    scan: &Scan,
) -> Writer<F> {
    let batch = Batch::new(config.batch_bytes);
    Writer {
        fs: Arc::new(fs),
        config,
        boot,
        streams: StreamTable::default(),
        next_handle: scan.journal.handle_max.saturating_add(1),
        live_bytes: 0,
        gaps: 0,
        kept: 0,
        released: Vec::new(),
        may_have_dead_segments: true,
        segments: SegmentList::default(),
        current: None,
        reserve: None,
        batch,
        next_frame: scan.next_frame,
        rewritten_at: 0,
        has_replaced: false,
        sync: SyncState::new(scan.next_frame),
        health: Health::new(),
        cycle: None,
        resume_below: 0,
        now: Duration::ZERO,
        commits: 0,
        acknowledged: 0,
        counts: WriterCounts::default(),
        tap: None,
        _lock: lock,
    }
}

impl<F: FileSystem> Writer<F> {
    fn add_segments(&mut self, present: &[SegmentFile], next_number: u64) {
        for segment in present {
            self.segments.push(segment.name, segment.bytes);
        }
        self.segments.next_number = next_number;
    }

    fn add_streams(&mut self, scan: Scan) -> Recovered {
        let mut recovered = Recovered {
            report: scan.journal.report,
            ..Recovered::default()
        };
        for (handle, mut stream) in scan.journal.streams {
            let mut live = LiveStream::new(stream.id, handle);
            live.next_sequence = stream.next_sequence;
            live.bytes = stream.bytes;
            live.base = Some(stream.base);
            live.may_be_written = true;
            live.is_kept = stream.has_outcome;
            let refused = std::mem::take(&mut stream.refused);
            live.refused = (stream.version > OPEN_VERSION).then(|| refused.into_boxed_slice());
            self.live_bytes += live.bytes;
            self.kept += usize::from(live.is_kept);
            let key = self.streams.insert(live);
            recovered.push(key, stream);
        }
        for address in scan.journal.unused {
            let why = crate::RELEASED;
            let pushed = self
                .batch
                .push(address, &Record::Forgotten { why, copy: 0 });
            debug_assert!(pushed.is_ok(), "the record has no part with a bound");
        }
        recovered
    }
}

impl Recovered {
    fn push(&mut self, key: StreamKey, stream: ReplayedStream) {
        if stream.version > OPEN_VERSION {
            self.refused.push(RefusedStream {
                key,
                id: stream.id,
                version: stream.version,
            });
            return;
        }
        self.streams.push(stream.into_recovered(key));
    }
}

impl Integrity {
    /// Whether the stream can be continued from the tokens.
    pub fn is_intact(self) -> bool {
        self == Self::Intact
    }
}
