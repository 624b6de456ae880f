//! Files of systems without modes: only links and directories are refused.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

/// Creates a directory, and those above it that are missing.
///
/// # Errors
/// As of the operating system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Without effect.
///
/// # Errors
/// None.
pub fn secure_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Without effect.
///
/// # Errors
/// None.
pub fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Without effect.
///
/// # Errors
/// None.
pub fn close_to_group(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Without effect.
///
/// # Errors
/// None.
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens a file for reading.
///
/// # Errors
/// Not a regular file, or as of the operating system.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// As [`open_to_read`].
///
/// # Errors
/// As [`open_to_read`].
pub fn open_to_inspect(path: &Path) -> io::Result<File> {
    open_to_read(path)
}

/// Opens a file for reading and writing.
///
/// # Errors
/// Not a regular file, or as of the operating system.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true))
}

/// Opens a file for reading and writing; creates it if none is there.
///
/// # Errors
/// Not a regular file, or as of the operating system.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    open(path, &options)
}

/// Creates an empty file for reading and writing; a file of that name is emptied.
///
/// # Errors
/// Not a regular file, or as of the operating system.
pub fn create_empty(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Creates a file for reading and writing.
///
/// # Errors
/// A file of that name is there, or as of the operating system.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).open(path)
}

/// Reads at a position; fewer bytes than the buffer holds are possible, none means the end.
///
/// # Errors
/// As of the operating system.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

/// Writes at a position; fewer bytes than given are possible.
///
/// # Errors
/// As of the operating system.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a regular file",
        )),
        _ => options.open(path),
    }
}
