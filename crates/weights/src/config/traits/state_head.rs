//! What may follow the last layer of a family of embedding and rerank models.

/// The head that hidden states may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateHeadRule {
    /// None.
    Never,
    /// The answers yes and no to whether a document is relevant, in a reranker.
    YesNo,
    /// Dense projections.
    Dense,
}
