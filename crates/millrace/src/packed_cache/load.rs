//! One load beside the cache: what it reads, and what is written after it.

use super::key::FileKey;
use super::{CacheWriter, PackedCache};
use crate::config::Settings;
use kernels::Isa;
use std::io;
use weights::packed_file::{PackedFile, PackedReading};
use weights::{ModelFiles, PackedSections};

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
    pub(super) fn begin(
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
