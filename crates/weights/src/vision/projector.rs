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
    /// Qwen2-VL: 2D rope, two matrices.
    Qwen2Vl,
    /// Qwen2.5-VL: as Qwen2-VL, with RMS norms, gates, and windows in most layers.
    Qwen25Vl,
    /// Pixtral, Mistral Small 3.1 and later, Ministral 3: 2D rope, RMS norms, gates, lines with ends.
    Pixtral,
    /// LLaVA 1.5 and 1.6, Granite Vision: CLIP or SigLIP, two matrices; in 1.6 lines with ends.
    Llava,
    /// InternVL 2.5, 3 and 3.5: a class token, scales of the layers, a norm of neighbors side by side, two matrices.
    InternVl,
    /// LFM2-VL: SigLIP 2 for pictures of any ratio, a norm of neighbors side by side, two matrices.
    Lfm2,
    /// MiniCPM-V 2.5, 2.6, 4.0 and 4.5, MiniCPM-o: SigLIP, learned queries that attend to a slice's patches, one matrix.
    Resampler,
    /// MiniCPM-V 4.6: SigLIP, neighbors become one row of the stream between two layers, a norm of neighbors side by side, two
    /// matrices.
    MiniCpm46,
    /// Gemma 4 E2B, E4B, 26B and 31B: gates, norms before and after each part, tables and rope by axis, the mean of neighbors.
    Gemma4V,
    /// Gemma 4 12B: no layers, a matrix of large patches between norms.
    Gemma4Uv,
}

/// The non-linearity of a tower's feed-forward parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Gelu, tanh approximation.
    Gelu,
    /// Gelu by the error function.
    GeluErf,
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
    /// The entry of the same part, in whole numbers: the number of the patch times the entries, by the number of patches.
    Floors,
    /// The mean of the four nearest entries, weighted; the corners of table and picture coincide.
    Interpolated,
    /// The mean of the entries around its place, weighted by their distance, of as many as the picture has fewer patches: the
    /// edges of table and picture coincide.
    Smoothed,
    /// The sum of two entries: that of the column in a table of its own, and that of the row.
    Axes,
}

/// How queries and keys turn by row and column: which entries of a head are pairs, and the frequency of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowerRopeKind {
    /// Pairs `(i, i + head_dim / 2)`: the first half of the pairs turns by the row, the second by the column, with equal
    /// frequencies.
    Halves,
    /// Pairs `(2i, 2i + 1)`: the first half of the pairs turns by the row, with every second frequency of a head, the second
    /// half by the column, with those between.
    Interleaved,
    /// Each half of a head on its own, in pairs `(i, i + head_dim / 4)`: the first turns by the column, the second by the row.
    Axes,
}

/// The kind of a tower's norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Less the mean, divided by the deviation, scaled and shifted.
    Layer,
    /// Divided by the root of the mean square, and scaled.
    Rms,
}

/// Differences between towers that do not depend on metadata. What a tower has besides, such as gates, norms of queries,
/// norms after a part, and scales of a layer, is read from the file's tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TowerTraits {
    /// The kind of all norms of the layers.
    pub norm: NormKind,
    /// How places become entries of the learned table; `None`: there is no table.
    pub positions: Option<Positions>,
    /// How queries and keys turn by row and column; `None`: not at all.
    pub rope: Option<TowerRopeKind>,
    /// Whether each picture, or each window of a picture, begins with a learned row that has no patch. It has the first entry of
    /// the table, and becomes no row of the output.
    pub class_token: bool,
    /// Whether there is a norm before the layers.
    pub pre_norm: bool,
    /// Whether there is a norm after the layers, over all rows.
    pub post_norm: bool,
    /// Patches next to each other, along an edge, that become one row, if the file does not say.
    pub merge: usize,
    /// Epsilon of the projector's norm; `None`: that of the layers.
    pub head_eps: Option<f32>,
    /// The non-linearity, whatever the file says: those of Gemma 4 name none.
    pub activation: Option<Activation>,
    /// Base of the frequencies of the 2D rope, if the file does not say.
    pub theta: f32,
    /// Whether values are normalized, each head on its own and without weights, and scores are not scaled.
    pub normalized_values: bool,
}

/// Epsilon of norms for which transformers names none.
const LAYER_NORM_EPS: f32 = 1e-5;
/// Epsilon of the norms of MiniCPM-V's resampler and projector.
const MINICPM_EPS: f32 = 1e-6;

const SIGLIP: TowerTraits = TowerTraits {
    norm: NormKind::Layer,
    positions: Some(Positions::Buckets),
    rope: None,
    class_token: false,
    pre_norm: false,
    post_norm: true,
    merge: 2,
    head_eps: None,
    activation: None,
    theta: 10_000.0,
    normalized_values: false,
};

const QWEN2: TowerTraits = TowerTraits {
    positions: None,
    rope: Some(TowerRopeKind::Halves),
    post_norm: false,
    ..SIGLIP
};

const GEMMA4: TowerTraits = TowerTraits {
    norm: NormKind::Rms,
    positions: Some(Positions::Axes),
    rope: Some(TowerRopeKind::Axes),
    post_norm: false,
    merge: 3,
    activation: Some(Activation::Gelu),
    theta: 100.0,
    normalized_values: true,
    ..SIGLIP
};

impl TowerTraits {
    /// The traits with SigLIP's tower in the place of CLIP's, whatever the file says of the non-linearity: the converter does
    /// not know SigLIP's.
    pub(super) fn of_siglip(self) -> Self {
        Self {
            class_token: false,
            pre_norm: false,
            activation: Some(Activation::Gelu),
            ..self
        }
    }
}

impl Projector {
    /// All projectors that are computed.
    pub const ALL: [Self; 13] = [
        Self::Idefics3,
        Self::Qwen3Vl,
        Self::Gemma3,
        Self::Qwen2Vl,
        Self::Qwen25Vl,
        Self::Pixtral,
        Self::Llava,
        Self::InternVl,
        Self::Lfm2,
        Self::Resampler,
        Self::MiniCpm46,
        Self::Gemma4V,
        Self::Gemma4Uv,
    ];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idefics3 => "idefics3",
            Self::Qwen3Vl => "qwen3vl_merger",
            Self::Gemma3 => "gemma3",
            Self::Qwen2Vl => "qwen2vl_merger",
            Self::Qwen25Vl => "qwen2.5vl_merger",
            Self::Pixtral => "pixtral",
            Self::Llava => "mlp",
            Self::InternVl => "internvl",
            Self::Lfm2 => "lfm2",
            Self::Resampler => "resampler",
            Self::MiniCpm46 => "minicpmv4_6",
            Self::Gemma4V => "gemma4v",
            Self::Gemma4Uv => "gemma4uv",
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
                positions: Some(Positions::Interpolated),
                ..QWEN2
            },
            Self::Gemma3 => TowerTraits { merge: 4, ..SIGLIP },
            Self::Qwen2Vl => QWEN2,
            Self::Qwen25Vl => TowerTraits {
                norm: NormKind::Rms,
                ..QWEN2
            },
            Self::Pixtral => TowerTraits {
                norm: NormKind::Rms,
                rope: Some(TowerRopeKind::Interleaved),
                pre_norm: true,
                merge: 1,
                ..QWEN2
            },
            Self::Llava => TowerTraits {
                class_token: true,
                pre_norm: true,
                post_norm: false,
                merge: 1,
                ..SIGLIP
            },
            Self::InternVl => TowerTraits {
                class_token: true,
                post_norm: false,
                head_eps: Some(LAYER_NORM_EPS),
                ..SIGLIP
            },
            Self::Lfm2 => TowerTraits {
                positions: Some(Positions::Smoothed),
                head_eps: Some(LAYER_NORM_EPS),
                ..SIGLIP
            },
            Self::Resampler => TowerTraits {
                merge: 1,
                head_eps: Some(MINICPM_EPS),
                ..SIGLIP
            },
            Self::MiniCpm46 => TowerTraits {
                positions: Some(Positions::Floors),
                merge: 4,
                head_eps: Some(MINICPM_EPS),
                ..SIGLIP
            },
            Self::Gemma4V => GEMMA4,
            Self::Gemma4Uv => TowerTraits {
                norm: NormKind::Layer,
                rope: None,
                ..GEMMA4
            },
        }
    }
}
