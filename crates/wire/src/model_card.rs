//! The description of a model in model lists, for all protocols.

use text::Capabilities;

/// One model of a model list.
pub struct ModelCard {
    /// Name of the model.
    pub name: String,
    /// Time of creation.
    pub created_unix_s: i64,
    /// Context length in tokens, for prompt and answer together; only of a loaded model.
    pub context_max: Option<usize>,
    /// Template capabilities; only of a loaded model.
    pub capabilities: Option<Capabilities>,
    /// What the model is for: `text`, `embedding` or `rerank`; absent until the file was read.
    pub kind: Option<&'static str>,
    /// What the model can do, with the names of Ollama's API; absent of a model for text that is not loaded.
    pub abilities: Option<Vec<&'static str>>,
    /// Engines of other processes that compute for the model now; `None`: the engine is in this process.
    pub engines: Option<usize>,
    /// Base model and file of an adapter.
    pub adapter: Option<AdapterCard>,
    /// State of a model that is not loaded.
    pub state: Option<&'static str>,
}

/// Base of an adapter in a model list.
pub struct AdapterCard {
    /// Name of the base model.
    pub parent: String,
    /// Name of the file or folder; only of a loaded model.
    pub root: Option<String>,
}
