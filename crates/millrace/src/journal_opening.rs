//! Opening the journal of durable streams: everything that can fail is checked before the socket is bound, and reported
//! in one line.

use crate::config::{JournalPlace, Settings};
use crate::failure::Failure;
use cluster::names::InstanceId;
use journal::{
    BLOBS_NAME, BlobStore, CLUSTER_NAME, INSTANCE_NAME, JournalDirectory, LockedJournal,
    REPLICATED_NAME, StartError,
};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of the name of an instance that are read.
const INSTANCE_BYTES_MAX: u64 = 256;

/// The journal of the settings when the server starts.
pub(crate) enum OpenedJournal {
    Locked(LockedJournal<JournalDirectory>),
    /// The settings want none; the reason is in the log.
    Off,
    /// The server starts without the one of the settings, for this reason.
    Failed(String),
}

/// Locks the journal of the settings.
///
/// # Errors
/// A journal that is required cannot be locked or written, has no space, or was written by a newer version.
pub(crate) fn lock_journal(settings: &Settings) -> Result<OpenedJournal, Failure> {
    let journal = &settings.journal;
    let is_required = journal.is_required();
    let path = match journal.place(settings.server.bind) {
        JournalPlace::Directory(path) => path,
        JournalPlace::Off => {
            tracing::info!("durable streams are off: journal.directory is empty");
            return Ok(OpenedJournal::Off);
        }
        JournalPlace::NoDefault(why) if is_required => {
            return Err(Failure::user(format!(
                "journal.required is true, but there is no default directory: {why}; set journal.directory"
            )));
        }
        JournalPlace::NoDefault(why) => {
            tracing::info!("durable streams are off: {why}, so journal.directory has no default");
            return Ok(OpenedJournal::Off);
        }
    };
    match journal::lock_journal(JournalDirectory::new(path), journal.config()) {
        Ok(locked) => Ok(OpenedJournal::Locked(locked)),
        Err(why) => start_without(&why, is_required),
    }
}

/// Bytes of all images that durable streams keep in the journal's directory.
const BLOB_BYTES_MAX: u64 = 512 << 20;

/// The images of durable streams in the directory of the locked journal. Without them, streams with images are not durable.
pub(crate) fn open_blobs(settings: &Settings) -> Option<BlobStore> {
    let JournalPlace::Directory(path) = settings.journal.place(settings.server.bind) else {
        return None;
    };
    let opened = BlobStore::open(&path, BLOB_BYTES_MAX);
    let failed = |why: &io::Error| {
        let place = path.join(BLOBS_NAME);
        tracing::error!(
            "streams with images are not durable: {}: {why}",
            place.display()
        );
    };
    opened.inspect_err(failed).ok()
}

/// Names this instance in the directory of the locked journal. Returns the instance that was named: it has ended.
pub(crate) fn exchange_instance(settings: &Settings, id: InstanceId) -> Option<InstanceId> {
    let JournalPlace::Directory(path) = settings.journal.place(settings.server.bind) else {
        return None;
    };
    let path = path.join(INSTANCE_NAME);
    let before = private_files::open_to_read(&path).and_then(|file| {
        let mut text = String::new();
        file.take(INSTANCE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    });
    if let Err(why) = write_mark(&path, &id.to_string()) {
        // The next process waits for heartbeats instead.
        tracing::warn!("{}: {why}", path.display());
    }
    before.ok()?.trim().parse().ok()
}

/// Writes a small file into the directory of the locked journal.
fn write_mark(path: &Path, text: &str) -> io::Result<()> {
    private_files::create_empty(path)?.write_all(text.as_bytes())
}

/// The file in the directory of the journal that says whether another gateway may own streams of the journal.
pub(crate) struct ReplicationMark(Option<PathBuf>);

impl ReplicationMark {
    /// The mark of the settings' journal.
    pub(crate) fn of(settings: &Settings) -> Self {
        let place = settings.journal.place(settings.server.bind);
        Self(match place {
            JournalPlace::Directory(path) => Some(path.join(REPLICATED_NAME)),
            JournalPlace::Off | JournalPlace::NoDefault(_) => None,
        })
    }

    /// Whether an earlier process has set the mark.
    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|path| path.exists())
    }

    /// Sets the mark.
    pub(crate) fn set(&self) {
        if let Some(path) = &self.0
            && let Err(why) = write_mark(path, "")
        {
            // The next process of this journal would go on with its streams before it knows that it owns them.
            tracing::error!("{}: {why}", path.display());
        }
    }
}

/// The file in the journal's directory with the id of the cluster.
pub(crate) fn cluster_file(settings: &Settings) -> Option<PathBuf> {
    match settings.journal.place(settings.server.bind) {
        JournalPlace::Directory(path) => Some(path.join(CLUSTER_NAME)),
        JournalPlace::Off | JournalPlace::NoDefault(_) => None,
    }
}

/// A required journal ends the start; without another one the server starts, and streams end with the process.
fn start_without(why: &StartError, is_required: bool) -> Result<OpenedJournal, Failure> {
    if is_required {
        return Err(Failure::user(format!(
            "{why}; or set journal.required: false to start without durable streams"
        )));
    }
    tracing::error!("no stream of this process is durable: {why}");
    Ok(OpenedJournal::Failed(why.to_string()))
}
