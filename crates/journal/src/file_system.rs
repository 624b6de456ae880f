//! Files of a journal as a trait: the real directory, and a model of a disk in tests.

use std::fmt::Debug;
use std::io;

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
