//! Conversion of stored tensors at load: row order, norms, format.

use super::described::ModelDescription;
use super::family::{Family, is_gemma};
use super::header::TensorShape;
use super::recurrent::{self, HeadOrder};
use crate::Architecture;
use kernels::Format;

/// The end of GGUF's names for experts.
const EXPERTS: &str = "_exps.weight";
/// The end of GGUF's names for taps of convolutions.
const TAPS: &str = ".shortconv.conv.weight";
/// As [`TAPS`], of layers with a scan.
pub(super) const TAPS_OF_SCAN: &str = ".ssm_conv1d.weight";
/// GGUF's name for learned positions.
const POSITIONS: &str = "position_embd.weight";

/// Target format of matrices quantized at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Quantize {
    /// 8 bits, with a scale for each 32 weights.
    Q8_0,
    /// 4 bits, with scales and minima for each 32 weights; `Q6_K` for the vocabulary projection. `Q8_0` where
    /// rows are no multiple of 256.
    Q4_K,
}

/// Conversion of a tensor besides quantization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No conversion.
    None,
    /// Reorders each head's rows: the file stores the first elements of all rotated pairs and then the second
    /// elements; GGUF stores pairs together.
    Pairs {
        /// Rows of a head.
        head_dim: usize,
    },
    /// Adds 1 to stored values.
    PlusOne,
    /// Leaves out so many rows at the beginning.
    Without {
        /// Rows that no token has.
        rows: usize,
    },
    /// Leaves out the middle one of three dimensions, which is 1.
    Squeezed,
    /// The matrices of all experts, stored one below the other, become one tensor of three dimensions.
    Stacked {
        /// Number of experts.
        experts: usize,
        /// Whether each expert's rows and columns change places.
        is_turned: bool,
    },
    /// Rows and columns of a matrix, or of that of each expert, change places.
    Turned,
    /// The negative of the exponential function of each stored value, of heads in this order.
    Decay(Option<HeadOrder>),
    /// Rows of heads in another order.
    HeadRows(HeadOrder),
    /// Columns of heads in another order.
    HeadCols(HeadOrder),
    /// A vector becomes a row for each group.
    Grouped {
        /// Number of groups.
        groups: u32,
    },
    /// Takes one half of the rows.
    Half {
        /// Whether that is the last half.
        is_second: bool,
    },
    /// The channels of a kernel's frames, and the kernels, are one dimension.
    Frames,
    /// The kernel of each row has its channels last.
    ChannelsLast {
        /// Rows and columns of a kernel.
        edge: u32,
    },
    /// As [`Self::ChannelsLast`], of a row that stays one row, or of one number for each entry of a row.
    Planes {
        /// Rows and columns of a kernel.
        edge: u32,
    },
    /// Two tables whose rows alternate become one after the other.
    Tables {
        /// Rows of a table.
        entries: u64,
    },
    /// Multiplies rows by the factors of list number `list`.
    Scaled {
        /// Index into the model's lists of factors.
        list: u8,
    },
}

/// Whether a tensor with this GGUF name has taps, which are stored with three dimensions.
pub(super) fn is_taps(name: &str) -> bool {
    name.ends_with(TAPS) || name.ends_with(TAPS_OF_SCAN)
}

impl Change {
    /// The conversion for a tensor with this GGUF name and shape.
    pub(super) fn of(
        described: &ModelDescription,
        name: &str,
        dims: &[u64],
    ) -> Result<Self, String> {
        let architecture = match described.family {
            Family::Decoder(architecture) => architecture,
            Family::Encoder(_) => return Self::of_encoder(described, name, dims),
            Family::Tower(class) => {
                return Self::of_tower(described.heads, class.projector, name, dims);
            }
        };
        if is_gemma(architecture) && name.ends_with("norm.weight") {
            return Ok(Self::PlusOne);
        }
        if let Some(change) = recurrent::change(described, architecture, name, dims)? {
            return Ok(change);
        }
        if let &[_, middle, _] = dims
            && name.ends_with(TAPS)
        {
            return match middle {
                1 => Ok(Self::Squeezed),
                _ => Err(format!("has shape {dims:?}, must have 1 in the middle")),
            };
        }
        if architecture == Architecture::Qwen3VlMoe && name.ends_with(EXPERTS) {
            return Self::of_fused(described.width.into(), name, dims);
        }
        let heads = [described.heads, described.kv_heads].map(|heads| heads as usize);
        let rows = dims.last().copied().unwrap_or_default() as usize;
        Self::turned(architecture, heads, name, rows)
    }

    /// `heads`: those of queries and keys whose rows are reordered, if any are.
    fn of_tower(heads: u32, projector: &str, name: &str, dims: &[u64]) -> Result<Self, String> {
        let rows = dims.last().copied().unwrap_or_default() as usize;
        if heads > 0
            && [".attn_q.", ".attn_k."]
                .iter()
                .any(|part| name.contains(part))
        {
            return Self::pairs(rows, heads as usize);
        }
        let is_unified = projector == "gemma4uv";
        match dims {
            &[_, 2, entries] if is_unified && name == "v.position_embd.weight" => {
                Ok(Self::Tables { entries })
            }
            [cols] | [cols, _]
                if is_unified
                    && ["v.patch_embd.weight", "v.patch_norm.1"]
                        .iter()
                        .any(|start| name.starts_with(start)) =>
            {
                let edge = edge_of(*cols)?;
                Ok(Self::Planes { edge })
            }
            [_, _, _, 3, _] => Ok(Self::Frames),
            [_, _, _, channels, _] => Err(format!("has {channels} channels, must have 3")),
            _ if name == "mm.soft_emb_norm.weight" => Ok(Self::PlusOne),
            [_, _] if name == "resampler.proj.weight" => Ok(Self::Turned),
            [cols, _] if name == "v.patch_embd.weight" => {
                let edge = edge_of(*cols)?;
                Ok(Self::ChannelsLast { edge })
            }
            _ => Ok(Self::None),
        }
    }

    fn of_encoder(described: &ModelDescription, name: &str, dims: &[u64]) -> Result<Self, String> {
        if name.ends_with(EXPERTS) {
            return Self::of_experts(described.stacked_experts, name, dims);
        }
        let padded = described.padded_positions;
        if padded == 0 || name != POSITIONS {
            return Ok(Self::None);
        }
        let rows = dims.last().copied().unwrap_or_default() as usize;
        if rows > padded {
            Ok(Self::Without { rows: padded })
        } else {
            Err(format!(
                "has {rows} rows, must have more than `pad_token_id`, {}",
                padded - 1
            ))
        }
    }

    fn of_experts(experts: usize, name: &str, dims: &[u64]) -> Result<Self, String> {
        let &[_, rows] = dims else {
            return Err(format!("has {} dimensions, must have 2", dims.len()));
        };
        if experts > 0 && rows.is_multiple_of(experts as u64) {
            Ok(Self::Stacked {
                experts,
                is_turned: name.contains(".ffn_down_exps."),
            })
        } else {
            Err(format!(
                "has {rows} rows, must have as many for each of {experts} experts"
            ))
        }
    }

    /// Experts in one tensor, whose rows and columns are exchanged in published files, and are not in those that transformers
    /// saves since version 5; the `width` of the stream tells, as there.
    fn of_fused(width: u64, name: &str, dims: &[u64]) -> Result<Self, String> {
        let &[cols, rows, _] = dims else {
            return Err(format!("has {} dimensions, must have 3", dims.len()));
        };
        let is_down = name.contains(".ffn_down_exps.");
        let is_straight = if is_down { rows } else { cols } == width;
        Ok(if is_straight {
            Self::None
        } else {
            Self::Turned
        })
    }

    /// The shape in GGUF.
    pub(super) fn shape(self, dims: TensorShape) -> TensorShape {
        match (self, dims.as_slice()) {
            (Self::Without { rows }, _) => dims.without(rows as u64),
            (Self::Squeezed | Self::HeadRows(_), &[cols, _, rows]) => TensorShape::of([cols, rows]),
            (Self::Turned, &[cols, rows, experts]) => TensorShape::of([rows, cols, experts]),
            (Self::Turned, &[cols, rows]) => TensorShape::of([rows, cols]),
            (Self::Frames, &[width, height, frames, channels, kernels]) => {
                // The product of all is the number of stored elements.
                TensorShape::of([width, height, frames, channels * kernels])
            }
            (Self::ChannelsLast { edge }, &[_, kernels]) => {
                TensorShape::of([edge.into(), edge.into(), 3, kernels])
            }
            (Self::Tables { entries }, &[cols, ..]) => TensorShape::of([cols, entries, 2]),
            (Self::Grouped { groups }, &[len]) => {
                let groups = u64::from(groups);
                TensorShape::of([len / groups, groups])
            }
            (Self::Half { .. }, &[cols, rows]) => TensorShape::of([cols, rows / 2]),
            (Self::Stacked { experts, is_turned }, &[cols, rows]) => {
                let rows = rows / experts as u64;
                if is_turned {
                    TensorShape::of([rows, cols, experts as u64])
                } else {
                    TensorShape::of([cols, rows, experts as u64])
                }
            }
            _ => dims,
        }
    }

    /// The conversion of a matrix of `rows` rows, in a model with these numbers of query heads and of key heads.
    pub(super) fn turned(
        architecture: Architecture,
        [heads, kv_heads]: [usize; 2],
        name: &str,
        rows: usize,
    ) -> Result<Self, String> {
        use Architecture::{Granite, GraniteHybrid, GraniteMoe, Llama, Mistral3, SmolLm3};
        let turned = matches!(
            architecture,
            Llama | Mistral3 | Granite | GraniteHybrid | GraniteMoe | SmolLm3
        );
        let heads = if turned && name.contains(".attn_q.") {
            heads
        } else if turned && name.contains(".attn_k.") {
            kv_heads
        } else {
            return Ok(Self::None);
        };
        Self::pairs(rows, heads)
    }

    /// The reordering of the rows of each of `heads` heads.
    fn pairs(rows: usize, heads: usize) -> Result<Self, String> {
        match rows.checked_div(heads) {
            Some(head_dim) if head_dim.is_multiple_of(2) && head_dim * heads == rows => {
                Ok(Self::Pairs { head_dim })
            }
            _ => Err(format!(
                "has {rows} rows, must have an even number for each of {heads} heads"
            )),
        }
    }

    /// The stored row for row `row`.
    pub(super) fn row_of(self, row: usize) -> usize {
        match self {
            Self::Pairs { head_dim } => {
                let (head, at) = (row / head_dim, row % head_dim);
                head * head_dim + at % 2 * (head_dim / 2) + at / 2
            }
            Self::HeadRows(order) => order.source(row),
            Self::Tables { entries } => {
                let entries = entries as usize;
                row % entries * 2 + row / entries
            }
            _ => row,
        }
    }
}

/// The edge of a kernel of three channels with so many numbers.
fn edge_of(numbers: u64) -> Result<u32, String> {
    let area = numbers / 3;
    let edge = area.isqrt();
    match u32::try_from(edge) {
        Ok(pixels) if edge * edge * 3 == numbers => Ok(pixels),
        _ => Err(format!(
            "has rows of {numbers}, must have squares of 3 channels"
        )),
    }
}

/// The format of a tensor at load. Norms, biases, routers, and rows that do not fit blocks keep their format.
pub(super) fn format(
    tied: bool,
    quantize: Option<Quantize>,
    name: &str,
    dims: &[u64],
    stored: Format,
    change: Change,
) -> Format {
    if matches!(change, Change::PlusOne | Change::Decay(_)) {
        return Format::F32;
    }
    let (Some(quantize), [cols, _] | [cols, _, _]) = (quantize, dims) else {
        return stored;
    };
    // Routers are f32, and what is added to embeddings, or scores documents, is small.
    let is_kept = ["position_embd.", "token_types.", "cls."];
    let is_kept = is_kept.iter().any(|kept| name.starts_with(kept));
    let is_router = name.contains(".ffn_gate_inp");
    if is_router || is_kept || is_taps(name) || name.ends_with("norm.weight") {
        return stored;
    }
    // Errors in the vocabulary projection directly affect the logits, so the projection gets more bits, as in
    // llama.cpp.
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
