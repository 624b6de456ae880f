//! Tensors of decoders with recurrent layers that differ from GGUF's in more than their names.
//!
//! ```text
//! A_log              the negative of its exponential function, in f32
//! conv1d             the middle one of three dimensions, which is 1, is left out
//! norms of Qwen      1 is added, except to those of gated DeltaNet's outputs
//! heads of Qwen 3.5  GGUF has the first value head of every key head, then the second of every one, and so on
//! Mamba-2's norm     one row for each group of heads
//! Granite's shared   gate and up projection are one tensor, the gate's rows first
//! Falcon H1          factors of embeddings, projections and logits are within GGUF's weights
//! ```
//!
//! Source: llama.cpp's `convert_hf_to_gguf.py`, the classes of these models.

use super::conversion::{Change, TAPS_OF_SCAN};
use super::described::ModelDescription;
use crate::Architecture;
use half::{bf16, f16};
use kernels::{Format, Pool};

/// How the tensors of a model with recurrent layers are stored.
#[derive(Debug, Default)]
pub(super) struct RecurrentSaved {
    /// The order of value heads, where GGUF has another.
    pub(super) order: Option<ValueHeads>,
    /// Groups of heads of Mamba-2 with a norm each.
    pub(super) groups: u32,
    /// Whether the norm of Mamba-2 is required by `config.json`, though some models of the family have none.
    pub(super) needs_norm: bool,
    /// Whether gate and up projection of the feed-forward part that every row uses are one tensor.
    pub(super) fused_feed: bool,
    /// Whether that part is beside experts.
    pub(super) has_experts: bool,
    /// The layer of the MTP head, after the others.
    pub(super) mtp_layer: Option<u32>,
    /// Factors of rows, by the name of the part in GGUF.
    pub(super) factors: Vec<(&'static str, RowFactors)>,
}

/// Key heads and value heads of gated DeltaNet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueHeads {
    pub(super) key_heads: u32,
    pub(super) value_heads: u32,
    /// Elements of a head of keys, and of values.
    pub(super) dim: u32,
}

/// The order of heads along one dimension: the first elements stay, and heads follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadOrder {
    first: u32,
    key_heads: u16,
    per_key: u16,
    dim: u32,
}

impl ValueHeads {
    /// The order of heads of `dim` elements each, after `first` elements; an error for a dimension of another length.
    fn order(self, (first, dim): (u32, u32), len: u64) -> Result<HeadOrder, String> {
        let all = u64::from(self.value_heads) * u64::from(dim) + u64::from(first);
        if len != all {
            return Err(format!(
                "has {len} elements along its heads, must have {all}"
            ));
        }
        let per_key = self.value_heads.checked_div(self.key_heads);
        // Bounded and divisible: checked with the keys.
        Ok(HeadOrder {
            first,
            key_heads: self.key_heads as u16,
            per_key: per_key.unwrap_or_default() as u16,
            dim,
        })
    }

    /// Elements of queries and keys, which precede the values.
    fn before_values(self) -> u32 {
        self.key_heads.saturating_mul(2).saturating_mul(self.dim)
    }
}

impl HeadOrder {
    /// The stored element for element `at`.
    pub(super) fn source(self, at: usize) -> usize {
        let (first, dim) = (self.first as usize, self.dim as usize);
        let Some(behind) = at.checked_sub(first) else {
            return at;
        };
        let (key_heads, per_key) = (usize::from(self.key_heads), usize::from(self.per_key));
        let (head, element) = (behind / dim, behind % dim);
        let source = head % key_heads * per_key + head / key_heads;
        first + source * dim + element
    }

    /// Rows of `cols` columns in this order.
    pub(super) fn columns(
        self,
        format: Format,
        raw: &[u8],
        cols: usize,
        pool: &mut Pool,
    ) -> Vec<u8> {
        let width = format.block_bytes();
        let row_bytes = cols * width;
        let mut out = vec![0; raw.len()];
        pool.rows(&mut out, row_bytes, |row, out| {
            let stored = &raw[row * row_bytes..][..row_bytes];
            for (at, out) in out.chunks_exact_mut(width).enumerate() {
                out.copy_from_slice(&stored[self.source(at) * width..][..width]);
            }
        });
        out
    }
}

/// Factors of ranges of rows, each with the row after its last one; the last one is of all further rows.
#[derive(Clone, Debug, Default)]
pub(super) struct RowFactors(pub(super) Vec<(usize, f32)>);

impl RowFactors {
    /// One factor of all rows.
    pub(super) fn all(factor: f32) -> Self {
        Self(vec![(usize::MAX, factor)])
    }

    fn factor(&self, row: usize) -> f32 {
        let found = self.0.iter().find(|(end, _)| row < *end);
        found.or(self.0.last()).map_or(1.0, |(_, factor)| *factor)
    }

    /// The numbers of rows of `cols` columns times their factors, rounded to the same format.
    pub(super) fn apply(
        &self,
        format: Format,
        raw: &[u8],
        cols: usize,
        pool: &mut Pool,
    ) -> Vec<u8> {
        let row_bytes = cols * format.block_bytes();
        let mut out = vec![0; raw.len()];
        pool.rows(&mut out, row_bytes, |row, out| {
            let factor = self.factor(row);
            let stored = &raw[row * row_bytes..][..row_bytes];
            let both = out
                .chunks_exact_mut(format.block_bytes())
                .zip(stored.chunks_exact(format.block_bytes()));
            for (out, number) in both {
                multiply(format, number, factor, out);
            }
        });
        out
    }
}

fn multiply(format: Format, number: &[u8], factor: f32, out: &mut [u8]) {
    match (format, number) {
        (Format::F32, &[a, b, c, d]) => {
            let product = f32::from_le_bytes([a, b, c, d]) * factor;
            out.copy_from_slice(&product.to_le_bytes());
        }
        (Format::F16, &[a, b]) => {
            let product = f16::from_le_bytes([a, b]).to_f32() * factor;
            out.copy_from_slice(&f16::from_f32(product).to_le_bytes());
        }
        (_, &[a, b]) => {
            let product = bf16::from_le_bytes([a, b]).to_f32() * factor;
            out.copy_from_slice(&bf16::from_f32(product).to_le_bytes());
        }
        _ => {}
    }
}

/// The conversion of a tensor with this GGUF name and shape, if a family with recurrent layers has one.
///
/// # Errors
/// A shape that the conversion does not fit.
pub(super) fn change(
    described: &ModelDescription,
    architecture: Architecture,
    name: &str,
    dims: &[u64],
) -> Result<Option<Change>, String> {
    let saved = &described.recurrent;
    let part = part_of(name);
    let rows = dims.last().copied().unwrap_or_default();
    if saved.fused_feed {
        let is_second = match part {
            "ffn_gate.weight" | "ffn_gate_shexp.weight" => Some(false),
            "ffn_up.weight" | "ffn_up_shexp.weight" => Some(true),
            _ => None,
        };
        if let Some(is_second) = is_second {
            return half(is_second, dims).map(Some);
        }
    }
    if let Some(list) = saved.factors.iter().position(|(name, _)| *name == part) {
        return Ok(Some(Change::Scaled { list: list as u8 }));
    }
    if is_qwen(architecture) && part.ends_with("norm.weight") && part != NORM {
        return Ok(Some(Change::PlusOne));
    }
    match (part, saved.order) {
        ("ssm_a", None) => Ok(Some(Change::Decay(None))),
        ("ssm_a", Some(heads)) => Ok(Some(Change::Decay(Some(heads.order((0, 1), rows)?)))),
        (NORM, _) if saved.groups > 1 => grouped(saved.groups, dims).map(Some),
        (_, heads) if name.ends_with(TAPS_OF_SCAN) => taps(heads, dims).map(Some),
        (_, None) => Ok(None),
        ("ssm_out.weight", Some(heads)) => {
            let cols = dims.first().copied().unwrap_or_default();
            let order = heads.order((0, heads.dim), cols)?;
            Ok(Some(Change::HeadCols(order)))
        }
        (part, Some(heads)) => {
            let place = match part {
                "attn_qkv.weight" => (heads.before_values(), heads.dim),
                "attn_gate.weight" => (0, heads.dim),
                "ssm_alpha.weight" | "ssm_beta.weight" | "ssm_dt.bias" => (0, 1),
                _ => return Ok(None),
            };
            Ok(Some(Change::HeadRows(heads.order(place, rows)?)))
        }
    }
}

/// The norm of a recurrent layer's output.
const NORM: &str = "ssm_norm.weight";

fn is_qwen(architecture: Architecture) -> bool {
    use Architecture::{Qwen3Next, Qwen35, Qwen35Moe};
    matches!(architecture, Qwen35 | Qwen35Moe | Qwen3Next)
}

/// A name without its layer.
fn part_of(name: &str) -> &str {
    let in_layer = name.strip_prefix("blk.");
    let part = in_layer.and_then(|rest| rest.split_once('.'));
    part.map_or(name, |(_, part)| part)
}

fn half(is_second: bool, dims: &[u64]) -> Result<Change, String> {
    match dims {
        [_, rows] if rows.is_multiple_of(2) => Ok(Change::Half { is_second }),
        _ => Err(format!(
            "has shape {dims:?} (columns first), must have two dimensions and an even number of rows"
        )),
    }
}

fn grouped(groups: u32, dims: &[u64]) -> Result<Change, String> {
    match dims {
        [len] if len.is_multiple_of(groups.into()) => Ok(Change::Grouped { groups }),
        _ => Err(format!(
            "has shape {dims:?}, must have one dimension, a multiple of the {groups} groups"
        )),
    }
}

/// Taps of a convolution, of shape (columns, 1, taps) as stored.
fn taps(heads: Option<ValueHeads>, dims: &[u64]) -> Result<Change, String> {
    let &[_, 1, cols] = dims else {
        return Err(format!(
            "has shape {dims:?} (taps first), must have three dimensions with 1 in the middle"
        ));
    };
    Ok(match heads {
        None => Change::Squeezed,
        Some(heads) => Change::HeadRows(heads.order((heads.before_values(), heads.dim), cols)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_heads_of_a_key_head_are_stored_together() {
        let heads = ValueHeads {
            key_heads: 2,
            value_heads: 6,
            dim: 4,
        };
        let order = heads.order((0, 1), 6).unwrap();
        let sources: Vec<usize> = (0..6).map(|head| order.source(head)).collect();
        assert_eq!(sources, [0, 3, 1, 4, 2, 5]);
        // Queries and keys of two heads stay.
        let order = heads.order((heads.before_values(), 4), 40).unwrap();
        assert_eq!(order.source(15), 15);
        assert_eq!(order.source(16 + 4 + 3), 16 + 12 + 3);
        let why = heads.order((0, 4), 25).unwrap_err();
        assert_eq!(why, "has 25 elements along its heads, must have 24");
    }

    #[test]
    fn orders_are_permutations() {
        for (key_heads, value_heads, dim) in [(1, 1, 3), (1, 4, 2), (4, 4, 2), (3, 12, 5)] {
            let heads = ValueHeads {
                key_heads,
                value_heads,
                dim,
            };
            let all = value_heads * dim + 7;
            let order = heads.order((7, dim), all.into()).unwrap();
            let mut sources: Vec<usize> = (0..all as usize).map(|at| order.source(at)).collect();
            sources.sort_unstable();
            assert!(sources.into_iter().eq(0..all as usize));
        }
    }

    #[test]
    fn factors_end_where_the_next_ones_begin() {
        let factors = RowFactors(vec![(1, 2.0), (2, 4.0), (usize::MAX, 0.5)]);
        let raw: Vec<u8> = [1.0f32, 1.0, 1.0, 3.0]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        let found = factors.apply(Format::F32, &raw, 1, &mut Pool::new(1));
        let wanted: Vec<u8> = [2.0f32, 4.0, 0.5, 1.5]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        assert_eq!(found, wanted);
    }
}
