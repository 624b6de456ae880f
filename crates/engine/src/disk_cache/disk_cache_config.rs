//! Configuration of the prompt cache on disk.

use std::path::PathBuf;

/// Where prefixes of prompts are kept, and for which model.
pub struct DiskCacheConfig {
    /// Directory, created with mode 0700; used by one process at a time.
    pub directory: PathBuf,
    /// Bytes of all files, at most.
    pub bytes_max: u64,
    /// Names the content of the weights and everything else that decides the bits of keys and values. Files under another
    /// name are removed.
    pub identity: String,
    /// Gets warnings for the operator, on the engine thread: a damaged file, a full disk.
    pub warn: Box<dyn Fn(&str) + Send>,
}

/// The prompt cache on disk cannot be used.
#[derive(Debug)]
pub enum DiskCacheError {
    /// Not with this model or configuration, for this reason.
    Unsupported(&'static str),
    /// The directory cannot be used.
    Directory(PathBuf, std::io::Error),
}

impl std::fmt::Display for DiskCacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported(why) => f.write_str(why),
            Self::Directory(path, error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                write!(f, "another process uses {}", path.display())
            }
            Self::Directory(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for DiskCacheError {}
