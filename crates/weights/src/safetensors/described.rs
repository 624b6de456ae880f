//! A model as `config.json` describes the model.

use super::family::Family;
use super::recurrent::RecurrentSaved;
use crate::gguf::GgufWriter;

/// A model as `config.json` describes the model.
pub(super) struct ModelDescription {
    pub(super) family: Family,
    /// Whether the embedding is also the vocabulary projection.
    pub(super) tied: bool,
    /// Whether the model was made for embeddings or scores, and may lack the projection.
    pub(super) is_embedding: bool,
    /// Whether the tensors of the text are among those of a model that sees images.
    pub(super) is_nested: bool,
    /// Layers of a tower after which there are rows for further text layers.
    pub(super) deepstack: Vec<u32>,
    pub(super) vocab: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    /// Rows at the beginning of the learned positions that no token has.
    pub(super) padded_positions: usize,
    /// Experts of a layer, where their matrices are stored one below the other.
    pub(super) stacked_experts: usize,
    /// Width of the stream, of a decoder whose experts' matrices may have rows and columns exchanged.
    pub(super) width: u32,
    /// Ids of the answers yes and no, of a decoder that scores documents.
    pub(super) answers: Option<[u32; 2]>,
    /// How tensors of recurrent layers are stored.
    pub(super) recurrent: RecurrentSaved,
    /// Tensors that GGUF has and `config.json` describes: `(name, values)`.
    pub(super) made: Vec<(&'static str, Vec<f32>)>,
    /// The token whose embedding ends a line of a tower's rows.
    pub(super) line_end: Option<u32>,
    /// Tensors that the fields promise, by their names in GGUF.
    pub(super) needs: Vec<String>,
    pub(super) keys: GgufWriter,
}

impl ModelDescription {
    /// A model of this family and these keys, with no more.
    pub(super) fn new(family: Family, keys: GgufWriter) -> Self {
        Self {
            family,
            tied: false,
            is_embedding: false,
            is_nested: false,
            deepstack: Vec::new(),
            vocab: 0,
            heads: 0,
            kv_heads: 0,
            padded_positions: 0,
            stacked_experts: 0,
            width: 0,
            answers: None,
            recurrent: RecurrentSaved::default(),
            made: Vec::new(),
            line_end: None,
            needs: Vec::new(),
            keys,
        }
    }
}
