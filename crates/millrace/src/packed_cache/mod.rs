//! Packed weights of earlier loads, in files of a directory: a second load of a model copies them, or maps them, and packs
//! nothing.
//!
//! ```text
//! directory  names and keys of files, eviction, leftovers      writer     the thread that writes a file
//! ```
//!
//! A file is found by its key, which the file repeats: the digest of the model's content, of the files' stamps, and of all that
//! decides the packed bytes. A file appears under its name only when it is complete and synced. An error of the cache
//! is a warning in the log, and the model is packed as without a cache.

mod directory;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use writer::CacheWriter;

use crate::config::Settings;
use directory::{CacheDirectory, FileKey, SourceName};
use kernels::Isa;
use std::io;
use std::path::{Path, PathBuf};
use weights::packed_file::{PackedFile, PackedReading};
use weights::{ModelFiles, PackedSections};

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

/// A load, from before the first tensor to after the last.
pub(crate) struct CachedLoad {
    /// Packed matrices, for the load.
    pub(crate) sections: PackedSections,
    /// Where a new file goes; `None`: nothing is written.
    target: Option<(PackedCache, FileKey)>,
}

impl CachedLoad {
    /// A load without a cache.
    fn without() -> Self {
        Self {
            sections: PackedSections::none(),
            target: None,
        }
    }

    /// Looks for the packed weights of a model, as the settings say.
    pub(crate) fn begin(
        settings: &Settings,
        files: &ModelFiles,
        (isa, has_mtp): (Isa, bool),
        now_unix_s: i64,
    ) -> Self {
        match PackedCache::of(settings) {
            Some(cache) => cache.begin(files, (isa, has_mtp), now_unix_s),
            None => Self::without(),
        }
    }

    /// Whether all matrices came from the cache.
    pub(crate) fn is_from_cache(&self) -> bool {
        self.sections.are_read()
    }

    /// Starts to write what was packed, if something was.
    pub(crate) fn end(self) -> Option<CacheWriter> {
        let (cache, key) = self.target?;
        let (read, packed) = (self.sections.read(), self.sections.packed());
        if packed == 0 {
            return None;
        }
        if read > 0 {
            tracing::warn!(
                "packed cache: {packed} of {} sections of {} were damaged or missing and were packed again",
                read + packed,
                cache.directory.file(&key.name).display()
            );
        }
        let sections = self.sections.into_kept();
        CacheWriter::start(cache.directory, key, sections, read > 0)
    }
}

impl PackedCache {
    /// As [`CachedLoad::begin`].
    fn begin(
        &self,
        files: &ModelFiles,
        (isa, has_mtp): (Isa, bool),
        now_unix_s: i64,
    ) -> CachedLoad {
        let Some(reading) = self.reading else {
            return CachedLoad::without();
        };
        let bytes: u64 = files.tensors().iter().map(|tensor| tensor.bytes).sum();
        if bytes < self.model_bytes_min {
            return CachedLoad::without();
        }
        let Some(key) = FileKey::of(files, isa, has_mtp, now_unix_s) else {
            return CachedLoad::without();
        };
        let file = match self.directory.is_usable() {
            Ok(true) => {
                self.directory.remove_leftovers();
                self.open_file(&key, reading, now_unix_s)
            }
            Ok(false) => None,
            Err(why) => {
                tracing::warn!(
                    "packed cache: {}: {why}; the model is packed, and not cached",
                    self.path().display()
                );
                return CachedLoad::without();
            }
        };
        let is_too_large = bytes > self.directory.bytes_max;
        if is_too_large {
            tracing::info!(
                "not cached: {} MiB are more than models.packed_cache_gib allows",
                bytes >> 20
            );
        }
        if !key.is_settled && file.is_none() {
            tracing::info!(
                "not cached: the model's files have just been written; the next load caches them"
            );
        }
        let is_written = key.is_settled && !is_too_large;
        CachedLoad {
            sections: PackedSections::new(file, is_written),
            target: is_written.then(|| (self.clone(), key)),
        }
    }

    /// The file of a key; removed if it is damaged, or others may have written it.
    fn open_file(
        &self,
        key: &FileKey,
        reading: PackedReading,
        now_unix_s: i64,
    ) -> Option<PackedFile> {
        let path = self.directory.file(&key.name);
        let why = match private_files::open_to_read(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return None,
            Err(why) => format!(": {why}"),
            Ok(file) => match PackedFile::open(&file, &key.key, reading) {
                Ok(opened) => {
                    self.directory.touch(&path, now_unix_s);
                    return Some(opened);
                }
                Err(why) => format!(" {why}"),
            },
        };
        tracing::warn!(
            "packed cache: {}{why}; the model is packed again",
            path.display()
        );
        // Otherwise the next file would be taken for this one, and not be written.
        _ = std::fs::remove_file(&path);
        None
    }
}
