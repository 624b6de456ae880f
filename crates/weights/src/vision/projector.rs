//! Kinds of towers, by the name of their projector, as a table.

/// A tower with its projector, by the file's name for it (`clip.projector_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projector {
    /// SmolVLM, SmolVLM2, Idefics 3: SigLIP, neighbors side by side through one matrix.
    Idefics3,
    /// Qwen3-VL, Qwen 3.5 and later: 2D rope, an interpolated table, two matrices, rows for several text layers.
    Qwen3Vl,
    /// Gemma 3: SigLIP, the mean of neighbors, a norm, one matrix.
    Gemma3,
}

/// The non-linearity of a tower's feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Gelu, tanh approximation.
    Gelu,
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
}

/// How a patch gets the entry of the learned table for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// The entry whose part of the edge the patch begins in.
    Buckets,
    /// The mean of the four nearest entries, weighted; the corners of table and picture coincide.
    Interpolated,
}

/// Differences between towers that do not depend on metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TowerTraits {
    /// How places become entries of the table.
    pub positions: Positions,
    /// Whether queries and keys turn by row and column.
    pub roped: bool,
    /// Whether there is a norm after the layers, over all rows.
    pub post_norm: bool,
    /// Patches next to each other that become one row, if the file does not say.
    pub merge: usize,
    /// Whether these become their mean; else they stand side by side.
    pub averaged: bool,
}

const SIGLIP: TowerTraits = TowerTraits {
    positions: Positions::Buckets,
    roped: false,
    post_norm: true,
    merge: 2,
    averaged: false,
};

impl Projector {
    /// All projectors that are computed.
    pub const ALL: [Self; 3] = [Self::Idefics3, Self::Qwen3Vl, Self::Gemma3];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idefics3 => "idefics3",
            Self::Qwen3Vl => "qwen3vl_merger",
            Self::Gemma3 => "gemma3",
        }
    }

    /// The projector of this name; `None` for one that is not computed.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|projector| projector.name() == name)
    }

    /// The row of the table.
    pub const fn traits(self) -> TowerTraits {
        match self {
            Self::Idefics3 => SIGLIP,
            Self::Qwen3Vl => TowerTraits {
                positions: Positions::Interpolated,
                roped: true,
                post_norm: false,
                ..SIGLIP
            },
            Self::Gemma3 => TowerTraits {
                merge: 4,
                averaged: true,
                ..SIGLIP
            },
        }
    }
}
