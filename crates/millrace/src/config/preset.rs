//! Presets: named settings for a kind of use, as a layer between the defaults and the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Defaults for a kind of use. Explicit settings take precedence.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Preset {
    /// One developer on a workstation, with clients stopped in debuggers.
    Dev,
    /// Interactive chat, over connections that may break.
    Chat,
    /// Offline work: throughput before latency.
    Batch,
    /// A public API: many programs, early rejection under load.
    Api,
    /// A small machine with little memory and few processors.
    Constrained,
}

impl Preset {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Dev,
        Self::Chat,
        Self::Batch,
        Self::Api,
        Self::Constrained,
    ];

    /// The preset's name in a settings file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Chat => "chat",
            Self::Batch => "batch",
            Self::Api => "api",
            Self::Constrained => "constrained",
        }
    }

    /// The preset's settings by section, from a configuration file with reasons as comments.
    pub(crate) fn layer(self) -> Result<Map<String, Value>, String> {
        super::file::parse(self.text()).map_err(|why| format!("preset {}: {why}", self.name()))
    }

    fn text(self) -> &'static str {
        match self {
            Self::Dev => include_str!("presets/dev.yaml"),
            Self::Chat => include_str!("presets/chat.yaml"),
            Self::Batch => include_str!("presets/batch.yaml"),
            Self::Api => include_str!("presets/api.yaml"),
            Self::Constrained => include_str!("presets/constrained.yaml"),
        }
    }
}
