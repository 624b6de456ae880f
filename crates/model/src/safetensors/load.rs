//! A tensor's bytes as they are loaded: in GGUF's order, made whole, quantised.

use super::hyperparameters::Described;
use super::{Data, Quantize, Safetensors, names};
use crate::{Architecture, LoadError};
use half::{bf16, f16};
use kernels::{Format, NotFinite, Pool, convert_rows};
use std::borrow::Cow;

/// What is done to a tensor besides quantising.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// Each head's rows are reordered: stored are the first elements of all turning pairs and then
    /// the second ones; GGUF has each pair together.
    Pairs {
        /// Rows of a head.
        head_dim: usize,
    },
    /// Stored is the distance from 1.
    PlusOne,
}

impl Change {
    /// What this tensor of GGUF's name and shape needs.
    pub(super) fn of(described: &Described, name: &str, dims: &[u64]) -> Result<Self, String> {
        let gemma = matches!(
            described.architecture,
            Architecture::Gemma2 | Architecture::Gemma3
        );
        if gemma && name.ends_with("norm.weight") {
            return Ok(Self::PlusOne);
        }
        let heads = match described.architecture {
            Architecture::Llama if name.contains(".attn_q.") => described.heads,
            Architecture::Llama if name.contains(".attn_k.") => described.kv_heads,
            _ => return Ok(Self::None),
        };
        let rows = dims.last().copied().unwrap_or_default();
        match rows.checked_div(heads.into()) {
            Some(each) if each.is_multiple_of(2) && each * u64::from(heads) == rows => {
                let head_dim = each as usize;
                Ok(Self::Pairs { head_dim })
            }
            _ => Err(format!(
                "has {rows} rows, must have an even number for each of {heads} heads"
            )),
        }
    }

    /// The stored row that becomes row `row`.
    fn row_of(self, row: usize) -> usize {
        match self {
            Self::Pairs { head_dim } => {
                let (head, at) = (row / head_dim, row % head_dim);
                head * head_dim + at % 2 * (head_dim / 2) + at / 2
            }
            _ => row,
        }
    }
}

/// What a tensor is loaded as. Norms and biases stay as they are, and so does what fits no blocks.
pub(super) fn format(
    tied: bool,
    quantize: Option<Quantize>,
    name: &str,
    dims: &[u64],
    stored: Format,
    change: Change,
) -> Format {
    if change == Change::PlusOne {
        return Format::F32;
    }
    let (Some(quantize), [cols, _]) = (quantize, dims) else {
        return stored;
    };
    // Errors in the projection go straight into the logits: as llama.cpp, more bits for it.
    let projects = name == "output.weight" || (tied && name == "token_embd.weight");
    let wanted = match quantize {
        Quantize::Q8_0 => Format::Q8_0,
        Quantize::Q4_K if projects => Format::Q6_K,
        Quantize::Q4_K => Format::Q4_K,
    };
    let fits = |format: &Format| cols.is_multiple_of(format.block_weights() as u64);
    [wanted, Format::Q8_0]
        .into_iter()
        .find(fits)
        .unwrap_or(stored)
}

impl Safetensors {
    /// The bytes of a tensor, as its kind says; none of one that there is not.
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
        // In range: the file was mapped and compared when it was opened.
        let raw = &shard.source.bytes()[entry.bytes.clone()];
        let (Some(from), Some(to)) = (entry.kind.format(), tensor.kind.format()) else {
            return Ok(Cow::Borrowed(raw));
        };
        if tensor.change == Change::PlusOne {
            return Ok(put(floats(from, raw).map(|number| number + 1.0)));
        }
        if tensor.change == Change::None && from == to {
            return Ok(Cow::Borrowed(raw));
        }
        let cols = match tensor.dims.as_slice() {
            [cols, _] => *cols as usize,
            _ => 1,
        };
        let row_of = |row| tensor.change.row_of(row);
        convert_rows(pool, (from, raw), cols, to, row_of)
            .map(Cow::Owned)
            .map_err(|NotFinite(index)| LoadError::Value {
                tensor: self.label(name),
                index,
            })
    }

    /// What a tensor is called in its file, and which that is.
    pub(crate) fn label(&self, name: &str) -> String {
        let stored = self
            .tensor(name)
            .and_then(|tensor| self.stored(&tensor.data));
        match stored {
            Some((shard, entry)) => {
                let file = shard.path.file_name().unwrap_or_default();
                format!("{}: {}", file.display(), entry.name)
            }
            None => names::stored(self.architecture, name).unwrap_or_else(|| name.to_owned()),
        }
    }

    /// Gives back the memory of a tensor that has been packed.
    pub(crate) fn release(&self, name: &str) {
        let stored = self
            .tensor(name)
            .and_then(|tensor| self.stored(&tensor.data));
        if let Some((shard, entry)) = stored {
            shard.source.release(entry.bytes.clone());
        }
    }
}

fn put(numbers: impl Iterator<Item = f32>) -> Cow<'static, [u8]> {
    Cow::Owned(numbers.flat_map(f32::to_le_bytes).collect())
}

/// Numbers as they are stored.
fn floats(format: Format, raw: &[u8]) -> impl Iterator<Item = f32> {
    let number = move |bytes: &[u8]| match (format, bytes) {
        (Format::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (Format::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        _ => f32::NAN,
    };
    raw.chunks_exact(format.block_bytes()).map(number)
}
