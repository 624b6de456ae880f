//! Settings of workflows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Workflows (`/v1/workflows`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workflows {
    /// Directory of workflows: clients may run its `*.json` files by their names without the extension.
    pub(crate) folder: Option<PathBuf>,
}
