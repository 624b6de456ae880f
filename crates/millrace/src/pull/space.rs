//! Free space of the disk that a model is downloaded to.

use indicatif::HumanBytes;
use server::LibraryError;
use std::path::Path;

/// An error if the disk has no room for so many bytes more.
pub(super) fn expect_space(directory: &Path, bytes: u64) -> Result<(), LibraryError> {
    match free_bytes(directory) {
        Some(free) if free < bytes => Err(LibraryError::Failed(format!(
            "the download needs {} more, and the disk of the model directory has {} free: free some, or name a \
             directory of another disk (models.directories, --models-dir)",
            HumanBytes(bytes),
            HumanBytes(free)
        ))),
        _ => Ok(()),
    }
}

/// Bytes that a user may write to the disk of a folder, which may not exist yet; `None`: unknown.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = folder
        .ancestors()
        .find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    // Some network disks do not know their size.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes that a user may write to the disk of a folder; `None`: unknown.
#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::{expect_space, free_bytes};

    #[test]
    fn disk_without_room_is_an_error_with_both_numbers() {
        let folder = std::env::temp_dir().join("millrace-no-such-folder/inner");
        assert!(free_bytes(&folder).is_some_and(|free| free > 0));
        assert_eq!(
            expect_space(&folder, 1).map_err(|why| why.to_string()),
            Ok(())
        );
        let why = expect_space(&folder, 1 << 60).unwrap_err().to_string();
        assert!(why.contains("more, and the disk"), "{why}");
        assert!(why.contains("free: free some"), "{why}");
    }
}
