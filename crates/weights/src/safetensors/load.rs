//! Loading of a tensor's bytes: reordered, converted and quantized.

use super::Safetensors;
use super::conversion::Change;
use super::recurrent::HeadOrder;
use super::tensor::{Data, Tensor};
use crate::LoadError;
use half::{bf16, f16};
use kernels::{Format, NonFiniteWeight, Pool, requantize_rows};
use std::borrow::Cow;

impl Safetensors {
    /// The bytes of a tensor in its kind; empty for an unknown tensor.
    pub(crate) fn read(&self, name: &str, pool: &mut Pool) -> Result<Cow<'_, [u8]>, LoadError> {
        let Some(tensor) = self.tensor(name) else {
            return Ok(Cow::Borrowed(&[]));
        };
        let Some((shard, entry)) = self.stored(&tensor.data) else {
            let Data::Made(values) = &tensor.data else {
                return Ok(Cow::Borrowed(&[]));
            };
            return Ok(put(values.iter().copied()));
        };
        // In range: compared with the file's length when the file was mapped.
        let raw = &shard.source.bytes()[entry.bytes.clone()];
        match &tensor.data {
            Data::Blocks(blocks) => {
                let dims = tensor.dims.as_slice();
                return Ok(Cow::Owned(blocks.pack(&self.shards, dims, pool)));
            }
            Data::Rows { rows, .. } => {
                let row_bytes = entry.bytes.len() / entry.shape.as_slice()[0] as usize;
                let rows = rows
                    .iter()
                    .flat_map(|row| &raw[*row as usize * row_bytes..][..row_bytes]);
                return Ok(Cow::Owned(rows.copied().collect()));
            }
            Data::EverySecond { first, .. } => {
                return Ok(Cow::Owned(every_second(entry.kind.format(), raw, *first)));
            }
            _ => {}
        }
        match (entry.kind.format(), tensor.kind.format()) {
            (Some(from), Some(to)) => self.converted(tensor, (from, raw), to, pool),
            _ => Ok(Cow::Borrowed(raw)),
        }
    }

    /// A tensor's bytes in format `to`, from those in the file.
    fn converted<'a>(
        &self,
        tensor: &Tensor,
        (from, raw): (Format, &'a [u8]),
        to: Format,
        pool: &mut Pool,
    ) -> Result<Cow<'a, [u8]>, LoadError> {
        let cols = match tensor.dims.as_slice() {
            [cols, _] | [cols, _, _] => *cols as usize,
            _ => 1,
        };
        let raw = match tensor.change {
            Change::PlusOne => {
                return Ok(put(floats(from, raw).map(|number| number + 1.0)));
            }
            Change::Turned
            | Change::Stacked {
                is_turned: true, ..
            } => Cow::Owned(turned_matrices(pool, from, raw, tensor.dims.as_slice())),
            Change::ChannelsLast { edge } | Change::Planes { edge } => {
                let area = u64::from(edge) * u64::from(edge);
                Cow::Owned(turned_matrices(pool, from, raw, &[area, 3, 1]))
            }
            Change::Decay(order) => return Ok(put(decays(from, raw, order).into_iter())),
            Change::HeadCols(order) => Cow::Owned(order.columns(from, raw, cols, pool)),
            Change::Scaled { list } => {
                let factors = &self.factors[usize::from(list)];
                Cow::Owned(factors.apply(from, raw, cols, pool))
            }
            // In range: the shape was checked with the conversion.
            Change::Without { rows } => Cow::Borrowed(&raw[rows * cols * from.block_bytes()..]),
            Change::Half { is_second } => {
                let (first, second) = raw.split_at(raw.len() / 2);
                Cow::Borrowed(if is_second { second } else { first })
            }
            _ => Cow::Borrowed(raw),
        };
        let keeps_rows = !matches!(
            tensor.change,
            Change::Pairs { .. } | Change::HeadRows(_) | Change::Tables { .. }
        );
        if from == to && keeps_rows {
            return Ok(raw);
        }
        let row_of = |row| tensor.change.row_of(row);
        requantize_rows(pool, (from, &raw[..]), cols, to, row_of)
            .map(Cow::Owned)
            .map_err(|NonFiniteWeight(index)| LoadError::Value {
                tensor: self.label(&tensor.name),
                index,
            })
    }

    /// The bytes of a tensor as in the file; values derived from `config.json` as f32; empty for an unknown tensor.
    pub(crate) fn stored_bytes(&self, name: &str) -> Cow<'_, [u8]> {
        match self.tensor(name).map(|tensor| &tensor.data) {
            None => Cow::Borrowed(&[]),
            Some(Data::Made(values)) => put(values.iter().copied()),
            Some(data) => match self.stored(data) {
                // In range: compared with the file's length when the file was mapped.
                Some((shard, entry)) => Cow::Borrowed(&shard.source.bytes()[entry.bytes.clone()]),
                None => Cow::Borrowed(&[]),
            },
        }
    }

    /// The stored name of a tensor, with the file's name.
    pub(crate) fn label(&self, name: &str) -> String {
        let stored = self
            .tensor(name)
            .and_then(|tensor| self.stored(&tensor.data));
        match stored {
            Some((shard, entry)) => {
                let folder = self.shards.first().and_then(|shard| shard.path.parent());
                let file = folder.and_then(|folder| shard.path.strip_prefix(folder).ok());
                format!("{}: {}", file.unwrap_or(&shard.path).display(), entry.name)
            }
            None => self
                .family
                .stored(name, self.fused_feed)
                .unwrap_or_else(|| name.to_owned()),
        }
    }

    /// Releases the memory of a packed tensor.
    pub(crate) fn release(&self, name: &str) {
        let stored = self
            .tensor(name)
            .and_then(|tensor| self.stored(&tensor.data));
        if let Some((shard, entry)) = stored {
            shard.source.release(entry.bytes.clone());
        }
    }
}

/// Matrices whose rows and columns changed places. `dims`: the new columns and rows, and the number of matrices, if there are several.
fn turned_matrices(pool: &mut Pool, format: Format, raw: &[u8], dims: &[u64]) -> Vec<u8> {
    let (&[cols, rows] | &[cols, rows, _]) = dims else {
        return raw.to_vec();
    };
    let (width, cols, rows) = (format.block_bytes(), cols as usize, rows as usize);
    let mut turned = vec![0; raw.len()];
    pool.rows(&mut turned, cols * width, |row, out| {
        let (matrix, row) = (row / rows, row % rows);
        let stored = &raw[matrix * rows * cols * width..];
        for (col, out) in out.chunks_exact_mut(width).enumerate() {
            out.copy_from_slice(&stored[(col * rows + row) * width..][..width]);
        }
    });
    turned
}

/// Factors of decays, whose logarithms are stored without the sign.
fn decays(format: Format, raw: &[u8], order: Option<HeadOrder>) -> Vec<f32> {
    let stored: Vec<f32> = floats(format, raw).collect();
    let source = |at: usize| order.map_or(at, |order| order.source(at));
    (0..stored.len())
        .map(|at| -stored[source(at)].exp())
        .collect()
}

/// Each second element, from element `first` on.
fn every_second(format: Option<Format>, raw: &[u8], first: u8) -> Vec<u8> {
    let width = format.map_or(1, Format::block_bytes);
    let start = usize::from(first) * width;
    let pairs = raw.chunks_exact(2 * width);
    let elements = pairs.flat_map(|pair| &pair[start..start + width]);
    elements.copied().collect()
}

fn put(numbers: impl Iterator<Item = f32>) -> Cow<'static, [u8]> {
    Cow::Owned(numbers.flat_map(f32::to_le_bytes).collect())
}

/// Stored numbers as f32.
pub(super) fn floats(format: Format, raw: &[u8]) -> impl Iterator<Item = f32> {
    let number = move |bytes: &[u8]| match (format, bytes) {
        (Format::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (Format::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        _ => f32::NAN,
    };
    raw.chunks_exact(format.block_bytes()).map(number)
}
