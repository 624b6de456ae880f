//! The journal's files in a directory of the operating system.

use crate::segment::SegmentName;
use crate::space::RESERVE_NAME;
use std::fmt::Debug;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;

/// The file that the process which uses the journal has locked.
const LOCK_NAME: &str = "lock";

/// Directory entries that are examined.
const FILES_MAX: usize = 65_536;

/// File in which the holder of the lock may name itself, for the next one.
pub const INSTANCE_NAME: &str = "instance";
/// File that says that records of the journal's streams may be at other machines, too; see the crate `cluster`.
pub const REPLICATED_NAME: &str = "replicated";
/// File with the name and the id of the cluster that the owner of the directory belongs to.
pub const CLUSTER_NAME: &str = "cluster";

/// A directory with mode 0700 and files with mode 0600; on Windows with the permissions of the directory above.
#[derive(Clone, Debug)]
pub struct JournalDirectory {
    path: PathBuf,
    is_read_only: bool,
}

impl JournalDirectory {
    /// The directory at `path`; created when the journal is locked.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_read_only: false,
        }
    }

    /// The directory at `path`, whose files are only read: every call that would change the disk fails.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_read_only: true,
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_read_only {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        } else {
            Ok(())
        }
    }

    /// Rejects a directory with files of others, whose mode must not be changed: a home, or a directory for temporary
    /// files.
    fn check_contents(&self) -> io::Result<()> {
        for name in self.list_files()? {
            let is_own = [
                LOCK_NAME,
                RESERVE_NAME,
                INSTANCE_NAME,
                REPLICATED_NAME,
                CLUSTER_NAME,
            ]
            .contains(&&*name)
                || SegmentName::parse(&name).is_some();
            if !is_own {
                let why = format!(
                    "contains {name:?}, which is no file of a journal; name an empty directory"
                );
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    /// Makes directory and files this user's alone. On a volume with a group, the system lets that group write to all of them.
    fn make_private(&self) -> io::Result<()> {
        private_files::secure_directory(&self.path)?;
        private_files::make_private(&self.path)?;
        for name in self.list_files()? {
            private_files::close_to_group(&self.path.join(name))?;
        }
        Ok(())
    }
}

impl FileSystem for JournalDirectory {
    type File = File;
    type Lock = File;

    fn lock_journal(&self) -> io::Result<File> {
        self.check_writable()?;
        private_files::create_directory(&self.path)?;
        self.check_contents()?;
        self.make_private()?;
        let file = private_files::open_or_create(&self.path.join(LOCK_NAME))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        Ok(file)
    }

    fn list_files(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)?.take(FILES_MAX) {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_file(&self, name: &str) -> io::Result<File> {
        self.check_writable()?;
        private_files::create_empty(&self.path.join(name))
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        let path = self.path.join(name);
        if self.is_read_only {
            // Of any user: an operator looks into the journal of a service.
            private_files::open_to_inspect(&path)
        } else {
            private_files::open_to_write(&path)
        }
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        private_files::sync_directory(&self.path)
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }
}

impl JournalFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        private_files::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        private_files::write_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn byte_length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// A directory with the files of one journal.
pub trait FileSystem: Debug + Send + Sync + 'static {
    /// An open file.
    type File: JournalFile;
    /// Keeps other processes out until dropped.
    type Lock: Send;

    /// Creates the directory where it is missing and locks the journal.
    ///
    /// # Errors
    /// `WouldBlock` where another process holds the lock.
    fn lock_journal(&self) -> io::Result<Self::Lock>;

    /// Names of all files in the directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list_files(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file for reading and writing; a file of that name is emptied.
    ///
    /// # Errors
    /// As of the operating system.
    fn create_file(&self, name: &str) -> io::Result<Self::File>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// As of the operating system.
    fn open_file(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file; a file of the new name is replaced.
    ///
    /// # Errors
    /// As of the operating system.
    fn rename_file(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As of the operating system.
    fn remove_file(&self, name: &str) -> io::Result<()>;

    /// Waits until created, renamed and removed files are on the disk.
    ///
    /// # Errors
    /// As of the operating system.
    fn sync_directory(&self) -> io::Result<()>;

    /// Where the journal is, for error messages.
    fn location(&self) -> String;
}

/// An open file. Writer and syncing thread share the file.
pub trait JournalFile: Debug + Send + Sync + 'static {
    /// Reads at a place; fewer bytes than the buffer holds are possible, none means the end.
    ///
    /// # Errors
    /// As of the operating system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at a place; fewer bytes than given are possible.
    ///
    /// # Errors
    /// As of the operating system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Waits until the written bytes are on the disk (`fdatasync`).
    ///
    /// # Errors
    /// As of the operating system; what was written before may be lost then.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As of the operating system.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// As of the operating system.
    fn byte_length(&self) -> io::Result<u64>;
}

/// Interrupted or short calls in a row after which a read or a write is given up.
const INTERRUPTIONS_MAX: u32 = 1000;

/// Writes all bytes at a place; short writes are continued.
pub(crate) fn write_fully<F: JournalFile>(
    file: &F,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    let mut interruptions = 0;
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if may_continue(&error, &mut interruptions) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills the buffer from a place on and returns how many bytes there were.
pub(crate) fn read_fully<F: JournalFile>(
    file: &F,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    let mut interruptions = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if may_continue(&error, &mut interruptions) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn may_continue(error: &io::Error, interruptions: &mut u32) -> bool {
    *interruptions += 1;
    error.kind() == io::ErrorKind::Interrupted && *interruptions < INTERRUPTIONS_MAX
}

/// Whether the device or a quota has no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | FileTooLarge | WriteZero
    )
}
