//! A model as the lists of all protocols describe it.

use text::Capabilities;

/// One model of a list.
pub struct ModelCard {
    /// Name of the model.
    pub name: String,
    /// Time of creation.
    pub created_unix_s: i64,
    /// Tokens that prompt and answer may have together; of a model that is ready.
    pub context_max: Option<usize>,
    /// What the chat template supports; of a model that is ready.
    pub capabilities: Option<Capabilities>,
    /// State of a model that is not ready.
    pub state: Option<&'static str>,
}
