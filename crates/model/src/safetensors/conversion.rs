//! Changes from stored tensors to loaded ones: row order, norms, format.

use super::hyperparameters::Described;
use crate::Architecture;
use kernels::Format;

/// What matrices are quantised to as they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Quantize {
    /// 8 bits and a scale for each 32 weights.
    Q8_0,
    /// 4 bits, and scales and shifts for each 32 weights; the vocabulary projection `Q6_K`. Rows that
    /// are no whole number of 256 become `Q8_0`.
    Q4_K,
}

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
    pub(super) fn row_of(self, row: usize) -> usize {
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
