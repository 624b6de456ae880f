//! Names and keys of cached files.
//!
//! A stale file is never used, because the key contains what changes with the model's files: of each file the length, the
//! time of the last write and the time of the last change, which no program can set, taken from the opened file before a byte is
//! read. A file that was changed less than [`SETTLED_NS`] before the load is packed and not cached: a second change within
//! one tick of the file system's clock would leave the stamp as it is. The digest of the content (all hyperparameters,
//! and 64 KiB of each tensor) is in the key as well, for file systems whose times cannot be trusted.
//!
//! Names and paths are not in the key, so a model that is reached by several paths has one file.

use crate::model_files::{PartsDigest, weights_digest};
use kernels::{Isa, packing_fingerprint};
use std::sync::OnceLock;
use weights::packed_file::{PackedKey, TENSORS_VERSION};
use weights::{FileStamp, ModelFiles};

/// Time since the last change of a file after which another change has another stamp: the coarsest clock of a file system is
/// that of FAT, two seconds.
const SETTLED_NS: i128 = 3_000_000_000;
/// Hexadecimal digits of the two parts of a name.
const SOURCE_DIGITS: usize = 16;
const KEY_DIGITS: usize = 32;
/// Ending of a complete file.
pub(super) const ENDING: &str = "packed";

/// The first part of the names of all cached files of a model: a digest of its files' stamps.
pub(super) struct SourceName(String);

impl SourceName {
    /// `None` for a model that is in no file.
    pub(super) fn of(files: &ModelFiles) -> Option<Self> {
        Some(Self::of_stamps(&files.stamps()?))
    }

    fn of_stamps(stamps: &[FileStamp]) -> Self {
        let mut digest = PartsDigest::new();
        for stamp in stamps {
            digest.add(&stamp.encoded());
        }
        let mut name = digest.finish();
        name.truncate(SOURCE_DIGITS);
        Self(name)
    }

    /// Whether a cached file of this name is of the model.
    pub(super) fn is_of(&self, name: &str) -> bool {
        name.split_once('-').is_some_and(|parts| parts.0 == self.0)
    }
}

/// Name and key of the cached file of a model with the settings of a load.
#[derive(Clone, Debug)]
pub(super) struct FileKey {
    /// The name without ending.
    pub(super) name: String,
    pub(super) key: PackedKey,
    /// Whether the model's files have not been changed for some time.
    pub(super) is_settled: bool,
}

impl FileKey {
    /// `None` for a model that is in no file. `has_mtp`: the MTP head is loaded, too. `now_unix_s` is the time of the load.
    pub(super) fn of(files: &ModelFiles, isa: Isa, has_mtp: bool, now_unix_s: i64) -> Option<Self> {
        static FINGERPRINT: OnceLock<u64> = OnceLock::new();
        let stamps = files.stamps()?;
        let mut digest = PartsDigest::new();
        digest.add(env!("CARGO_PKG_VERSION").as_bytes());
        digest.add(&FINGERPRINT.get_or_init(packing_fingerprint).to_le_bytes());
        digest.add(isa.packed_layout().as_bytes());
        digest.add(&TENSORS_VERSION.to_le_bytes());
        digest.add(&[u8::from(has_mtp)]);
        for stamp in &stamps {
            digest.add(&stamp.encoded());
        }
        // With the formats after quantization at load.
        digest.add(weights_digest(files).as_bytes());
        let mut hex = digest.finish();
        hex.truncate(KEY_DIGITS);
        let now_ns = i128::from(now_unix_s) * 1_000_000_000;
        let is_settled = |stamp: &FileStamp| now_ns - stamp.changed_ns >= SETTLED_NS;
        Some(Self {
            name: format!("{}-{hex}", SourceName::of_stamps(&stamps).0),
            key: PackedKey(digest.bytes()),
            is_settled: stamps.iter().all(is_settled),
        })
    }
}
