//! Differences between families that do not depend on metadata, as a table.
//!
//! Source of the rows: llama.cpp, `src/models/NAME.cpp` and `llama_model_rope_type`.

mod recurrent;

use super::Architecture;
use super::recurrent_rule::RecurrentRule;
use kernels::RopePairs;

/// The non-linearity of the feed-forward gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gelu, tanh approximation.
    Gelu,
    /// `max(x, 0)^2`.
    SquaredRelu,
    /// SwiGLU within bounds, with one added to what the gate multiplies (gpt-oss).
    ClampedSwiglu,
}

/// Which layers use a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRule {
    /// None, whatever the metadata contains. Files of Mistral and Phi 3 carry windows, but llama.cpp, against
    /// which their weights were checked, ignores the windows.
    Never,
    /// All layers except each `period`-th, if there is a window.
    Periodic {
        /// Window when the key is absent; 0 for none.
        window: usize,
        /// Period when the key is absent.
        period: usize,
        /// Only a model of this many layers has windows; 0: a model of any number.
        layers: usize,
    },
}

/// Whether the feed-forward part may consist of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertRule {
    /// No.
    Never,
    /// Yes.
    Allowed {
        /// No other feed-forward part is known.
        required: bool,
        /// Whether the shares of the chosen experts add up to 1.
        normalized: bool,
        /// Whether an expert that each row uses may be beside them.
        shared: bool,
    },
    /// Yes; keys say in which layers, how a row chooses, and how many experts each row uses.
    ByKeys,
}

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

/// Source of the divisors of rope frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactorRule {
    /// No divisors.
    Never,
    /// `rope_freqs.weight`; with scaling type `longrope` the long and short ones.
    ByScaling,
    /// `rope_factors_long.weight` and `rope_factors_short.weight`.
    LongShort,
}

/// The rope of layers with a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalRope {
    /// The global rope, with `rope.freq_base_swa` as the base if given.
    AsGlobal,
    /// No scaling, with this base unless `rope.freq_base_swa` is given.
    Unscaled {
        /// Base of the frequencies; `None`: the global base.
        theta: Option<f32>,
    },
}

/// Which layers rotate queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayers {
    /// All.
    All,
    /// All except each `period`-th.
    AllBut {
        /// The period.
        period: usize,
    },
    /// Those with a window; all if no layer has a window.
    Windowed,
    /// All, or none if `rope.scaling.finetuned` is false.
    IfFinetuned,
    /// None.
    Never,
}

/// Norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    Never,
    /// Each head before the rope; all heads have the same weights.
    Heads,
    /// Each head after the rope; all heads have the same weights.
    TurnedHeads,
    /// Each head before the rope, with weights of its own, if the file has the norms.
    EachHead,
    /// All heads together, before the rope.
    Row,
}

/// Which layers read the keys and values of earlier layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSharing {
    /// None.
    Never,
    /// As many at the end as `attention.shared_kv_layers` says; none when the key is absent.
    ByKey,
    /// As many at the end as the key says; all from this one on when the key is absent.
    From(usize),
}

/// What the feed-forward part of a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedRule {
    /// The stream after attention.
    AfterAttention,
    /// What attention reads: both run side by side.
    AsAttention,
    /// The stream after attention if the file has the norm, else what attention reads.
    ByNorm,
    /// What attention would read: a feed-forward part is a layer of its own.
    Alone,
    /// Nothing: there is no feed-forward part.
    Never,
}

/// Meaning of the key `logit_scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitScale {
    /// The key is not read.
    Never,
    /// Logits are multiplied by the value.
    Factor,
    /// Logits are divided by the value.
    Divisor,
}

/// Which of three positions (time, height, width) turns each pair of a head, by the key `rope.dimension_sections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisRule {
    /// One position turns all.
    Never,
    /// Sections of pairs, one after another (Qwen2-VL).
    Sections,
    /// Every third pair, as long as its section lasts (Qwen3-VL).
    Interleaved,
}

/// Layers in which the rows of one image see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRule {
    /// None: each row sees the positions up to its own.
    Never,
    /// All.
    All,
    /// Those with a window, in a model without embeddings for each layer.
    Windowed,
}

/// Differences between families that do not depend on metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    /// Elements of a head that turn together.
    pub pairs: RopePairs,
    /// With `rope.dimension_sections` (positions of images), pairs are `RopePairs::Halves`.
    pub sections_in_halves: bool,
    /// Which positions turn which pairs.
    pub axes: AxisRule,
    /// Layers in which rows of one image see each other.
    pub blocks: BlockRule,
    /// The key `rope.scaling.alpha` is read, which stretches the base.
    pub alpha: bool,
    /// The non-linearity of the feed-forward gate.
    pub gate: Gate,
    /// Whether the feed-forward part has a gate beside the up projection.
    pub gated: bool,
    /// Whether the feed-forward part may consist of experts.
    pub experts: ExpertRule,
    /// The expert that each row uses has a factor, computed from the row.
    pub shared_gate: bool,
    /// Whether router and experts have biases.
    pub expert_biases: bool,
    /// Whether each query head has an attention sink.
    pub sinks: bool,
    /// Which layers use a sliding window.
    pub windows: WindowRule,
    /// Source of the divisors of rope frequencies.
    pub factors: FactorRule,
    /// Which layers rotate queries and keys.
    pub roped: RopeLayers,
    /// Norm of queries and keys.
    pub qk_norm: QkNorm,
    /// Whether the output of each attention head is gated, by rows of the query projection.
    pub gated_attention: bool,
    /// Keys and values of all heads are projections of one latent.
    pub latent: bool,
    /// Recurrent layers in place of attention.
    pub recurrent: Option<RecurrentRule>,
    /// Layer norms (mean subtracted, perhaps with biases), not RMS norms.
    pub layer_norms: bool,
    /// Norm before attention, and before the feed-forward part unless [`FeedRule`] says otherwise.
    pub pre_norms: bool,
    /// Norm after attention and after the feed-forward part.
    pub post_norms: bool,
    /// What the feed-forward part reads.
    pub feed: FeedRule,
    /// Name of the norm before the vocabulary projection.
    pub output_norm: &'static str,
    /// Name of the norm before the feed-forward part.
    pub feed_norm: &'static str,
    /// Whether the name of that norm's tensor lacks `.weight`.
    pub bare_feed_norm: bool,
    /// Embeddings are multiplied by `sqrt(dim)`.
    pub scaled_embedding: bool,
    /// The keys `embedding_scale`, `residual_scale` and `attention.scale` are read.
    pub multipliers: bool,
    /// Meaning of the key `logit_scale`.
    pub logit_scale: LogitScale,
    /// Gate and up projections are one tensor, `ffn_up`, gate first.
    pub fused_gate_up: bool,
    /// Cap of attention scores when the key is absent; `None`: the key is not read.
    pub attention_cap: Option<f32>,
    /// Cap of logits when the key is absent; `None`: the key is not read.
    pub logit_cap: Option<f32>,
    /// The rope of layers with a window.
    pub local_rope: LocalRope,
    /// A model of this many layers scales queries by `sqrt(dim / heads)`, not `sqrt(head_dim)`.
    pub layers_scaled_by_dim: Option<usize>,
    /// Attention scores are not scaled.
    pub unscaled_scores: bool,
    /// Values are normalized, each head on its own and without weights. Keys before their norm are the values of a layer
    /// without a value projection.
    pub value_norm: bool,
    /// Layers may differ in the size of their heads (with and without a window), in their key and value heads, and in
    /// the width of their feed-forward part.
    pub layers_differ: bool,
    /// Which layers read the keys and values of earlier layers.
    pub kv_sharing: KvSharing,
    /// Each layer adds an embedding of the token, if `embedding_length_per_layer_input` is not 0.
    pub per_layer: bool,
    /// A feed-forward part that every row uses is beside experts, with norms of its own.
    pub dense_beside_experts: bool,
    /// Tokens see later ones, too: a text is one span without logits, and nothing of it is kept.
    pub bidirectional: bool,
    /// The head that hidden states may have.
    pub state_head: StateHeadRule,
    /// Several states of the stream, a low-rank path beside attention, and gates that keep their largest entries.
    pub altup: bool,
}

/// Traits that most families share.
const PLAIN: Traits = Traits {
    pairs: RopePairs::Halves,
    sections_in_halves: false,
    axes: AxisRule::Never,
    blocks: BlockRule::Never,
    alpha: false,
    gate: Gate::Silu,
    gated: true,
    experts: ExpertRule::Never,
    shared_gate: false,
    expert_biases: false,
    sinks: false,
    windows: WindowRule::Never,
    factors: FactorRule::Never,
    roped: RopeLayers::All,
    qk_norm: QkNorm::Never,
    gated_attention: false,
    latent: false,
    recurrent: None,
    layer_norms: false,
    pre_norms: true,
    post_norms: false,
    feed: FeedRule::AfterAttention,
    output_norm: "output_norm",
    feed_norm: "ffn_norm",
    bare_feed_norm: false,
    scaled_embedding: false,
    multipliers: false,
    logit_scale: LogitScale::Never,
    fused_gate_up: false,
    attention_cap: None,
    logit_cap: None,
    local_rope: LocalRope::AsGlobal,
    layers_scaled_by_dim: None,
    unscaled_scores: false,
    value_norm: false,
    layers_differ: false,
    kv_sharing: KvSharing::Never,
    per_layer: false,
    dense_beside_experts: false,
    bidirectional: false,
    state_head: StateHeadRule::Never,
    altup: false,
};

/// Traits of Llama.
const LLAMA: Traits = Traits {
    pairs: RopePairs::Adjacent,
    factors: FactorRule::ByScaling,
    ..PLAIN
};

/// Traits of Qwen 3.
const QWEN3: Traits = Traits {
    qk_norm: QkNorm::Heads,
    state_head: StateHeadRule::YesNo,
    ..PLAIN
};

/// Traits of Qwen 3 with experts.
const QWEN3_MOE: Traits = Traits {
    qk_norm: QkNorm::Heads,
    experts: experts(true, true, false),
    ..PLAIN
};

/// Traits of Gemma 1.
const GEMMA: Traits = Traits {
    gate: Gate::Gelu,
    scaled_embedding: true,
    ..PLAIN
};

/// Traits of Command R.
const COMMAND_R: Traits = Traits {
    pairs: RopePairs::Adjacent,
    qk_norm: QkNorm::EachHead,
    layer_norms: true,
    feed: FeedRule::AsAttention,
    logit_scale: LogitScale::Factor,
    ..PLAIN
};

/// Experts with these properties of [`ExpertRule::Allowed`].
const fn experts(required: bool, normalized: bool, shared: bool) -> ExpertRule {
    ExpertRule::Allowed {
        required,
        normalized,
        shared,
    }
}

/// All layers except each `period`-th have a window, in a model of any number of layers.
const fn periodic(window: usize, period: usize) -> WindowRule {
    WindowRule::Periodic {
        window,
        period,
        layers: 0,
    }
}

#[rustfmt::skip] // a table
const GEMMA3: Traits = Traits {
    windows: periodic(0, 6), qk_norm: QkNorm::Heads, post_norms: true, logit_cap: Some(0.0),
    local_rope: LocalRope::Unscaled { theta: Some(10_000.0) }, layers_scaled_by_dim: Some(62), ..GEMMA
};

#[rustfmt::skip] // a table
const GEMMA3N: Traits = Traits {
    windows: periodic(0, 5), qk_norm: QkNorm::Heads, post_norms: true, logit_cap: Some(30.0),
    local_rope: LocalRope::Unscaled { theta: Some(10_000.0) }, unscaled_scores: true, value_norm: true,
    layers_differ: true, kv_sharing: KvSharing::From(20), per_layer: true, altup: true, ..GEMMA
};

#[rustfmt::skip] // a table
const GEMMA2: Traits = Traits {
    windows: periodic(4096, 2), post_norms: true, attention_cap: Some(50.0), logit_cap: Some(30.0),
    layers_scaled_by_dim: Some(46), ..GEMMA
};

#[rustfmt::skip] // a table
const GEMMA4: Traits = Traits {
    windows: periodic(0, 6), qk_norm: QkNorm::Heads, post_norms: true, logit_cap: Some(0.0),
    local_rope: LocalRope::Unscaled { theta: Some(10_000.0) }, factors: FactorRule::ByScaling,
    unscaled_scores: true, value_norm: true, layers_differ: true, kv_sharing: KvSharing::ByKey,
    per_layer: true, experts: experts(false, true, false), dense_beside_experts: true, blocks: BlockRule::Windowed, ..GEMMA
};

impl Architecture {
    /// Properties of the family.
    #[rustfmt::skip] // a table
    pub const fn traits(self) -> Traits {
        match self {
            Self::Llama => Traits { experts: experts(false, true, false), ..LLAMA },
            Self::Mistral3 => LLAMA,
            Self::Ernie45 => Traits { factors: FactorRule::Never, ..LLAMA },
            Self::SmolLm3 => Traits { factors: FactorRule::Never, roped: RopeLayers::AllBut { period: 4 }, ..LLAMA },
            Self::Granite => Traits {
                roped: RopeLayers::IfFinetuned, multipliers: true, logit_scale: LogitScale::Divisor, ..LLAMA
            },
            Self::GraniteMoe => Traits {
                multipliers: true, logit_scale: LogitScale::Divisor, experts: experts(true, true, true), ..LLAMA
            },
            Self::GraniteHybrid => recurrent::GRANITE_HYBRID,
            Self::Mamba2 => recurrent::MAMBA2,
            Self::FalconH1 => recurrent::FALCON_H1,
            Self::NemotronH => recurrent::NEMOTRON_H,
            Self::Lfm2 => recurrent::LFM2,
            Self::Qwen2 => PLAIN,
            Self::Qwen2Vl => Traits { axes: AxisRule::Sections, ..PLAIN },
            Self::Qwen3 => QWEN3,
            Self::Qwen3Vl => Traits { axes: AxisRule::Interleaved, ..QWEN3 },
            Self::Qwen35 => recurrent::QWEN35,
            Self::Qwen35Moe => recurrent::QWEN35_MOE,
            Self::Qwen3Next => recurrent::QWEN3_NEXT,
            Self::Qwen3Moe => QWEN3_MOE,
            Self::Qwen3VlMoe => Traits { axes: AxisRule::Interleaved, ..QWEN3_MOE },
            Self::DeepSeek2 => Traits { pairs: RopePairs::Adjacent, experts: ExpertRule::ByKeys, latent: true, ..PLAIN },
            Self::Olmoe => Traits { qk_norm: QkNorm::Row, experts: experts(true, false, false), ..PLAIN },
            Self::GptOss => Traits {
                gate: Gate::ClampedSwiglu, experts: experts(true, true, false), expert_biases: true, sinks: true,
                windows: periodic(0, 2), feed_norm: "post_attention_norm", ..PLAIN
            },
            Self::HunyuanDense => Traits { qk_norm: QkNorm::TurnedHeads, factors: FactorRule::ByScaling, alpha: true, ..PLAIN },
            Self::Phi3 => Traits { factors: FactorRule::LongShort, fused_gate_up: true, ..PLAIN },
            Self::Phi2 => Traits { gate: Gate::Gelu, gated: false, layer_norms: true, feed: FeedRule::AsAttention, ..PLAIN },
            Self::StableLm => Traits { layer_norms: true, qk_norm: QkNorm::EachHead, feed: FeedRule::ByNorm, ..PLAIN },
            Self::Olmo2 => Traits {
                pre_norms: false, post_norms: true, qk_norm: QkNorm::Row, windows: periodic(0, 4),
                local_rope: LocalRope::Unscaled { theta: None }, ..PLAIN
            },
            Self::Exaone4 => Traits {
                pre_norms: false, post_norms: true, qk_norm: QkNorm::Heads, factors: FactorRule::ByScaling,
                windows: WindowRule::Periodic { window: 4096, period: 4, layers: 64 },
                roped: RopeLayers::Windowed, ..PLAIN
            },
            Self::Glm4 => Traits {
                pairs: RopePairs::Adjacent, sections_in_halves: true, post_norms: true, fused_gate_up: true, ..PLAIN
            },
            Self::CommandR => COMMAND_R,
            Self::Cohere2 => Traits {
                qk_norm: QkNorm::Never, factors: FactorRule::ByScaling, windows: periodic(4096, 4),
                roped: RopeLayers::Windowed, ..COMMAND_R
            },
            Self::Gemma => GEMMA,
            Self::Gemma2 => GEMMA2,
            Self::Gemma3 => Traits { blocks: BlockRule::All, ..GEMMA3 },
            Self::GemmaEmbedding => Traits { layers_scaled_by_dim: None, bidirectional: true, state_head: StateHeadRule::Dense, ..GEMMA3 },
            Self::Gemma3n => GEMMA3N,
            Self::Gemma4 => GEMMA4,
        }
    }
}
