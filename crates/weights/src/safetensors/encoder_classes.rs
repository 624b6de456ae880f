//! Classes of encoders in Hugging Face's implementations, and the names of their tensors: a class is a row.

use super::names::{Named, is_number};
use crate::config::encoder_kind::EncoderKind;

/// Stored names and GGUF's, without `.weight` and `.bias`.
type NamePairs = &'static [(&'static str, &'static str)];

/// A class of encoders.
#[derive(Debug)]
pub(super) struct EncoderClass {
    /// The name in `architectures`.
    pub(super) name: &'static str,
    pub(super) kind: EncoderKind,
    layout: &'static Layout,
    /// The classification head of a reranker; empty: hidden states are wanted.
    head: NamePairs,
    /// Whether learned positions begin after the id of the padding token, as in RoBERTa.
    pub(super) pads_positions: bool,
}

/// Stored names of experts' matrices, one below the other, and GGUF's names.
const NOMIC_EXPERTS: NamePairs = &[
    ("mlp.experts.mlp.w1", "ffn_up_exps.weight"),
    ("mlp.experts.mlp.w2", "ffn_down_exps.weight"),
];
/// A bias of the sum of the chosen experts, which is not read. llama.cpp's converter leaves it out, too.
const NOMIC_EXPERTS_BIAS: &str = ".mlp.experts.bias";

/// Names of tensors that several classes share.
#[derive(Debug)]
struct Layout {
    outer: NamePairs,
    /// The prefix before the number of a layer.
    layers: &'static str,
    layer: NamePairs,
}

const BERT: Layout = Layout {
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ],
    layers: "encoder.layer.",
    layer: &[
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
        ("output.LayerNorm", "layer_output_norm"),
    ],
};

const NOMIC: Layout = Layout {
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("emb_ln", "token_embd_norm"),
    ],
    layers: "encoder.layers.",
    layer: &[
        ("attn.Wqkv", "attn_qkv"),
        ("attn.out_proj", "attn_output"),
        ("norm1", "attn_output_norm"),
        ("mlp.fc11", "ffn_up"),
        ("mlp.fc12", "ffn_gate"),
        ("mlp.fc2", "ffn_down"),
        ("norm2", "layer_output_norm"),
    ],
};

const NOMIC_MOE: Layout = Layout {
    outer: NOMIC.outer,
    layers: NOMIC.layers,
    layer: &[
        ("attn.Wqkv", "attn_qkv"),
        ("attn.out_proj", "attn_output"),
        ("norm1", "attn_output_norm"),
        ("mlp.fc1", "ffn_up"),
        ("mlp.fc2", "ffn_down"),
        ("mlp.router.layer", "ffn_gate_inp"),
        ("norm2", "layer_output_norm"),
    ],
};

/// Nomic's class where some layers have experts.
static NOMIC_WITH_EXPERTS: EncoderClass = EncoderClass {
    name: "NomicBertModel",
    kind: EncoderKind::NomicBertMoe,
    layout: &NOMIC_MOE,
    head: &[],
    pads_positions: false,
};

/// All classes.
pub(super) const ENCODER_CLASSES: &[EncoderClass] = &[
    EncoderClass {
        name: "BertModel",
        kind: EncoderKind::Bert,
        layout: &BERT,
        head: &[],
        pads_positions: false,
    },
    EncoderClass {
        name: "BertForSequenceClassification",
        kind: EncoderKind::Bert,
        layout: &BERT,
        head: &[("pooler.dense", "cls"), ("classifier", "cls.output")],
        pads_positions: false,
    },
    EncoderClass {
        name: "XLMRobertaModel",
        kind: EncoderKind::Bert,
        layout: &BERT,
        head: &[],
        pads_positions: true,
    },
    EncoderClass {
        name: "XLMRobertaForSequenceClassification",
        kind: EncoderKind::Bert,
        layout: &BERT,
        head: &[
            ("classifier.dense", "cls"),
            ("classifier.out_proj", "cls.output"),
        ],
        pads_positions: true,
    },
    EncoderClass {
        name: "NomicBertModel",
        kind: EncoderKind::NomicBert,
        layout: &NOMIC,
        head: &[],
        pads_positions: false,
    },
];

/// Beginnings of the base model's names in a model with a head.
const BASES: [&str; 2] = ["bert.", "roberta."];
/// Tensors that are not needed: the pooler of a base model, and buffers.
const UNUSED: [&str; 4] = [
    "pooler.dense.weight",
    "pooler.dense.bias",
    "embeddings.position_ids",
    "embeddings.token_type_ids",
];
/// Old names of the scale and the shift of a norm.
const OLD_KINDS: [(&str, &str); 2] = [("gamma", "weight"), ("beta", "bias")];

/// The class of this name. `has_experts`: whether some layers have experts.
pub(super) fn find(name: &str, has_experts: bool) -> Option<&'static EncoderClass> {
    let class = ENCODER_CLASSES.iter().find(|class| class.name == name)?;
    match class.kind {
        EncoderKind::NomicBert if has_experts => Some(&NOMIC_WITH_EXPERTS),
        _ => Some(class),
    }
}

impl EncoderClass {
    /// Whether the model scores documents.
    pub(super) fn ranks(&self) -> bool {
        !self.head.is_empty()
    }

    /// Meaning of a stored name.
    pub(super) fn named(&self, stored: &str) -> Named {
        let base = BASES.iter().find_map(|base| stored.strip_prefix(base));
        let stored = base.unwrap_or(stored);
        if let Some(name) = self.tensor_name(stored) {
            return Named::Tensor(name);
        }
        let is_table = stored.ends_with(".rotary_emb.inv_freq");
        let is_bias =
            self.kind == EncoderKind::NomicBertMoe && stored.ends_with(NOMIC_EXPERTS_BIAS);
        if is_table || is_bias || UNUSED.contains(&stored) {
            Named::Nothing
        } else {
            Named::Unknown
        }
    }

    /// Names of experts' matrices, which do not end with what they are.
    fn experts(&self) -> NamePairs {
        match self.kind {
            EncoderKind::NomicBertMoe => NOMIC_EXPERTS,
            _ => &[],
        }
    }

    fn tensor_name(&self, stored: &str) -> Option<String> {
        if let Some((layer, part)) = in_layer(stored, self.layout.layers)
            && let Some((_, ours)) = self.experts().iter().find(|(theirs, _)| *theirs == part)
        {
            return Some(format!("blk.{layer}.{ours}"));
        }
        let (part, kind) = stored.rsplit_once('.')?;
        let old = OLD_KINDS.iter().find(|(old, _)| *old == kind);
        let kind = old.map_or(kind, |(_, new)| new);
        if !["weight", "bias"].contains(&kind) {
            return None;
        }
        let ours = |names: NamePairs, part: &str| {
            let mut names = names.iter();
            names.find_map(|(theirs, ours)| (*theirs == part).then_some(*ours))
        };
        let layout = self.layout;
        if let Some(name) = ours(layout.outer, part).or_else(|| ours(self.head, part)) {
            return Some(format!("{name}.{kind}"));
        }
        let (layer, part) = in_layer(part, layout.layers)?;
        let name = ours(layout.layer, part)?;
        Some(format!("blk.{layer}.{name}.{kind}"))
    }

    /// The stored name of GGUF's tensor.
    pub(super) fn stored(&self, name: &str) -> Option<String> {
        if let Some((layer, part)) = in_layer(name, "blk.")
            && let Some((theirs, _)) = self.experts().iter().find(|(_, ours)| *ours == part)
        {
            return Some(format!("{}{layer}.{theirs}", self.layout.layers));
        }
        let (part, kind) = name.rsplit_once('.')?;
        let theirs = |names: NamePairs, part: &str| {
            let mut names = names.iter();
            names.find_map(|(theirs, ours)| (*ours == part).then_some(*theirs))
        };
        let layout = self.layout;
        if let Some(name) = theirs(layout.outer, part).or_else(|| theirs(self.head, part)) {
            return Some(format!("{name}.{kind}"));
        }
        let (layer, part) = part.strip_prefix("blk.")?.split_once('.')?;
        let name = theirs(layout.layer, part)?;
        Some(format!("{}{layer}.{name}.{kind}", layout.layers))
    }
}

/// The number of a layer and the name of a part of the layer.
fn in_layer<'a>(name: &'a str, layers: &str) -> Option<(&'a str, &'a str)> {
    let (layer, part) = name.strip_prefix(layers)?.split_once('.')?;
    is_number(layer).then_some((layer, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_encoders_round_trip() {
        for (class, stored, ours) in [
            (
                "BertModel",
                "embeddings.LayerNorm.bias",
                "token_embd_norm.bias",
            ),
            (
                "BertModel",
                "encoder.layer.11.output.dense.weight",
                "blk.11.ffn_down.weight",
            ),
            (
                "BertForSequenceClassification",
                "pooler.dense.bias",
                "cls.bias",
            ),
            (
                "BertForSequenceClassification",
                "classifier.weight",
                "cls.output.weight",
            ),
            (
                "XLMRobertaForSequenceClassification",
                "classifier.dense.bias",
                "cls.bias",
            ),
            (
                "NomicBertModel",
                "encoder.layers.0.mlp.fc12.weight",
                "blk.0.ffn_gate.weight",
            ),
            (
                "with experts",
                "encoder.layers.0.mlp.fc1.bias",
                "blk.0.ffn_up.bias",
            ),
            (
                "with experts",
                "encoder.layers.1.mlp.router.layer.weight",
                "blk.1.ffn_gate_inp.weight",
            ),
            (
                "with experts",
                "encoder.layers.11.mlp.experts.mlp.w2",
                "blk.11.ffn_down_exps.weight",
            ),
        ] {
            let class = class_of(class);
            assert_eq!(
                class.named(stored),
                Named::Tensor(ours.to_owned()),
                "{stored}"
            );
            assert_eq!(class.stored(ours).as_deref(), Some(stored), "{ours}");
        }
    }

    #[test]
    fn other_spellings_and_unused_tensors_are_known() {
        let tensor = |name: &str| Named::Tensor(name.to_owned());
        for (class, stored, expected) in [
            (
                "BertModel",
                "bert.embeddings.LayerNorm.gamma",
                tensor("token_embd_norm.weight"),
            ),
            (
                "BertModel",
                "embeddings.LayerNorm.beta",
                tensor("token_embd_norm.bias"),
            ),
            ("BertModel", "pooler.dense.weight", Named::Nothing),
            ("BertModel", "embeddings.position_ids", Named::Nothing),
            ("BertModel", "classifier.weight", Named::Unknown),
            (
                "BertModel",
                "encoder.layer.x.output.dense.weight",
                Named::Unknown,
            ),
            (
                "BertModel",
                "encoder.layer.0.output.dense.scale",
                Named::Unknown,
            ),
            (
                "XLMRobertaForSequenceClassification",
                "roberta.encoder.layer.0.attention.self.key.weight",
                tensor("blk.0.attn_k.weight"),
            ),
            (
                "NomicBertModel",
                "encoder.layers.0.mlp.experts.mlp.w1",
                Named::Unknown,
            ),
            (
                "with experts",
                "encoder.layers.x.mlp.experts.mlp.w1",
                Named::Unknown,
            ),
            (
                "with experts",
                "encoder.layers.1.mlp.experts.bias",
                Named::Nothing,
            ),
        ] {
            assert_eq!(class_of(class).named(stored), expected, "{class} {stored}");
        }
    }

    fn class_of(name: &str) -> &'static EncoderClass {
        match name {
            "with experts" => find("NomicBertModel", true).unwrap(),
            name => find(name, false).unwrap(),
        }
    }
}
