//! Classes of encoders in Hugging Face's implementations, and the names of their tensors: a class is a row.

use super::names::{Named, is_number};
use crate::encoder::EncoderKind;

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

/// Names of tensors that several classes share.
#[derive(Debug)]
struct Layout {
    outer: NamePairs,
    /// What is before the number of a layer.
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

/// The class of this name.
pub(super) fn find(name: &str) -> Option<&'static EncoderClass> {
    ENCODER_CLASSES.iter().find(|class| class.name == name)
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
        match is_table || UNUSED.contains(&stored) {
            true => Named::Nothing,
            false => Named::Unknown,
        }
    }

    fn tensor_name(&self, stored: &str) -> Option<String> {
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
        let (layer, part) = part.strip_prefix(layout.layers)?.split_once('.')?;
        let name = ours(layout.layer, part)?;
        is_number(layer).then(|| format!("blk.{layer}.{name}.{kind}"))
    }

    /// The stored name of GGUF's tensor.
    pub(super) fn stored(&self, name: &str) -> Option<String> {
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
        ] {
            let class = find(class).unwrap();
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
        ] {
            assert_eq!(
                find(class).unwrap().named(stored),
                expected,
                "{class} {stored}"
            );
        }
    }
}
