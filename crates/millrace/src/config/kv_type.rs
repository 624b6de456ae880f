//! Data types of the KV cache, by their names in files and flags.

use kernels::KvKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data type of the KV cache.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
pub(crate) enum KvType {
    /// 2 bytes per element.
    #[default]
    #[serde(rename = "f16")]
    #[value(name = "f16")]
    F16,
    /// 8 bits per element and an f16 scale for each 32: 1.06 bytes.
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits per element and an f16 scale for each 32: 0.56 bytes.
    #[serde(rename = "q4_0")]
    #[value(name = "q4_0")]
    Q4,
}

impl From<KvType> for KvKind {
    fn from(kind: KvType) -> Self {
        match kind {
            KvType::F16 => Self::F16,
            KvType::Q8 => Self::Q8_0,
            KvType::Q4 => Self::Q4_0,
        }
    }
}
