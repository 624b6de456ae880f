//! Settings of workflows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Generation programs (`/v1/workflows`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workflows {
    /// A folder whose `*.json` files clients may run, by their names without the ending. They are read when they are asked for.
    pub(crate) folder: Option<PathBuf>,
}
