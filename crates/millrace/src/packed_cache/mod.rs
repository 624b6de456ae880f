//! Packed weights of earlier loads, in files of a directory: a second load of a model copies them, or maps them, and packs
//! nothing.
//!
//! ```text
//! key      name and key of a model's file         directory  files, eviction, leftovers
//! load     one load beside the cache              writer     the thread that writes a file
//! ```
//!
//! A file is found by its key, which the file repeats: the digest of the model's content, of the files' stamps, and of all that
//! decides the packed bytes. A file appears under its name only when it is complete and synced. An error of the cache
//! is a warning in the log, and the model is packed as without a cache.

mod directory;
mod key;
mod load;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use load::CachedLoad;
pub(crate) use writer::CacheWriter;

use crate::config::Settings;
use directory::CacheDirectory;
use key::SourceName;
use std::path::{Path, PathBuf};
use weights::ModelFiles;
use weights::packed_file::PackedReading;

/// Models of fewer bytes are not cached: packing them takes less than a tenth of a second.
const MODEL_BYTES_MIN: u64 = 64 << 20;

/// The cache of packed weights of this user.
#[derive(Clone, Debug)]
pub(crate) struct PackedCache {
    directory: CacheDirectory,
    /// `None`: nothing is read or written.
    reading: Option<PackedReading>,
    /// Models of fewer bytes are not cached.
    model_bytes_min: u64,
}

impl PackedCache {
    /// The cache of the settings; `None` if neither a setting nor the environment names a directory.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let models = &settings.models;
        Some(Self {
            directory: CacheDirectory {
                path: models.packed_cache_directory()?,
                bytes_max: models.packed_cache_gib << 30,
            },
            reading: models.packed_cache.reading(),
            model_bytes_min: MODEL_BYTES_MIN,
        })
    }

    /// Whether the settings use the cache.
    pub(crate) fn is_used(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether the packed weights of a model of so many bytes are written to the disk.
    pub(crate) fn holds(&self, model_bytes: u64) -> bool {
        self.is_used() && model_bytes >= self.model_bytes_min
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.directory.path
    }

    /// Limit of the bytes of all files.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.directory.bytes_max
    }

    /// Number and bytes of the files.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let files = self.directory.packed();
        (files.len(), files.iter().map(|file| file.bytes).sum())
    }

    /// The cached files of a model, for all settings.
    pub(crate) fn files_of(&self, files: &ModelFiles) -> Vec<PathBuf> {
        let Some(source) = SourceName::of(files) else {
            return Vec::new();
        };
        let all = self.directory.packed().into_iter();
        let own = all.filter(|file| source.is_of(&file.name));
        own.map(|file| self.directory.path.join(file.name))
            .collect()
    }

    /// Removes the cached files of a model. Failures are logged: the bound of the directory removes what stays.
    pub(crate) fn remove(&self, files: &ModelFiles) {
        for path in self.files_of(files) {
            match std::fs::remove_file(&path) {
                Ok(()) => tracing::debug!("removed {}", path.display()),
                Err(why) => tracing::warn!("packed cache: {}: {why}", path.display()),
            }
        }
    }
}
