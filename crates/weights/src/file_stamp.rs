//! Size and times of a file, which change with its content.

use std::fs::Metadata;
use std::path::Path;

/// Size and times of a file. Every write to a file, and every file that takes another one's name, has another time of change:
/// that time is the system's, and no program can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the last write, in nanoseconds since the Unix epoch.
    pub modified_ns: i128,
    /// Time of the last change of content, name, owner or times; on systems without one, that of the last write.
    pub changed_ns: i128,
}

impl FileStamp {
    /// The stamp in a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let (modified_ns, changed_ns) = times(metadata);
        Self {
            bytes: metadata.len(),
            modified_ns,
            changed_ns,
        }
    }

    /// The stamp of the file of this path; `None` if there is none.
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(Self::of(&std::fs::metadata(path).ok()?))
    }

    /// The stamp as bytes, for digests.
    pub fn encoded(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.modified_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.changed_ns.to_le_bytes());
        bytes
    }
}

#[cfg(unix)]
fn times(metadata: &Metadata) -> (i128, i128) {
    use std::os::unix::fs::MetadataExt;
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    (
        ns(metadata.mtime(), metadata.mtime_nsec()),
        ns(metadata.ctime(), metadata.ctime_nsec()),
    )
}

#[cfg(not(unix))]
fn times(metadata: &Metadata) -> (i128, i128) {
    let modified = metadata.modified().ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let ns = since.map_or(0, |since| since.as_nanos() as i128);
    (ns, ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::folder::Folder;

    #[test]
    fn written_and_replaced_files_have_other_stamps() {
        let folder = Folder::new("file-stamp");
        let path = folder.0.join("a");
        std::fs::write(&path, "one").unwrap();
        let first = FileStamp::of_path(&path).unwrap();
        assert_eq!(FileStamp::of_path(&path), Some(first));
        std::fs::write(&path, "three").unwrap();
        let longer = FileStamp::of_path(&path).unwrap();
        assert_ne!(longer, first);
        assert_ne!(longer.encoded(), first.encoded());
        assert_eq!(FileStamp::of_path(&folder.0.join("b")), None);
    }

    #[test]
    #[cfg(unix)]
    fn time_of_change_moves_where_the_time_of_writing_is_set_back() {
        let folder = Folder::new("file-stamp-back");
        let path = folder.0.join("a");
        std::fs::write(&path, "one").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        file.set_modified(long_ago).unwrap();
        let stamp = FileStamp::of_path(&path).unwrap();
        assert_eq!(stamp.modified_ns, 1_000_000_000_000_000_000);
        assert!(stamp.changed_ns > stamp.modified_ns);
    }
}
