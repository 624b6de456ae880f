//! Files and directories that only their owner reads, and reading and writing at a position.
//!
//! Prompts and answers are private to the owner of the files. Windows has no modes: there they have the permissions of the
//! directory above, which in a user's profile are the user's own. Nor can a directory be synced there: a rename is
//! durable when the file system has written its own journal.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
mod of_system {
    use super::{File, OpenOptions, Path, io};
    use std::fs::{DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};

    const FILE_MODE: u32 = 0o600;
    const DIRECTORY_MODE: u32 = 0o700;

    pub(crate) fn writing_options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(FILE_MODE);
        options
    }

    pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(path)
    }

    pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
        std::fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
    }

    pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
}

#[cfg(windows)]
mod of_system {
    use super::{File, OpenOptions, Path, io};
    use std::os::windows::fs::FileExt;

    pub(crate) fn writing_options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options
    }

    pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    pub(crate) fn make_private(_: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn sync_directory(_: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.seek_read(buffer, offset)
    }

    pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(bytes, offset)
    }
}

pub(crate) use of_system::*;
