//! Settings of keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::PrefixSharing;
use std::path::PathBuf;

/// API keys. They can also come from the variable `MILLRACE_API_KEYS`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Keys {
    /// API key file, managed by `millrace keys`; reloaded on SIGHUP.
    pub(crate) file: Option<PathBuf>,
    /// Which API keys share the prefix cache. Without keys all callers do.
    pub(crate) prefix_cache: PrefixCache,
}

/// Which keys share cached prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PrefixCache {
    /// Each key has its own: `cached_tokens` and latency reveal nothing about other keys' prompts.
    #[default]
    PerKey,
    /// All keys share them: a common system prompt is computed once.
    Shared,
}

impl PrefixCache {
    /// The server's type for this value.
    pub(crate) fn sharing(self) -> PrefixSharing {
        match self {
            Self::PerKey => PrefixSharing::PerKey,
            Self::Shared => PrefixSharing::Shared,
        }
    }
}
