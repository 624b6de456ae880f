//! Kinds of recurrent layers.

/// The recurrent layers of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecurrentRule {
    /// Gated DeltaNet, in the layers of a list, or in all but each `full_attention_interval`-th.
    Delta {
        /// Whether consecutive heads of values have the same key, and decays and rates are in one tensor.
        grouped: bool,
    },
    /// Mamba-2, in the layers without key and value heads.
    Mamba,
    /// A gated convolution over time, in the layers without key and value heads.
    Convolution,
}

impl RecurrentRule {
    /// Whether the layers with attention are those with key and value heads.
    pub(crate) fn lists_attention(self) -> bool {
        matches!(self, Self::Mamba | Self::Convolution)
    }
}
