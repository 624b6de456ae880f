//! Weights of a tower, an encoder of images.

use super::described::Described;
use super::described_tensors::DescribedTensors;
use super::encoder::LayerNorm;
use super::linear::{Linear, cut, join};
use super::packed_tensors::PackedTensors;
use super::tensors::{KernelPacking, Packing, Stored, Tensors};
use crate::vision::{Projector, VisionConfig};
use crate::{LoadError, ModelFiles, Packed, PackedSections};
use kernels::{Isa, Pool};

/// The kernel of the patches.
const PATCHES: &str = "v.patch_embd.weight";
/// The kernel of the second frame, in a tower that was trained with films.
const SECOND_FRAME: &str = "v.patch_embd.weight.1";

/// One layer of a tower.
pub struct TowerLayer<P: Packing = KernelPacking> {
    pub attention_norm: LayerNorm,
    pub query: Linear<P>,
    pub key: Linear<P>,
    pub value: Linear<P>,
    pub out: Linear<P>,
    pub hidden_norm: LayerNorm,
    pub up: Linear<P>,
    pub down: Linear<P>,
}

/// A norm and two matrices that turn neighbors, side by side, into a row.
pub struct Merger<P: Packing = KernelPacking> {
    /// Of a patch, `(dim)`, or of all that stand side by side.
    pub norm: LayerNorm,
    /// `(side, side)`, where `side` is the width of the neighbors.
    pub first: Linear<P>,
    /// `(projection_dim, side)`.
    pub second: Linear<P>,
}

/// The projector between the tower and the text.
pub enum TowerHead<P: Packing = KernelPacking> {
    /// Neighbors side by side, through one matrix, `(projection_dim, side)`.
    Joined { matrix: Linear<P> },
    /// Neighbors side by side, after the norm of each, through two.
    Merged(Merger<P>),
    /// The mean of neighbors, an RMS norm, and a matrix in f32, `(projection_dim, dim)`.
    Pooled { norm: Vec<f32>, matrix: Vec<f32> },
}

/// All trained parameters of a tower.
pub struct TowerWeights<P: Packing = KernelPacking> {
    /// `(dim, 3 * patch * patch)` in f32: of a picture as a film of two equal frames, the sum of both kernels.
    pub patches: Vec<f32>,
    /// `(dim)`.
    pub patches_bias: Option<Vec<f32>>,
    /// Learned positions, `(table_edge * table_edge, dim)`.
    pub positions: Vec<f32>,
    pub layers: Vec<TowerLayer<P>>,
    pub post_norm: Option<LayerNorm>,
    /// Rows for the text layers after the first, in ascending order of the tower's layers.
    pub deepstack: Vec<Merger<P>>,
    pub head: TowerHead<P>,
}

impl TowerWeights {
    /// Loads all tensors, and packs those that `sections` does not have. `progress` is called with what was loaded so far.
    ///
    /// # Errors
    /// As for [`TowerWeights::read`]; or a tensor cannot be packed.
    pub fn load(
        files: &ModelFiles,
        config: &VisionConfig,
        isa: Isa,
        pool: &mut Pool,
        sections: &mut PackedSections,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let tensors = PackedTensors::new(files, isa, pool, sections, progress);
        let tensors = &mut tensors.quantized(config.quantize);
        Self::read(tensors, config)
    }

    /// Formats of the matrices, without those that are always f32.
    pub fn formats(&self) -> impl Iterator<Item = kernels::Format> {
        self.matrices().map(Stored::format)
    }
}

impl<P: Packing> TowerWeights<P>
where
    P::Matrix: Stored,
{
    /// Bytes of the matrices and tables: resident ones, or those of a reader.
    pub fn bytes(&self) -> usize {
        let floats = self.patches.len() + self.positions.len();
        let packed: usize = self.matrices().map(Stored::bytes).sum();
        packed + floats * size_of::<f32>()
    }
}

impl TowerWeights<Described> {
    /// Checks all tensors as [`TowerWeights::load`] does, and reads the numbers that are no packed matrices.
    ///
    /// # Errors
    /// As for [`TowerWeights::read`].
    pub fn describe(
        files: &ModelFiles,
        config: &VisionConfig,
        pool: &mut Pool,
    ) -> Result<Self, LoadError> {
        Self::read(&mut DescribedTensors::new(files, pool), config)
    }
}

impl<P: Packing> TowerWeights<P> {
    /// Reads all tensors of this tower.
    ///
    /// # Errors
    /// A tensor is missing, does not fit, or is not used.
    pub fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Self, LoadError> {
        let side = config.dim * config.merged_patches();
        let weights = Self {
            patches: read_patches(tensors, config)?,
            patches_bias: tensors.vector_if_there("v.patch_embd.bias", config.dim)?,
            positions: tensors.table(
                "v.position_embd.weight",
                config.table_edge * config.table_edge,
                config.dim,
            )?,
            layers: (0..config.layers)
                .map(|layer| TowerLayer::read(tensors, config, layer))
                .collect::<Result<_, _>>()?,
            post_norm: if config.traits.post_norm {
                Some(layer_norm(tensors, "v.post_ln", config.dim)?)
            } else {
                None
            },
            deepstack: config
                .deepstack
                .iter()
                .map(|layer| {
                    let names =
                        ["norm", "fc1", "fc2"].map(|part| format!("v.deepstack.{layer}.{part}"));
                    Merger::read(tensors, config, &names, side)
                })
                .collect::<Result<_, _>>()?,
            head: TowerHead::read(tensors, config)?,
        };
        tensors.finish_all()?;
        Ok(weights)
    }

    fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let layers = self.layers.iter().flat_map(TowerLayer::linears);
        let deepstack = self.deepstack.iter().flat_map(Merger::linears);
        let head = self.head.linears();
        layers
            .chain(deepstack)
            .chain(head)
            .map(|linear| &linear.weight)
    }
}

impl<P: Packing> TowerLayer<P> {
    fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let (dim, hidden) = (config.dim, config.hidden);
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        let [query, key, value] = read_qkv(tensors, &name, dim)?;
        let (up, down) = feed_forward_names(tensors, &name, dim, hidden)?;
        Ok(Self {
            attention_norm: layer_norm(tensors, &name("ln1"), dim)?,
            query,
            key,
            value,
            out: linear(tensors, &name("attn_out"), dim, dim)?,
            hidden_norm: layer_norm(tensors, &name("ln2"), dim)?,
            up: linear(tensors, &name(up), hidden, dim)?,
            down: linear(tensors, &name(down), dim, hidden)?,
        })
    }

    fn linears(&self) -> [&Linear<P>; 6] {
        [
            &self.query,
            &self.key,
            &self.value,
            &self.out,
            &self.up,
            &self.down,
        ]
    }
}

impl<P: Packing> Merger<P> {
    /// Reads a norm of `width` and two matrices of these names.
    fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
        [norm, first, second]: &[String; 3],
        width: usize,
    ) -> Result<Self, LoadError> {
        let side = config.dim * config.merged_patches();
        Ok(Self {
            norm: layer_norm(tensors, norm, width)?,
            first: linear(tensors, first, side, side)?,
            second: linear(tensors, second, config.projection_dim, side)?,
        })
    }

    fn linears(&self) -> [&Linear<P>; 2] {
        [&self.first, &self.second]
    }
}

impl<P: Packing> TowerHead<P> {
    fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Self, LoadError> {
        let (dim, out) = (config.dim, config.projection_dim);
        Ok(match config.projector {
            Projector::Idefics3 => Self::Joined {
                matrix: linear(tensors, "mm.model.fc", out, dim * config.merged_patches())?,
            },
            Projector::Qwen3Vl => {
                let names = ["v.post_ln", "mm.0", "mm.2"].map(str::to_owned);
                Self::Merged(Merger::read(tensors, config, &names, dim)?)
            }
            Projector::Gemma3 => {
                let stored = tensors.table("mm.input_projection.weight", dim, out)?;
                Self::Pooled {
                    norm: tensors.vector("mm.soft_emb_norm.weight", dim)?,
                    matrix: transposed(&stored, out),
                }
            }
        })
    }

    fn linears(&self) -> impl Iterator<Item = &Linear<P>> {
        let linears: Vec<&Linear<P>> = match self {
            Self::Joined { matrix } => vec![matrix],
            Self::Merged(merger) => merger.linears().to_vec(),
            Self::Pooled { .. } => Vec::new(),
        };
        linears.into_iter()
    }
}

/// The kernel of the patches; the sum of two where the file has one for each frame, in two tensors or in one.
fn read_patches<T: Tensors>(tensors: &mut T, config: &VisionConfig) -> Result<Vec<f32>, LoadError> {
    let edge = config.patch as u64;
    let (frames, channels) = (2, 3 * config.dim as u64);
    if tensors.rows_of(PATCHES)? as u64 == edge * frames * channels && !tensors.has(SECOND_FRAME) {
        let both = tensors.numbers(PATCHES, &[edge, edge, frames, channels])?;
        let len = (edge * edge) as usize;
        let sum = |pair: &[f32]| {
            let (first, second) = pair.split_at(len);
            first
                .iter()
                .zip(second)
                .map(|(a, b)| a + b)
                .collect::<Vec<_>>()
        };
        return Ok(both.chunks_exact(2 * len).flat_map(sum).collect());
    }
    let dims = [edge, edge, 3, config.dim as u64];
    let mut kernel = tensors.numbers(PATCHES, &dims)?;
    if tensors.has(SECOND_FRAME) {
        let second = tensors.numbers(SECOND_FRAME, &dims)?;
        kernel.iter_mut().zip(second).for_each(|(sum, x)| *sum += x);
    }
    Ok(kernel)
}

/// Queries, keys and values, as three tensors or as one.
fn read_qkv<T: Tensors>(
    tensors: &mut T,
    name: &impl Fn(&str) -> String,
    dim: usize,
) -> Result<[Linear<T::Packing>; 3], LoadError> {
    let joined = name("attn_qkv");
    if tensors.has(&format!("{joined}.weight")) {
        let weights = tensors.split(&format!("{joined}.weight"), [dim; 3], dim)?;
        let bias = tensors.vector_if_there(&format!("{joined}.bias"), 3 * dim)?;
        return Ok(join(weights, cut(bias, [dim; 3])));
    }
    Ok([
        linear(tensors, &name("attn_q"), dim, dim)?,
        linear(tensors, &name("attn_k"), dim, dim)?,
        linear(tensors, &name("attn_v"), dim, dim)?,
    ])
}

/// The names of the matrices that widen and narrow: old files have them swapped, which the shape tells.
fn feed_forward_names<T: Tensors>(
    tensors: &T,
    name: &impl Fn(&str) -> String,
    dim: usize,
    hidden: usize,
) -> Result<(&'static str, &'static str), LoadError> {
    let rows = tensors.rows_of(&format!("{}.weight", name("ffn_up")))?;
    Ok(if rows == dim && dim != hidden {
        ("ffn_down", "ffn_up")
    } else {
        ("ffn_up", "ffn_down")
    })
}

fn linear<T: Tensors>(
    tensors: &mut T,
    name: &str,
    rows: usize,
    cols: usize,
) -> Result<Linear<T::Packing>, LoadError> {
    Ok(Linear {
        weight: tensors.matrix(&format!("{name}.weight"), rows, cols)?,
        bias: tensors.vector_if_there(&format!("{name}.bias"), rows)?,
        adapters: None,
    })
}

fn layer_norm<T: Tensors>(tensors: &mut T, name: &str, dim: usize) -> Result<LayerNorm, LoadError> {
    Ok(LayerNorm {
        weight: tensors.vector(&format!("{name}.weight"), dim)?,
        bias: tensors.vector(&format!("{name}.bias"), dim)?,
    })
}

/// A matrix of rows of `cols`, with rows and columns exchanged.
fn transposed(matrix: &[f32], cols: usize) -> Vec<f32> {
    let rows = matrix.len() / cols.max(1);
    let at = |index: usize| matrix[index % rows * cols + index / rows];
    (0..matrix.len()).map(at).collect()
}
