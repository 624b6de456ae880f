//! A class of transformers that sees images: the projector, and the names of the tower's tensors.

use super::names::{Named, is_number};

/// Classes with one kind of tower.
#[derive(Debug)]
pub(super) struct TowerClass {
    /// Classes of transformers.
    pub(super) names: &'static [&'static str],
    /// `model_type` of `vision_config`; empty: any.
    pub(super) model_type: &'static str,
    /// The projector's name in GGUF.
    pub(super) projector: &'static str,
    /// Beginnings of names that belong to the tower, without `model.`; other tensors are the text's.
    pub(super) starts: &'static [&'static str],
    /// Beginnings of names of tensors that are not needed.
    pub(super) unused: &'static [&'static str],
    /// Tensors outside of layers: `(theirs, ours)`, weights and biases.
    pub(super) outer: &'static [(&'static str, &'static str)],
    /// Tensors outside of layers, by their whole names.
    pub(super) bare: &'static [(&'static str, &'static str)],
    /// Text before the number of a layer.
    pub(super) layers: &'static str,
    /// Parts of a layer that are one tensor, by their whole names.
    pub(super) bare_parts: &'static [(&'static str, &'static str)],
    /// Parts of a layer, with weights and biases.
    pub(super) parts: &'static [(&'static str, &'static str)],
    /// Integers of `vision_config`: the field, the key after `clip.vision.`, and the class's default.
    pub(super) numbers: &'static [(&'static str, &'static str, u32)],
}

/// Parts of a layer of SigLIP, CLIP and their heirs.
pub(super) const SIGLIP_PARTS: &[(&str, &str)] = &[
    ("layer_norm1", "ln1"),
    ("layer_norm2", "ln2"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];
/// Integers of SigLIP.
pub(super) const SIGLIP_NUMBERS: &[(&str, &str, u32)] = &[
    ("hidden_size", "embedding_length", 768),
    ("intermediate_size", "feed_forward_length", 3072),
    ("num_hidden_layers", "block_count", 12),
    ("num_attention_heads", "attention.head_count", 12),
    ("patch_size", "patch_size", 16),
    ("image_size", "image_size", 224),
];
/// Text before and after the number of a merger for a further text layer, in GGUF before its layer's.
const DEEPSTACK: (&str, &str) = ("visual.deepstack_merger_list.", "v.deepstack.");
const DEEPSTACK_PARTS: &[(&str, &str)] = &[
    ("norm", "norm"),
    ("linear_fc1", "fc1"),
    ("linear_fc2", "fc2"),
];

/// Names of the bounds of a matrix's inputs and outputs, and what follows the matrix's name where a matrix has bounds.
pub(super) const BOUNDS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];
const BOUNDED: &str = ".linear";

impl TowerClass {
    /// GGUF's name for a stored tensor. `deepstack`: the layers after which there are rows for further text layers.
    pub(super) fn named(&self, deepstack: &[u32], stored: &str) -> Named {
        let name = plain(stored);
        let is_unused = self.unused.iter().any(|start| name.starts_with(start));
        // Old files have the numbers of places as a tensor.
        if is_unused || name.ends_with(".position_ids") || !self.starts_any(&name) {
            return Named::Nothing;
        }
        if let Some((_, ours)) = self.bare.iter().find(|(theirs, _)| *theirs == name) {
            return Named::Tensor((*ours).to_owned());
        }
        let bare_part = || {
            let (layer, part) = name.strip_prefix(self.layers)?.split_once('.')?;
            let ours = find_part(self.bare_parts, part).filter(|_| is_number(layer))?;
            Some(format!("v.blk.{layer}.{ours}"))
        };
        if let Some(ours) = bare_part() {
            return Named::Tensor(ours);
        }
        let found = || {
            let (whole, kind) = name.rsplit_once('.')?;
            if BOUNDS.contains(&kind) {
                let (layer, part) = whole.strip_prefix(self.layers)?.split_once('.')?;
                let ours = find_part(self.parts, &format!("{part}{BOUNDED}"))?;
                return is_number(layer).then(|| format!("v.blk.{layer}.{ours}.{kind}"));
            }
            if !["weight", "bias"].contains(&kind) {
                return None;
            }
            if let Some((_, ours)) = self.outer.iter().find(|(theirs, _)| *theirs == whole) {
                return Some(format!("{ours}.{kind}"));
            }
            if let Some(rest) = whole.strip_prefix(DEEPSTACK.0) {
                let (number, part) = rest.split_once('.')?;
                let layer = deepstack.get(number.parse::<usize>().ok()?)?;
                let ours = find_part(DEEPSTACK_PARTS, part)?;
                return Some(format!("{}{layer}.{ours}.{kind}", DEEPSTACK.1));
            }
            let (layer, part) = whole.strip_prefix(self.layers)?.split_once('.')?;
            let ours = find_part(self.parts, part).filter(|_| is_number(layer))?;
            Some(format!("v.blk.{layer}.{ours}.{kind}"))
        };
        found().map_or(Named::Unknown, Named::Tensor)
    }

    /// The stored name of GGUF's tensor, without what versions of transformers put before it.
    pub(super) fn stored(&self, name: &str) -> Option<String> {
        if let Some((theirs, _)) = self.bare.iter().find(|(_, ours)| *ours == name) {
            return Some((*theirs).to_owned());
        }
        let (whole, kind) = name.rsplit_once('.')?;
        if let Some((theirs, _)) = self.outer.iter().find(|(_, ours)| *ours == whole) {
            return Some(format!("{theirs}.{kind}"));
        }
        let (layer, part) = whole.strip_prefix("v.blk.")?.split_once('.')?;
        let (theirs, _) = self.parts.iter().find(|(_, ours)| *ours == part)?;
        let is_bound = BOUNDS.contains(&kind);
        let theirs = theirs
            .strip_suffix(BOUNDED)
            .filter(|_| is_bound)
            .unwrap_or(theirs);
        Some(format!("{}{layer}.{theirs}.{kind}", self.layers))
    }

    fn starts_any(&self, name: &str) -> bool {
        self.starts.iter().any(|start| name.starts_with(start))
    }
}

fn find_part(parts: &[(&str, &'static str)], theirs: &str) -> Option<&'static str> {
    let found = parts.iter().find(|(part, _)| *part == theirs);
    found.map(|(_, ours)| *ours)
}

/// A name without what versions of transformers put before the tower's.
pub(super) fn plain(stored: &str) -> std::borrow::Cow<'_, str> {
    const INNER: &str = "vision_tower.vision_model.";
    let stored = stored.strip_prefix("model.").unwrap_or(stored);
    match stored.strip_prefix(INNER) {
        Some(rest) => format!("vision_tower.{rest}").into(),
        None => stored.into(),
    }
}
