//! Kinds of recurrent layers.

/// The recurrent layers of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentRule {
    /// Gated DeltaNet, in the layers of a list, or in all but each `full_attention_interval`-th.
    Delta {
        /// Whether consecutive heads of values have the same key, and decays and rates are in one tensor.
        grouped: bool,
    },
    /// Mamba-2.
    Mamba(MambaLayers),
    /// A gated convolution over time, in the layers without key and value heads.
    Convolution,
}

/// Which layers have Mamba-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MambaLayers {
    /// Those without key and value heads.
    WithoutHeads,
    /// Those with neither key and value heads nor a feed-forward part: a layer has one part.
    WithoutOthers,
    /// All, side by side with attention.
    BesideAttention,
    /// All, and no layer has attention.
    All,
}

impl RecurrentRule {
    /// Whether the layers with attention are those with key and value heads.
    pub fn lists_attention(self) -> bool {
        use MambaLayers::{WithoutHeads, WithoutOthers};
        matches!(
            self,
            Self::Mamba(WithoutHeads | WithoutOthers) | Self::Convolution
        )
    }

    /// Whether recurrent layers have attention, too.
    pub fn is_beside_attention(self) -> bool {
        self == Self::Mamba(MambaLayers::BesideAttention)
    }

    /// Whether no layer has attention.
    pub fn replaces_all_attention(self) -> bool {
        self == Self::Mamba(MambaLayers::All)
    }
}
