//! The thread that writes a cached file, while the model is already served.

use super::directory::{CacheDirectory, FileKey};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weights::packed_file::{PackedSection, packed_file_bytes, write_packed};

/// Bytes between two syncs: a bound of what the kernel holds unwritten, and of how long a stop waits for the disk.
const SYNC_BYTES: u64 = 64 << 20;
/// Time that a model which is closed waits for its file, so that a command of a few seconds is cached, too.
const FINISH_WAIT: Duration = Duration::from_secs(5);

/// A file that is being written. Dropping waits [`FINISH_WAIT`] for its end, and then gives the file up: no memory of the
/// model is held longer.
pub(crate) struct CacheWriter {
    is_stopped: Arc<AtomicBool>,
    /// Disconnected at the end of the thread.
    end: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Result of writing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The file is complete, with these bytes.
    File(u64),
    /// Another process has written the file, or is writing it.
    ByOther,
}

impl CacheWriter {
    /// Starts a thread that writes sections, in place of an earlier file if `is_replaced`; `None`, with a warning, if the system refuses one.
    pub(super) fn start(
        directory: CacheDirectory,
        key: FileKey,
        sections: Vec<PackedSection>,
        is_replaced: bool,
    ) -> Option<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (alive, end) = sync_channel(1);
        let stop = Arc::clone(&is_stopped);
        let work = move || {
            let _alive = alive;
            let path = directory.file(&key.name);
            match write_file(&directory, &key, (&sections, is_replaced), &stop) {
                Ok(Written::File(bytes)) => tracing::info!(
                    "packed weights were written to {} ({} MiB): the next load copies or maps them",
                    path.display(),
                    bytes >> 20
                ),
                Ok(Written::ByOther) => {
                    tracing::debug!("packed cache: another process writes {}", path.display());
                }
                Err(_) if stop.load(Ordering::Relaxed) => {
                    tracing::debug!("packed cache: {} was given up", path.display());
                }
                Err(why) => tracing::warn!(
                    "packed cache: {}: {why}; the model is served, and packed again at the next load",
                    path.display()
                ),
            }
        };
        let thread = std::thread::Builder::new().name("packed-cache".into());
        match thread.spawn(work) {
            Ok(thread) => Some(Self {
                is_stopped,
                end,
                thread: Some(thread),
            }),
            Err(why) => {
                tracing::warn!("packed cache: no thread to write it: {why}");
                None
            }
        }
    }
}

impl Drop for CacheWriter {
    fn drop(&mut self) {
        if self.end.recv_timeout(FINISH_WAIT) == Err(RecvTimeoutError::Timeout) {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the thread that writes the packed cache panicked");
        }
    }
}

/// Writes the file of `key` beside its name, syncs it and gives it the name; in place of an earlier file if `is_replaced`.
///
/// # Errors
/// Those of the disk; more bytes than the bound of the directory; `is_stopped` was set. No file is left.
pub(super) fn write_file(
    directory: &CacheDirectory,
    key: &FileKey,
    (sections, is_replaced): (&[PackedSection], bool),
    is_stopped: &AtomicBool,
) -> io::Result<Written> {
    directory.create()?;
    let Some(_lock) = directory.lock(&key.name)? else {
        return Ok(Written::ByOther);
    };
    if !is_replaced && directory.file(&key.name).exists() {
        return Ok(Written::ByOther);
    }
    let whole = packed_file_bytes(sections);
    directory.make_room(whole, &key.name)?;
    let part = directory.part(&key.name);
    let written = write_part(&part, key, sections, (whole, is_stopped));
    let placed = written.and_then(|bytes| {
        fs::rename(&part, directory.file(&key.name))?;
        directory.sync()?;
        Ok(bytes)
    });
    match placed {
        Ok(bytes) => {
            // Another process may have written another model meanwhile.
            directory.make_room(0, &key.name)?;
            Ok(Written::File(bytes))
        }
        Err(why) => {
            _ = fs::remove_file(&part);
            Err(why)
        }
    }
}

/// Writes and syncs a partial file of at most `room` bytes.
pub(super) fn write_part(
    path: &Path,
    key: &FileKey,
    sections: &[PackedSection],
    (room, is_stopped): (u64, &AtomicBool),
) -> io::Result<u64> {
    let mut out = SteadyFile {
        file: private_files::create_new(path)?,
        written: 0,
        unsynced: 0,
        room,
        is_stopped,
    };
    let bytes = write_packed(&mut out, &key.key, sections)?;
    out.file.sync_all()?;
    Ok(bytes)
}

/// A file that is synced while it is written, has a bound, and can be stopped.
struct SteadyFile<'a> {
    file: File,
    written: u64,
    unsynced: u64,
    room: u64,
    is_stopped: &'a AtomicBool,
}

impl Write for SteadyFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let count = bytes.len() as u64;
        if self.written + count > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.unsynced + count > SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        self.unsynced += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for SteadyFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.written = self.file.seek(to)?;
        Ok(self.written)
    }
}
