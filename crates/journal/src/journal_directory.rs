//! The journal's files in a directory of the operating system.

use crate::blob_store::BLOBS_NAME;
use crate::file_system::{FileSystem, JournalFile};
use crate::reserve::RESERVE_NAME;
use crate::segment::SegmentName;
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
                BLOBS_NAME,
            ]
            .contains(&&*name)
                || SegmentName::parse(&name).is_some();
            if !is_own {
                let why = format!(
                    "contains {name:?}, which is no file of a journal; name an empty directory"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        Ok(())
    }

    /// Makes directory and files this user's alone. On a volume with a group, the system lets that group write to all of them.
    fn make_private(&self) -> io::Result<()> {
        private_files::secure_directory(&self.path)?;
        private_files::make_private(&self.path)?;
        for name in self.list_files()? {
            private_files::close_to_group(&self.path.join(&name))
                .map_err(|why| named(&name, why))?;
        }
        Ok(())
    }
}

/// The error with the name of the file, where the file was refused and the system's error does not tell which.
fn named(name: &str, error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::InvalidData {
        io::Error::new(error.kind(), format!("{name}: {error}"))
    } else {
        error
    }
}

impl FileSystem for JournalDirectory {
    type File = File;
    type Lock = File;

    fn lock_journal(&self) -> io::Result<File> {
        self.check_writable()?;
        private_files::create_directory(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(
                io::ErrorKind::InvalidData,
                "a file is there that is no directory",
            ),
            _ => error,
        })?;
        self.check_contents()?;
        self.make_private()?;
        let lock = private_files::open_or_create(&self.path.join(LOCK_NAME));
        let file = lock.map_err(|why| named(LOCK_NAME, why))?;
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
        private_files::create_empty(&self.path.join(name)).map_err(|why| named(name, why))
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
