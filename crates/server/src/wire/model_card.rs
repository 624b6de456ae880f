//! A model as the lists of all protocols describe it.

use text::Capabilities;

/// One model of a list.
pub(crate) struct ModelCard {
    pub(crate) name: String,
    pub(crate) created_unix_s: i64,
    /// Tokens that prompt and answer may have together; of a model that is ready.
    pub(crate) context_max: Option<usize>,
    /// What the chat template supports; of a model that is ready.
    pub(crate) capabilities: Option<Capabilities>,
    /// State of a model that is not ready.
    pub(crate) state: Option<&'static str>,
}
