//! Names of tensors of decoders with recurrent layers, in Hugging Face's implementations and in GGUF.

use super::names::{HEAD, Named, is_number};
use super::recurrent::RecurrentSaved;
use crate::Architecture;

/// A name of Hugging Face's, and GGUF's.
type Pair = (&'static str, &'static str);

/// Names of a family.
struct NameTable {
    /// Text before the number of a layer.
    layers: &'static str,
    /// Tensors outside of layers.
    outer: &'static [Pair],
    /// Parts of a layer, with weights and biases.
    parts: &'static [&'static [Pair]],
    /// Tensors of a layer with their kinds.
    whole: &'static [&'static [Pair]],
}

/// The embedding, whose tensor a family with a projection of another factor needs twice.
const EMBEDDING: &str = "token_embd.weight";
/// The projection.
const OUTPUT: &str = "output.weight";
/// Beginnings of names of towers: of Qwen 3.5, and of MiniCPM-V 4.6.
const TOWERS: [&str; 3] = ["model.visual.", "model.vision_tower.", "model.merger."];

const OUTER: &[Pair] = &[
    ("model.embed_tokens.weight", EMBEDDING),
    ("model.norm.weight", "output_norm.weight"),
    (HEAD, OUTPUT),
];
const OUTER_FALCON: &[Pair] = &[
    ("model.embed_tokens.weight", EMBEDDING),
    ("model.final_layernorm.weight", "output_norm.weight"),
    (HEAD, OUTPUT),
];
const OUTER_BACKBONE: &[Pair] = &[
    ("backbone.embeddings.weight", EMBEDDING),
    ("backbone.norm_f.weight", "output_norm.weight"),
    (HEAD, OUTPUT),
];

const ATTENTION: &[Pair] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
];
/// Gated DeltaNet, with four projections in one and two in another (Qwen 3 Next), or apart.
const DELTA: &[Pair] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
];
const DELTA_WHOLE: &[Pair] = &[
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
];
const FEED: &[Pair] = &[
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
const QWEN_MOE: &[Pair] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];
/// Experts in one tensor each, gate first.
const QWEN_MOE_WHOLE: &[Pair] = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
];
/// One tensor for each expert.
const EXPERTS: &[Pair] = &[
    (".gate_proj.weight", "ffn_gate"),
    (".up_proj.weight", "ffn_up"),
    (".down_proj.weight", "ffn_down"),
];
/// Text before an expert's number.
const EXPERT: &str = "mlp.experts.";

const MAMBA: &[Pair] = &[
    ("mamba.in_proj", "ssm_in"),
    ("mamba.conv1d", "ssm_conv1d"),
    ("mamba.norm", "ssm_norm"),
    ("mamba.out_proj", "ssm_out"),
];
const MAMBA_WHOLE: &[Pair] = &[
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.dt_bias", "ssm_dt.bias"),
];
const GRANITE: &[Pair] = &[
    ("post_attention_layernorm", "ffn_norm"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
];
const FALCON: &[Pair] = &[
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down"),
];
/// The only norm whose tensor has no `.weight` in GGUF.
const FALCON_WHOLE: &[Pair] = &[("pre_ff_layernorm.weight", "ffn_norm")];
/// Layers of one part, all of the same name.
const MIXER: &[Pair] = &[
    ("norm", "attn_norm"),
    ("mixer.in_proj", "ssm_in"),
    ("mixer.conv1d", "ssm_conv1d"),
    ("mixer.norm", "ssm_norm"),
    ("mixer.out_proj", "ssm_out"),
    ("mixer.q_proj", "attn_q"),
    ("mixer.k_proj", "attn_k"),
    ("mixer.v_proj", "attn_v"),
    ("mixer.o_proj", "attn_output"),
    ("mixer.up_proj", "ffn_up"),
    ("mixer.down_proj", "ffn_down"),
];
const MIXER_WHOLE: &[Pair] = &[
    ("mixer.A_log", "ssm_a"),
    ("mixer.D", "ssm_d"),
    ("mixer.dt_bias", "ssm_dt.bias"),
];
/// The MTP head's tensors beside its layer.
const MTP: &[Pair] = &[
    ("mtp.fc.weight", "nextn.eh_proj.weight"),
    ("mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight"),
    ("mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight"),
    ("mtp.norm.weight", "nextn.shared_head_norm.weight"),
];
/// Parts of Granite's feed-forward part that every row uses.
const SHARED_IN: &str = "shared_mlp.input_linear.weight";
const SHARED_OUT: &str = "shared_mlp.output_linear.weight";

static QWEN: NameTable = NameTable {
    layers: "model.layers.",
    outer: OUTER,
    parts: &[ATTENTION, DELTA, FEED, QWEN_MOE],
    whole: &[DELTA_WHOLE, QWEN_MOE_WHOLE],
};
static GRANITE_HYBRID: NameTable = NameTable {
    layers: "model.layers.",
    outer: OUTER,
    parts: &[ATTENTION, GRANITE, MAMBA],
    whole: &[MAMBA_WHOLE],
};
static FALCON_H1: NameTable = NameTable {
    layers: "model.layers.",
    outer: OUTER_FALCON,
    parts: &[ATTENTION, FALCON, MAMBA],
    whole: &[FALCON_WHOLE, MAMBA_WHOLE],
};
static BACKBONE: NameTable = NameTable {
    layers: "backbone.layers.",
    outer: OUTER_BACKBONE,
    parts: &[MIXER],
    whole: &[MIXER_WHOLE],
};

/// The names of an architecture whose files are those of recurrent families.
fn table(architecture: Architecture) -> &'static NameTable {
    use Architecture::{FalconH1, Mamba2, NemotronH, Qwen3Next, Qwen35, Qwen35Moe};
    match architecture {
        Qwen35 | Qwen35Moe | Qwen3Next => &QWEN,
        FalconH1 => &FALCON_H1,
        Mamba2 | NemotronH => &BACKBONE,
        _ => &GRANITE_HYBRID,
    }
}

impl NameTable {
    fn parts(&self) -> impl Iterator<Item = &'static Pair> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    fn whole(&self) -> impl Iterator<Item = &'static Pair> {
        self.whole.iter().flat_map(|part| part.iter())
    }

    /// GGUF's name of what is stored as `rest` in a layer, without the layer.
    fn in_layer(&self, rest: &str) -> Option<String> {
        if let Some((_, ours)) = self.whole().find(|(theirs, _)| *theirs == rest) {
            return Some((*ours).to_owned());
        }
        let (part, kind) = rest.rsplit_once('.')?;
        let found = self.parts().find(|(theirs, _)| *theirs == part);
        if let Some((_, ours)) = found.filter(|_| ["weight", "bias"].contains(&kind)) {
            return Some(format!("{ours}.{kind}"));
        }
        let expert = rest.strip_prefix(EXPERT)?;
        let mut ends = EXPERTS.iter();
        ends.find_map(|(end, ours)| {
            let number = expert.strip_suffix(end).filter(|text| is_number(text))?;
            Some(format!("{ours}.{number}.weight"))
        })
    }

    /// The stored name of what GGUF names `rest` in a layer, without the layer.
    fn stored(&self, rest: &str) -> Option<String> {
        if let Some((theirs, _)) = self.whole().find(|(_, ours)| *ours == rest) {
            return Some((*theirs).to_owned());
        }
        let (part, kind) = rest.rsplit_once('.')?;
        if let Some((theirs, _)) = self.parts().find(|(_, ours)| *ours == part) {
            return Some(format!("{theirs}.{kind}"));
        }
        let (part, number) = part.split_once('.')?;
        let mut ends = EXPERTS.iter();
        let (end, _) = ends.find(|(_, ours)| *ours == part)?;
        Some(format!("{EXPERT}{number}{end}"))
    }
}

/// GGUF's name for a stored tensor. `tied`: the embedding is also the projection.
pub(super) fn named(
    architecture: Architecture,
    saved: &RecurrentSaved,
    tied: bool,
    stored: &str,
) -> Named {
    let stored = plain(architecture, stored);
    let is_of_images = TOWERS.iter().any(|start| stored.starts_with(start));
    if (tied && stored == HEAD) || is_of_images {
        return Named::Nothing;
    }
    if let Some(rest) = stored.strip_prefix("mtp.") {
        return of_mtp(architecture, saved, rest);
    }
    let table = table(architecture);
    let mut outer = table.outer.iter();
    if let Some((_, ours)) = outer.find(|(theirs, _)| *theirs == stored) {
        // The factors of Falcon's embedding and projection differ.
        return if tied && *ours == EMBEDDING && architecture == Architecture::FalconH1 {
            Named::Two([EMBEDDING.to_owned(), OUTPUT.to_owned()])
        } else {
            Named::Tensor((*ours).to_owned())
        };
    }
    let in_layer = || {
        let (layer, rest) = stored.strip_prefix(table.layers)?.split_once('.')?;
        if !is_number(layer) {
            return None;
        }
        if saved.fused_feed && [SHARED_IN, SHARED_OUT].contains(&rest) {
            return Some(of_shared(saved, layer, rest));
        }
        let name = table.in_layer(rest)?;
        Some(Named::Tensor(format!("blk.{layer}.{name}")))
    };
    in_layer().unwrap_or(Named::Unknown)
}

/// A name as the text model's class has it, without what models of several classes put before it.
fn plain(architecture: Architecture, stored: &str) -> String {
    use Architecture::{Mamba2, NemotronH};
    if let Some(rest) = stored.strip_prefix("model.language_model.") {
        return format!("model.{rest}");
    }
    if let Some(rest) = stored.strip_prefix("model.mtp.") {
        return format!("mtp.{rest}");
    }
    match architecture {
        Mamba2 | NemotronH => match stored.strip_prefix("model.") {
            Some(rest) if rest.starts_with("backbone.") || rest == HEAD => rest.to_owned(),
            Some(rest) => format!("backbone.{rest}"),
            None => stored.to_owned(),
        },
        _ => stored.to_owned(),
    }
}

/// A tensor of the MTP head, which is not needed where `config.json` names none.
fn of_mtp(architecture: Architecture, saved: &RecurrentSaved, rest: &str) -> Named {
    let Some(first) = saved.mtp_layer else {
        return Named::Nothing;
    };
    let full = format!("mtp.{rest}");
    if let Some((_, ours)) = MTP.iter().find(|(theirs, _)| *theirs == full) {
        return Named::Tensor(format!("blk.{first}.{ours}"));
    }
    let in_layer = || {
        let (number, rest) = rest.strip_prefix("layers.")?.split_once('.')?;
        let layer = number.parse::<u32>().ok()?.checked_add(first)?;
        let name = table(architecture).in_layer(rest)?;
        Some(Named::Tensor(format!("blk.{layer}.{name}")))
    };
    in_layer().unwrap_or(Named::Unknown)
}

/// Granite's feed-forward part that every row uses: all of it, or beside experts.
fn of_shared(saved: &RecurrentSaved, layer: &str, rest: &str) -> Named {
    let kind = if saved.has_experts { "_shexp" } else { "" };
    let name = |part: &str| format!("blk.{layer}.{part}{kind}.weight");
    match rest {
        SHARED_IN => Named::Two([name("ffn_gate"), name("ffn_up")]),
        _ => Named::Tensor(name("ffn_down")),
    }
}

/// The stored name of GGUF's tensor.
pub(super) fn stored(architecture: Architecture, name: &str) -> Option<String> {
    let table = table(architecture);
    let mut outer = table.outer.iter();
    if let Some((theirs, _)) = outer.find(|(_, ours)| *ours == name) {
        return Some((*theirs).to_owned());
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    if let Some((theirs, _)) = MTP.iter().find(|(_, ours)| *ours == rest) {
        return Some((*theirs).to_owned());
    }
    let of_granite = |rest: &str| match rest.split('.').next()? {
        "ffn_gate" | "ffn_up" | "ffn_gate_shexp" | "ffn_up_shexp" => Some(SHARED_IN.to_owned()),
        "ffn_down" | "ffn_down_shexp" => Some(SHARED_OUT.to_owned()),
        _ => None,
    };
    let is_granite = std::ptr::eq(table, &GRANITE_HYBRID);
    let shared = is_granite.then(|| of_granite(rest)).flatten();
    let theirs = shared.or_else(|| table.stored(rest))?;
    Some(format!("{}{layer}.{theirs}", table.layers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Architecture::{FalconH1, GraniteHybrid, Mamba2, NemotronH, Qwen3Next, Qwen35};

    #[test]
    fn names_round_trip() {
        let saved = RecurrentSaved::default();
        for (architecture, theirs, ours) in [
            (
                Qwen35,
                "model.layers.3.linear_attn.in_proj_a.weight",
                "blk.3.ssm_alpha.weight",
            ),
            (
                Qwen3Next,
                "model.layers.0.mlp.experts.7.up_proj.weight",
                "blk.0.ffn_up.7.weight",
            ),
            (
                Qwen35,
                "model.layers.0.mlp.experts.gate_up_proj",
                "blk.0.ffn_gate_up_exps.weight",
            ),
            (GraniteHybrid, "model.layers.1.mamba.D", "blk.1.ssm_d"),
            (
                FalconH1,
                "model.layers.1.pre_ff_layernorm.weight",
                "blk.1.ffn_norm",
            ),
            (Mamba2, "backbone.norm_f.weight", "output_norm.weight"),
            (
                NemotronH,
                "backbone.layers.2.mixer.conv1d.bias",
                "blk.2.ssm_conv1d.bias",
            ),
        ] {
            let found = named(architecture, &saved, false, theirs);
            assert_eq!(found, Named::Tensor(ours.to_owned()), "{theirs}");
            assert_eq!(stored(architecture, ours).as_deref(), Some(theirs));
        }
    }

    #[test]
    fn unknown_tensors_have_no_name() {
        let saved = RecurrentSaved {
            mtp_layer: Some(4),
            ..RecurrentSaved::default()
        };
        for name in [
            "",
            "model.layers..mlp.up_proj.weight",
            "model.layers.0.mlp.experts.x.up_proj.weight",
            "model.layers.0.linear_attn.A_log.weight",
            "model.layers.0.shared_mlp.input_linear.weight",
            "mtp.fc.bias",
            "mtp.layers.4294967295.mlp.up_proj.weight",
        ] {
            assert_eq!(named(Qwen35, &saved, false, name), Named::Unknown, "{name}");
        }
        let of_images = named(Qwen35, &saved, false, "model.visual.blocks.0.norm1.weight");
        assert_eq!(of_images, Named::Nothing);
    }
}
