//! Files and a directory that only their owner reads and writes.
//!
//! Prompts are private to the owner of the files. Windows has no modes: there they have the permissions of the directory
//! above, which in a user's profile are the user's own.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
mod of_system {
    use super::{File, OpenOptions, Path, io};
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};

    const FILE_MODE: u32 = 0o600;
    const DIRECTORY_MODE: u32 = 0o700;
    /// Whoever writes to the directory decides what prompts are read as.
    const OTHERS_WRITE: u32 = 0o022;

    pub(in super::super) fn writing_options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(FILE_MODE);
        options
    }

    /// # Errors
    /// The directory cannot be made, or other users may write to it.
    pub(in super::super) fn create_directory(path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(path)?;
        match std::fs::metadata(path)?.permissions().mode() & OTHERS_WRITE {
            0 => Ok(()),
            _ => Err(io::Error::other("other users may write to the directory")),
        }
    }

    pub(in super::super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
}

#[cfg(windows)]
mod of_system {
    use super::{File, OpenOptions, Path, io};
    use std::os::windows::fs::FileExt;

    pub(in super::super) fn writing_options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options
    }

    pub(in super::super) fn create_directory(path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    pub(in super::super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(bytes, offset)
    }
}

pub(super) use of_system::*;
