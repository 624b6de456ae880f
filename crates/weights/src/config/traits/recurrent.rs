//! Traits of architectures with recurrent layers.

use super::{
    AxisRule, ExpertRule, FeedRule, Gate, LLAMA, LogitScale, PLAIN, QkNorm, RecurrentRule,
    RopeLayers, Traits, experts, periodic,
};
use crate::config::recurrent_rule::MambaLayers;

const EXPERTS: ExpertRule = experts(true, true, true);

/// Traits of Qwen 3.5.
pub(super) const QWEN35: Traits = Traits {
    qk_norm: QkNorm::Heads,
    gated_attention: true,
    recurrent: Some(RecurrentRule::Delta { grouped: false }),
    feed_norm: "post_attention_norm",
    axes: AxisRule::Interleaved,
    ..PLAIN
};

/// Traits of Qwen 3.5 with experts.
pub(super) const QWEN35_MOE: Traits = Traits {
    experts: EXPERTS,
    shared_gate: true,
    ..QWEN35
};

/// Traits of Qwen 3 Next.
pub(super) const QWEN3_NEXT: Traits = Traits {
    recurrent: Some(RecurrentRule::Delta { grouped: true }),
    ..QWEN35_MOE
};

/// Traits of LFM2.
pub(super) const LFM2: Traits = Traits {
    qk_norm: QkNorm::Heads,
    recurrent: Some(RecurrentRule::Convolution),
    windows: periodic(0, 0),
    output_norm: "token_embd_norm",
    ..PLAIN
};

/// Traits of Granite 4 H.
pub(super) const GRANITE_HYBRID: Traits = Traits {
    roped: RopeLayers::IfFinetuned,
    multipliers: true,
    logit_scale: LogitScale::Divisor,
    experts: experts(false, true, true),
    recurrent: Some(RecurrentRule::Mamba(MambaLayers::WithoutHeads)),
    ..LLAMA
};

/// Traits of Mamba-2.
pub(super) const MAMBA2: Traits = Traits {
    recurrent: Some(RecurrentRule::Mamba(MambaLayers::All)),
    roped: RopeLayers::Never,
    feed: FeedRule::Never,
    ..PLAIN
};

/// Traits of Falcon H1. Its multipliers are within the weights of a GGUF.
pub(super) const FALCON_H1: Traits = Traits {
    recurrent: Some(RecurrentRule::Mamba(MambaLayers::BesideAttention)),
    bare_feed_norm: true,
    ..PLAIN
};

/// Traits of Nemotron H.
pub(super) const NEMOTRON_H: Traits = Traits {
    recurrent: Some(RecurrentRule::Mamba(MambaLayers::WithoutOthers)),
    roped: RopeLayers::Never,
    gate: Gate::SquaredRelu,
    gated: false,
    feed: FeedRule::Alone,
    ..PLAIN
};
