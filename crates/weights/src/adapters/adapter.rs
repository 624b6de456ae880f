//! A checked adapter of a model.

use super::{ADAPTER_RANK_MAX, AdapterError, HalfSide, StoredAdapter, StoredHalf, gguf};
use crate::safetensors::peft;
use crate::{Config, ModelFiles};
use model::adapters::ADAPTER_SCALE_MAX;
use std::collections::BTreeMap;
use std::path::Path;

/// Projections that an adapter may change, by the part of a tensor's name.
const PARTS: [&str; 11] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
];

/// Rows of a matrix are packed in panels of this many.
const PANEL_ROWS: usize = 16;

/// An adapter whose pairs fit the tensors of a model.
#[derive(Debug)]
pub struct Adapter {
    /// By the name of the tensor.
    pairs: BTreeMap<String, LowRank>,
}

/// The change of one tensor: `scale * B A`.
#[derive(Debug)]
pub(crate) struct LowRank {
    pub(crate) rank: usize,
    pub(crate) scale: f32,
    /// `A`, (rank, inputs).
    pub(crate) down: Vec<f32>,
    /// `B`, (outputs, rank).
    pub(crate) up: Vec<f32>,
}

impl Adapter {
    /// Reads the adapter in `path`, a GGUF or a folder of PEFT's (`adapter_config.json` and `adapter_model.safetensors`;
    /// either file may be given), and checks that the adapter fits the model.
    ///
    /// # Errors
    /// The file cannot be read, is for another architecture, or has a tensor that the model does not have in this shape.
    pub fn open(path: &Path, base: &ModelFiles, config: &Config) -> Result<Self, AdapterError> {
        let stored = match peft::folder_of(path) {
            Some(folder) => peft::read(&folder, config)?,
            None => gguf::read(path, config.architecture)?,
        };
        Self::of_stored(stored, base, config)
    }

    /// Bytes of the numbers in f32.
    pub fn bytes(&self) -> usize {
        let numbers = self.pairs.values();
        let numbers = numbers.map(|pair| pair.down.len() + pair.up.len());
        numbers.sum::<usize>() * size_of::<f32>()
    }

    /// Bytes of the packed pairs, in which rows are padded.
    pub fn packed_bytes(&self) -> usize {
        self.pairs.values().map(LowRank::packed_bytes).sum()
    }

    /// The greatest rank.
    pub fn rank(&self) -> usize {
        self.pairs.values().map(|pair| pair.rank).max().unwrap_or(0)
    }

    /// The adapter's content, for a hash: names, sizes and numbers in one order.
    pub fn content(&self) -> impl Iterator<Item = (&str, f32, [&[f32]; 2])> {
        let pairs = self.pairs.iter();
        pairs.map(|(name, pair)| (name.as_str(), pair.scale, [&pair.down[..], &pair.up[..]]))
    }

    /// The change of the tensor of this name.
    pub(crate) fn pair(&self, name: &str) -> Option<&LowRank> {
        self.pairs.get(name)
    }

    fn of_stored(
        stored: StoredAdapter,
        base: &ModelFiles,
        config: &Config,
    ) -> Result<Self, AdapterError> {
        let StoredAdapter {
            file,
            halves,
            scale,
        } = stored;
        let mut found: BTreeMap<String, [Option<StoredHalf>; 2]> = BTreeMap::new();
        for half in halves {
            let side = usize::from(half.side == HalfSide::B);
            let place = &mut found.entry(half.target.clone()).or_default()[side];
            if place.is_some() {
                return Err(AdapterError::tensor(&file, &half.name, "is there twice"));
            }
            *place = Some(half);
        }
        let mut pairs = BTreeMap::new();
        for (name, halves) in found {
            let [a, b] = match halves {
                [Some(a), Some(b)] => [a, b],
                [one, other] => {
                    let missing = if one.is_some() { "B" } else { "A" };
                    let there = one.or(other).map(|half| half.name).unwrap_or_default();
                    let why = format!("has no matrix {missing} beside it");
                    return Err(AdapterError::tensor(&file, &there, why));
                }
            };
            check_pair(&file, &name, (&a, &b), base, config)?;
            let rank = a.rows;
            let factor = scale.factor(rank);
            if !(-ADAPTER_SCALE_MAX..=ADAPTER_SCALE_MAX).contains(&factor) {
                let why = format!(
                    "has scale {factor} (alpha and rank), must be -{ADAPTER_SCALE_MAX} to {ADAPTER_SCALE_MAX}"
                );
                return Err(AdapterError::tensor(&file, &a.name, why));
            }
            if is_read(config, &name) {
                let pair = LowRank {
                    rank,
                    scale: factor,
                    down: a.numbers,
                    up: b.numbers,
                };
                pairs.insert(name, pair);
            }
        }
        if pairs.is_empty() {
            return Err(AdapterError::new(&file, "has no low-rank pairs"));
        }
        Ok(Self { pairs })
    }
}

impl LowRank {
    fn packed_bytes(&self) -> usize {
        let (inputs, outputs) = (self.down.len() / self.rank, self.up.len() / self.rank);
        let padded = |rows: usize| rows.next_multiple_of(PANEL_ROWS);
        (padded(self.rank) * inputs + padded(outputs) * self.rank) * size_of::<f32>()
    }
}

/// Checks names, shapes and numbers of a pair.
fn check_pair(
    file: &Path,
    name: &str,
    (a, b): (&StoredHalf, &StoredHalf),
    base: &ModelFiles,
    config: &Config,
) -> Result<(), AdapterError> {
    let Some(tensor) = base.tensor(name) else {
        let why = format!("changes `{name}`, which the model does not have");
        return Err(AdapterError::tensor(file, &a.name, why));
    };
    if !is_supported(config, name) {
        let why = format!("changes `{name}`; adapters of this tensor are not supported");
        return Err(AdapterError::tensor(file, &a.name, why));
    }
    let shape = |half: &StoredHalf, wanted: [usize; 2]| {
        let found = [half.rows, half.cols];
        if found == wanted {
            return Ok(());
        }
        let why = format!("has shape {found:?}, must have {wanted:?}");
        Err(AdapterError::tensor(file, &half.name, why))
    };
    let rank = a.rows;
    if !(1..=ADAPTER_RANK_MAX).contains(&rank) {
        let why = format!("has rank {rank}, must have 1 to {ADAPTER_RANK_MAX}");
        return Err(AdapterError::tensor(file, &a.name, why));
    }
    shape(a, [rank, tensor.dims[0] as usize])?;
    shape(b, [tensor.rows(), rank])?;
    for half in [a, b] {
        if let Some(at) = half.numbers.iter().position(|number| !number.is_finite()) {
            let why = format!("has element {at}, which is not a number");
            return Err(AdapterError::tensor(file, &half.name, why));
        }
    }
    Ok(())
}

/// The layer and the part of a tensor's name.
fn layer_and_part(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest.strip_suffix(".weight")?))
}

/// Whether a tensor of this name is a projection that an adapter may change.
pub fn is_projection(name: &str) -> bool {
    layer_and_part(name).is_some_and(|(_, part)| PARTS.contains(&part))
}

fn is_supported(config: &Config, name: &str) -> bool {
    is_projection(name)
        && layer_and_part(name).is_some_and(|(layer, part)| {
            let recurrent = config.recurrent.as_ref();
            let is_recurrent = recurrent.is_some_and(|r| r.layers.get(layer) == Some(&true));
            // Rows of queries and of their gate alternate in one tensor.
            let is_gated = config.traits.gated_attention && part == "attn_q";
            let mixes_otherwise = is_recurrent || config.latent.is_some();
            layer < config.layers && !is_gated && (!mixes_otherwise || part.starts_with("ffn_"))
        })
}

/// Whether the decoder reads the tensor: a layer that reads the keys and values of an earlier one has projections in the file
/// that the model was trained without, and so may an adapter.
fn is_read(config: &Config, name: &str) -> bool {
    layer_and_part(name).is_none_or(|(layer, part)| {
        config.shapes[layer].kv_layer == layer || !matches!(part, "attn_k" | "attn_v")
    })
}
