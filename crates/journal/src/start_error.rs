//! Why a journal cannot be used: one line with the place, the cause and what to do.

use crate::file_system::is_full;
use std::fmt;
use std::io;

/// A journal that cannot be opened.
#[derive(Debug)]
pub enum StartError {
    /// Another process uses the journal.
    Locked {
        /// The directory.
        location: String,
    },
    /// The directory cannot be created, locked or written.
    Unwritable {
        /// The directory.
        location: String,
        /// The cause.
        source: io::Error,
    },
    /// The disk has no space for the first segment and the reserve.
    Full {
        /// The directory.
        location: String,
        /// Bytes that are needed.
        needed_bytes: u64,
    },
    /// A newer version wrote the journal.
    NewerVersion {
        /// The directory.
        location: String,
        /// The segment.
        segment: String,
        /// Version of the layout.
        version: u32,
    },
    /// The directory cannot be listed.
    Unlisted {
        /// The directory.
        location: String,
        /// The cause.
        source: io::Error,
    },
    /// A segment cannot be opened.
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

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { location } => write!(
                f,
                "journal {location}: another process uses the directory; stop that process, or set another \
                 journal.directory"
            ),
            Self::Unwritable { location, source }
                if source.kind() == io::ErrorKind::InvalidData =>
            {
                write!(
                    f,
                    "journal {location}: cannot be used ({source}); see docs/journal.md, or set another \
                     journal.directory"
                )
            }
            Self::Unwritable { location, source } => write!(
                f,
                "journal {location}: cannot be written ({source}); make the directory writable for this user, or set \
                 another journal.directory"
            ),
            Self::Full {
                location,
                needed_bytes,
            } => write!(
                f,
                "journal {location}: the disk is full; free at least {needed_bytes} bytes, or set another \
                 journal.directory"
            ),
            Self::NewerVersion {
                location,
                segment,
                version,
            } => write!(
                f,
                "journal {location}: {segment} has version {version}, this program reads version {}; use the newer \
                 program, or set another journal.directory",
                crate::frame::LAYOUT_VERSION
            ),
            Self::Unlisted { location, source } => write!(
                f,
                "journal {location}: the directory cannot be read ({source}); name a directory that this user may read"
            ),
            Self::Unreadable {
                location,
                segment,
                source,
            } => write!(
                f,
                "journal {location}: {segment} cannot be opened ({source}); make the file readable for this user, or \
                 remove it"
            ),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unwritable { source, .. }
            | Self::Unlisted { source, .. }
            | Self::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}
