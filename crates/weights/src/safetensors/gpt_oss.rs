//! Tensors of gpt-oss that differ from GGUF's in more than their names: attention sinks and experts in MXFP4.
//!
//! Of `NAME_blocks`, shape `(experts, rows, blocks, 16)`, sixteen bytes are the 32 FP4 numbers of a block, two to a byte,
//! the first in the low bits; `NAME_scales`, shape `(experts, rows, blocks)`, has their E8M0 exponents. In GGUF a block is
//! its exponent and then numbers 0 and 16, 1 and 17, ... in one byte each. In `gate_up_proj` even rows are the gate's and
//! odd rows those of the up projection, and so are the elements of its bias.

use super::conversion::Change;
use super::error::SafetensorsError;
use super::fields::Fields;
use super::header::{Shard, StoredTensor, TensorShape};
use super::tensor::{Data, Tensor};
use crate::Architecture;
use crate::gguf::TensorKind;
use kernels::{Format, Pool};
use std::collections::HashMap;

/// Bytes of the 32 numbers of a block.
const NUMBERS_BYTES: usize = 16;
/// Weights of a block.
const BLOCK: u64 = 32;

/// Projections of experts as stored, and the tensors of GGUF that take their rows in turns.
const PROJECTIONS: [(&str, &[&str]); 2] = [
    ("gate_up_proj", &["ffn_gate_exps", "ffn_up_exps"]),
    ("down_proj", &["ffn_down_exps"]),
];

/// Number of a file, and of an entry in the file.
type Place = (u16, u32);

/// Rows of experts in blocks: each `step`-th row from row `first` on.
#[derive(Debug)]
pub(super) struct ExpertBlocks {
    pub(super) blocks: Place,
    scales: Place,
    first: u8,
    step: u8,
}

/// The name of a tensor of experts: `model.layers.LAYER.mlp.experts.PROJECTION_KIND`.
struct ExpertName<'a> {
    layer: &'a str,
    outputs: &'static [&'static str],
    kind: &'a str,
}

/// Whether the weights are quantized as the family's originals are.
pub(super) fn is_native_mxfp4(
    fields: &Fields<'_>,
    architecture: Architecture,
) -> Result<bool, SafetensorsError> {
    if architecture != Architecture::GptOss {
        return Ok(false);
    }
    const LIMIT: &str = "swiglu_limit";
    if let Some(other) = fields.float(LIMIT)?.filter(|limit| *limit != 7.0) {
        return Err(fields.wrong(LIMIT, format!("is {other}, must be 7")));
    }
    let Some(config) = fields.object("quantization_config")? else {
        return Ok(false);
    };
    Ok(config.text("quant_method")? == Some("mxfp4"))
}

/// Whether [`tensors`] makes this entry's tensors.
pub(super) fn is_part(architecture: Architecture, name: &str) -> bool {
    architecture == Architecture::GptOss
        && (name.contains(".mlp.experts.") || name.ends_with(".self_attn.sinks"))
}

/// Sinks and experts of a model of this architecture.
///
/// # Errors
/// The entry with another kind or shape, or without its counterpart.
pub(super) fn tensors(
    architecture: Architecture,
    shards: &[Shard],
) -> Result<Vec<Tensor>, SafetensorsError> {
    let mut parts = HashMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let entries = shard.entries.iter().enumerate();
        for (at, entry) in entries.filter(|(_, entry)| is_part(architecture, &entry.name)) {
            parts.insert(entry.name.as_str(), (number as u16, at as u32));
        }
    }
    let mut found = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        for (at, entry) in shard.entries.iter().enumerate() {
            if is_part(architecture, &entry.name) {
                let entry = Entry {
                    shards,
                    parts: &parts,
                    place: (number as u16, at as u32),
                    stored: entry,
                };
                entry.add(&mut found)?;
            }
        }
    }
    Ok(found)
}

/// An entry, beside the others.
struct Entry<'a> {
    shards: &'a [Shard],
    parts: &'a HashMap<&'a str, Place>,
    place: Place,
    stored: &'a StoredTensor,
}

impl Entry<'_> {
    fn add(&self, found: &mut Vec<Tensor>) -> Result<(), SafetensorsError> {
        let name = &self.stored.name;
        if let Some(layer) = layer_of(name, "self_attn.sinks") {
            let dims = self.stored.shape;
            found.push(self.floats(
                format!("blk.{layer}.attn_sinks.weight"),
                dims,
                stored(self.place),
            )?);
            return Ok(());
        }
        let Some(expert) = ExpertName::parse(name) else {
            return Err(self.wrong("has no part in gpt-oss, whose experts are stored in blocks"));
        };
        match expert.kind {
            "blocks" => self.add_blocks(&expert, found),
            "scales" => self.counterpart("_scales", "_blocks").map(|_| ()),
            _ => self.add_biases(&expert, found),
        }
    }

    /// Weights, from an entry of blocks and one of scales.
    fn add_blocks(
        &self,
        expert: &ExpertName<'_>,
        found: &mut Vec<Tensor>,
    ) -> Result<(), SafetensorsError> {
        let scales = self.counterpart("_blocks", "_scales")?;
        let other = self.entry(scales);
        for entry in [self.stored, other] {
            if entry.kind.name() != "U8" {
                let why = format!("is stored as {}, must be U8", entry.kind.name());
                return Err(self.wrong(why));
            }
        }
        let (shape, step) = (self.stored.shape.as_slice(), expert.outputs.len());
        let &[count, rows, blocks, 16] = shape else {
            let why = format!("has shape {shape:?}, must end with blocks of {NUMBERS_BYTES} bytes");
            return Err(self.wrong(why));
        };
        let scales_shape = other.shape.as_slice();
        if scales_shape != &shape[..3] || shape.contains(&0) || !rows.is_multiple_of(step as u64) {
            let why =
                format!("has shape {shape:?}, which does not fit scales of shape {scales_shape:?}");
            return Err(self.wrong(why));
        }
        let dims = TensorShape::of([blocks * BLOCK, rows / step as u64, count]);
        for (first, output) in expert.outputs.iter().enumerate() {
            found.push(Tensor {
                name: format!("blk.{}.{output}.weight", expert.layer),
                dims,
                kind: TensorKind::from(Format::MXFP4),
                data: Data::Blocks(ExpertBlocks {
                    blocks: self.place,
                    scales,
                    first: first as u8,
                    step: step as u8,
                }),
                change: Change::None,
            });
        }
        Ok(())
    }

    /// Biases, whose elements may be those of two projections in turns.
    fn add_biases(
        &self,
        expert: &ExpertName<'_>,
        found: &mut Vec<Tensor>,
    ) -> Result<(), SafetensorsError> {
        let (shape, step) = (self.stored.shape.as_slice(), expert.outputs.len());
        let &[count, cols] = shape else {
            let why = format!("has shape {shape:?}, must have two dimensions");
            return Err(self.wrong(why));
        };
        if !cols.is_multiple_of(step as u64) {
            return Err(self.wrong(format!("has {cols} columns, must have an even number")));
        }
        for (first, output) in expert.outputs.iter().enumerate() {
            let name = format!("blk.{}.{output}.bias", expert.layer);
            let dims = TensorShape::of([cols / step as u64, count]);
            let data = match step {
                1 => stored(self.place),
                _ => Data::EverySecond {
                    place: self.place,
                    first: first as u8,
                },
            };
            found.push(self.floats(name, dims, data)?);
        }
        Ok(())
    }

    /// A tensor of the entry's format.
    fn floats(
        &self,
        name: String,
        dims: TensorShape,
        data: Data,
    ) -> Result<Tensor, SafetensorsError> {
        let kind = self.stored.kind;
        let Some(format) = kind.format() else {
            let why = format!("is stored as {}, must be F32, F16 or BF16", kind.name());
            return Err(self.wrong(why));
        };
        if !(1..=2).contains(&dims.as_slice().len()) || dims.as_slice().contains(&0) {
            let shape = self.stored.shape.as_slice();
            return Err(self.wrong(format!("has shape {shape:?}, which is not expected")));
        }
        Ok(Tensor {
            name,
            dims,
            kind: format.into(),
            data,
            change: Change::None,
        })
    }

    /// The entry with another ending.
    fn counterpart(&self, from: &str, to: &str) -> Result<Place, SafetensorsError> {
        let base = self.stored.name.strip_suffix(from).unwrap_or_default();
        let name = format!("{base}{to}");
        let found = self.parts.get(name.as_str()).copied();
        found.ok_or_else(|| self.wrong(format!("is there without `{name}`")))
    }

    fn entry(&self, (shard, entry): Place) -> &StoredTensor {
        &self.shards[usize::from(shard)].entries[entry as usize]
    }

    fn wrong(&self, why: impl Into<String>) -> SafetensorsError {
        let path = &self.shards[usize::from(self.place.0)].path;
        SafetensorsError::tensor(path, &self.stored.name, why.into())
    }
}

fn stored((shard, entry): Place) -> Data {
    Data::Stored { shard, entry }
}

/// The number of the layer whose part has this name.
fn layer_of<'a>(name: &'a str, part: &str) -> Option<&'a str> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let is_number = !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && rest == part).then_some(layer)
}

impl<'a> ExpertName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (_, part) = name.split_once(".mlp.experts.")?;
        let (projection, kind) = part.rsplit_once('_')?;
        let layer = layer_of(name, &format!("mlp.experts.{part}"))?;
        let mut all = PROJECTIONS.iter();
        let (_, outputs) = all.find(|(known, _)| *known == projection)?;
        let known = ["blocks", "scales", "bias"].contains(&kind);
        known.then_some(Self {
            layer,
            outputs,
            kind,
        })
    }
}

impl ExpertBlocks {
    /// The rows as GGUF stores them.
    pub(super) fn pack(&self, shards: &[Shard], dims: &[u64], pool: &mut Pool) -> Vec<u8> {
        let bytes = |(shard, entry): Place| {
            let shard = &shards[usize::from(shard)];
            // In range: compared with the file's length when the file was mapped.
            &shard.source.bytes()[shard.entries[entry as usize].bytes.clone()]
        };
        let (numbers, scales) = (bytes(self.blocks), bytes(self.scales));
        let [cols, rows, count] = [0, 1, 2].map(|at| dims[at] as usize);
        let blocks = cols / BLOCK as usize;
        let row_bytes = blocks * Format::MXFP4.block_bytes();
        let mut out = vec![0; count * rows * row_bytes];
        let (first, step) = (usize::from(self.first), usize::from(self.step));
        pool.rows(&mut out, row_bytes, |row, out| {
            let source = (row * step + first) * blocks;
            let all = out.chunks_exact_mut(Format::MXFP4.block_bytes());
            for (at, out) in (source..).zip(all) {
                out[0] = scales[at];
                let numbers = &numbers[at * NUMBERS_BYTES..][..NUMBERS_BYTES];
                let number = |i: usize| numbers[i / 2] >> (i % 2 * 4) & 15;
                for (i, out) in out[1..].iter_mut().enumerate() {
                    *out = number(i) | number(i + NUMBERS_BYTES) << 4;
                }
            }
        });
        out
    }
}
