//! Ways to use packed weights of an earlier load, by their names in files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weights::packed_file::PackedReading;

/// Use of the cache of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PackedCacheUse {
    /// Copied from the cache into memory with huge pages.
    #[default]
    Copy,
    /// Used in the mapped file: several processes share one copy, in small pages.
    Map,
    /// Nothing is cached.
    Off,
}

impl PackedCacheUse {
    /// How a cached file is read; `None`: not at all.
    pub(crate) fn reading(self) -> Option<PackedReading> {
        match self {
            Self::Copy => Some(PackedReading::Copy),
            Self::Map => Some(PackedReading::Map),
            Self::Off => None,
        }
    }
}
