//! Why a journal cannot be used: one line with the place, the cause and what to do.

use crate::file_system::is_full;
use std::io;

/// A journal that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process uses the journal.
    #[error(
        "journal {location}: another process uses the directory; stop that process, or set another \
         journal.directory"
    )]
    Locked {
        /// The directory.
        location: String,
    },
    /// The directory cannot be created, locked or written.
    #[error("journal {location}: {}", write_problem(.source))]
    Unwritable {
        /// The directory.
        location: String,
        /// The cause.
        source: io::Error,
    },
    /// The disk has no space for the first segment and the reserve.
    #[error(
        "journal {location}: the disk is full; free at least {needed_bytes} bytes, or set another journal.directory"
    )]
    Full {
        /// The directory.
        location: String,
        /// Bytes that are needed.
        needed_bytes: u64,
    },
    /// A newer version wrote the journal.
    #[error(
        "journal {location}: {segment} has version {version}, this program reads version {}; use the newer \
         program, or set another journal.directory",
        crate::frame::LAYOUT_VERSION
    )]
    NewerVersion {
        /// The directory.
        location: String,
        /// The segment.
        segment: String,
        /// Version of the layout.
        version: u32,
    },
    /// The directory cannot be listed.
    #[error(
        "journal {location}: the directory cannot be read ({source}); name a directory that this user may read"
    )]
    Unlisted {
        /// The directory.
        location: String,
        /// The cause.
        source: io::Error,
    },
    /// A segment cannot be opened.
    #[error("journal {location}: {segment} cannot be opened ({source}); {}", read_advice(.source))]
    Unreadable {
        /// The directory.
        location: String,
        /// The segment.
        segment: String,
        /// The cause.
        source: io::Error,
    },
}

impl StartError {
    /// A failure while files were created or written.
    pub(crate) fn from_write(location: String, source: io::Error, needed_bytes: u64) -> Self {
        if is_full(&source) {
            Self::Full {
                location,
                needed_bytes,
            }
        } else {
            Self::Unwritable { location, source }
        }
    }
}

/// What to do about a segment that cannot be opened.
fn read_advice(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::InvalidData {
        "a segment is a regular file of this user that no other user may write: put the right one in its place, or remove it"
    } else {
        "make the file readable for this user, or remove it"
    }
}

/// What is wrong with a directory, and what to do.
fn write_problem(source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::InvalidData {
        format!("cannot be used ({source}); see docs/journal.md, or set another journal.directory")
    } else {
        format!(
            "cannot be written ({source}); make the directory writable for this user, or set another journal.directory"
        )
    }
}
