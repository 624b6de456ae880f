//! Files with secrets: readable by their owner only, and replaced as a whole. Windows has no modes: there they have the
//! permissions of their folder, which in a user's profile are the user's own, and a folder cannot be synced.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// A new file, for writing.
///
/// # Errors
/// A file with this name is there, or none can be made.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Gives a new file the owner of the one that it replaces: the server may run as another user than the one that edits.
pub(crate) fn keep_owner(old: &Metadata, new: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let made = new.metadata()?;
        if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
            fchown(new, Some(old.uid()), Some(old.gid()))?;
        }
    }
    #[cfg(not(unix))]
    let _ = (old, new);
    Ok(())
}

/// Whether every user can change the file.
pub(crate) fn is_writable_by_all(metadata: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::mode(metadata) & 0o002 != 0;
    #[cfg(not(unix))]
    {
        let _ = metadata;
        false
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return File::open(folder)?.sync_all();
    #[cfg(not(unix))]
    {
        let _ = folder;
        Ok(())
    }
}
