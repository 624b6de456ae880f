//! Settings of the prompt cache on disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Bytes of a GiB.
const GIB: u64 = 1 << 30;

/// The prompt cache on disk: prefixes of prompts that were used before are read after a restart instead of computed (docs/scheduling.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PromptCache {
    /// Maximum size of the prompt cache on disk; 0 = off. Prompts of users are then on the disk, readable for the owner of the process only. For the model that the server was started with; not with recurrent layers.
    #[schemars(
        range(min = 0, max = 1_u64 << 20),
        extend("x-reload" = "restart", "x-reason" = "prompts of users are not written to a disk unless the operator wants it")
    )]
    pub(crate) disk_gib: u64,
    /// Directory of the prompt cache on disk, used by one process at a time. Default: `millrace/prompts` in the user's cache (`$XDG_CACHE_HOME` or `~/.cache`).
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a cache may be lost, so it is next to the downloaded models"))]
    pub(crate) disk_directory: Option<PathBuf>,
}

impl PromptCache {
    /// Maximum bytes on disk; `None`: off.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        (self.disk_gib > 0).then(|| self.disk_gib.saturating_mul(GIB))
    }

    /// The directory, from the setting or from the environment; `None`: neither names one.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.directory_with(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn directory_with(&self, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        if let Some(directory) = &self.disk_directory {
            return Some(directory.clone());
        }
        // The base directory specification ignores relative paths.
        let absolute = |name| variable(name).filter(|path| path.is_absolute());
        let of_home = || Some(absolute("HOME")?.join(Path::new(".cache")));
        let cache = absolute("XDG_CACHE_HOME").or_else(of_home)?;
        Some(cache.join("millrace/prompts"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_the_setting_or_in_the_users_cache() {
        let rows = [
            (Some("/p"), Some("/c"), Some("/h"), Some("/p")),
            (None, Some("/c"), Some("/h"), Some("/c/millrace/prompts")),
            (
                None,
                Some("c"),
                Some("/h"),
                Some("/h/.cache/millrace/prompts"),
            ),
            (None, None, None, None),
        ];
        for (set, cache, home, expected) in rows {
            let settings = PromptCache {
                disk_directory: set.map(PathBuf::from),
                ..PromptCache::default()
            };
            let variable = |name: &str| {
                let value = if name == "HOME" { home } else { cache };
                value.map(PathBuf::from)
            };
            let found = settings.directory_with(variable);
            assert_eq!(
                found,
                expected.map(PathBuf::from),
                "{set:?} {cache:?} {home:?}"
            );
        }
    }

    #[test]
    fn cache_is_off_unless_it_has_a_size() {
        let sized = |disk_gib| PromptCache {
            disk_gib,
            ..PromptCache::default()
        };
        assert_eq!(PromptCache::default().disk_bytes(), None);
        assert_eq!(sized(3).disk_bytes(), Some(3 << 30));
    }
}
