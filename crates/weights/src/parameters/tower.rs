//! Weights of a tower, an encoder of images.

use super::described::Described;
use super::described_tensors::DescribedTensors;
use super::linear::{Linear, cut, join};
use super::norm::Norm;
use super::packed_tensors::PackedTensors;
use super::tensors::{KernelPacking, Packing, Stored, Tensors};
use super::tower_head::{Merger, TowerHead};
use crate::config::limits;
use crate::vision::{NEIGHBORS, NormKind, Positions, Projector, VisionConfig, Windows};
use crate::{LoadError, ModelFiles, Packed, PackedSections};
use kernels::{Isa, Pool};

/// The kernel of the patches.
const PATCHES: &str = "v.patch_embd.weight";
/// The kernel of the second frame, in a tower that was trained with films.
const SECOND_FRAME: &str = "v.patch_embd.weight.1";

/// Names of the bounds of a matrix.
const BOUNDS: [&str; 4] = ["input_min", "input_max", "output_min", "output_max"];

/// One layer of a tower. What is optional is there if the file has it.
pub struct TowerLayer<P: Packing = KernelPacking> {
    pub attention_norm: Norm,
    pub query: Linear<P>,
    pub key: Linear<P>,
    pub value: Linear<P>,
    /// Of each head, in a tower that normalizes values.
    pub value_norm: Option<Norm>,
    /// Norms of queries and of keys, of a head or of all heads, by their length.
    pub query_norm: Option<Norm>,
    pub key_norm: Option<Norm>,
    pub out: Linear<P>,
    /// Norms of what attention and the feed-forward part add to the stream.
    pub post_attention_norm: Option<Norm>,
    pub post_hidden_norm: Option<Norm>,
    /// Factors of what attention and the feed-forward part add to the stream, `(dim)` each.
    pub attention_scale: Option<Vec<f32>>,
    pub hidden_scale: Option<Vec<f32>>,
    pub hidden_norm: Norm,
    /// A gate, which the non-linearity is applied to; else to what `up` gives.
    pub gate: Option<Linear<P>>,
    pub up: Linear<P>,
    pub down: Linear<P>,
    pub clamps: Option<Box<LayerClamps>>,
}

/// Bounds of the inputs and outputs of a layer's matrices; infinite where there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerClamps {
    pub query: Clamp,
    pub key: Clamp,
    pub value: Clamp,
    pub out: Clamp,
    pub gate: Clamp,
    pub up: Clamp,
    pub down: Clamp,
}

/// Least and greatest number that a matrix takes, and that it gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    pub input: [f32; 2],
    pub output: [f32; 2],
}

/// Patches as large as rows, through one matrix, in a model without a tower. All norms are layer norms.
pub struct PatchMatrix<P: Packing = KernelPacking> {
    /// Of the numbers of a patch, `(3 * patch * patch)`.
    pub before: Norm,
    /// `(dim, 3 * patch * patch)`.
    pub matrix: Linear<P>,
    /// Before the place of a patch is added, `(dim)`.
    pub after: Norm,
    /// After it, `(dim)`.
    pub placed: Norm,
}

/// All trained parameters of a tower.
pub struct TowerWeights<P: Packing = KernelPacking> {
    /// In place of `patches` and of their bias, in a model without a tower.
    pub patch_matrix: Option<PatchMatrix<P>>,
    /// `(dim, 3 * patch * patch)` in f32: of a picture as a film of two equal frames, the sum of both kernels.
    pub patches: Vec<f32>,
    /// `(dim)`.
    pub patches_bias: Option<Vec<f32>>,
    /// The row that has no patch, `(dim)`, its entry of the table included.
    pub class_token: Option<Vec<f32>>,
    /// Learned positions, `(table_edge * table_edge, dim)`, or of columns, then of rows, `(2 * table_edge, dim)`; empty in a tower without a table.
    pub positions: Vec<f32>,
    pub pre_norm: Option<Norm>,
    pub layers: Vec<TowerLayer<P>>,
    /// The merger of neighbors into one row of the stream, between two layers: attention of each to its neighbors, then a
    /// feed-forward part of all side by side, whose input is normalized, and which is added to their mean.
    pub neighbors: Option<TowerLayer<P>>,
    pub post_norm: Option<Norm>,
    /// Rows for the text layers after the first, in ascending order of the tower's layers.
    pub deepstack: Vec<Merger<P>>,
    pub head: TowerHead<P>,
    /// The row at the end of a line of rows, `(projection_dim)`.
    pub line_end: Option<Vec<f32>>,
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

    /// Columns of the widest matrix after the kernel of the patches.
    pub fn cols_max(&self) -> usize {
        let cols = self.matrices().map(|matrix| matrix.cols());
        let pooled = match &self.head {
            TowerHead::Pooled { norm, .. } => norm.len(),
            TowerHead::Joined { .. }
            | TowerHead::Merged(_)
            | TowerHead::Standardized { .. }
            | TowerHead::Resampled(_) => 0,
        };
        cols.max().unwrap_or_default().max(pooled)
    }

    /// Width of the widest row between two matrices of a projector, where the mean of neighbors has `dim`.
    pub fn between_max(&self, dim: usize) -> usize {
        let head = match &self.head {
            TowerHead::Joined { .. } | TowerHead::Resampled(_) => 0,
            TowerHead::Merged(merger) => {
                let reduced = merger.reduce.iter().map(|reduce| reduce.weight.cols());
                reduced
                    .chain([merger.first.weight.rows()])
                    .max()
                    .unwrap_or_default()
            }
            TowerHead::Pooled { .. } | TowerHead::Standardized { .. } => dim,
        };
        let deepstack = self.deepstack.iter();
        let inner = deepstack.map(|merger| merger.first.weight.rows());
        let neighbors = self.neighbors.iter().map(|layer| layer.up.weight.rows());
        inner.chain(neighbors).max().unwrap_or_default().max(head)
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
        let traits = &config.traits;
        let patch_matrix = PatchMatrix::read(tensors, config)?;
        let (mut patches, mut patches_bias) = (Vec::new(), None);
        if patch_matrix.is_none() {
            patches = read_patches(tensors, config)?;
            patches_bias = tensors.vector_if_there("v.patch_embd.bias", config.dim)?;
        }
        let (class_token, positions) = read_places(tensors, config)?;
        let mut norm = |is_there: bool, name: &str| {
            let norm = is_there.then(|| norm(tensors, config, name, config.dim));
            norm.transpose()
        };
        let pre_norm = norm(traits.pre_norm, "v.pre_ln")?;
        let post_norm = norm(traits.post_norm, "v.post_ln")?;
        let weights = Self {
            patch_matrix,
            patches,
            patches_bias,
            class_token,
            positions,
            pre_norm,
            layers: (0..config.layers)
                .map(|layer| TowerLayer::read(tensors, config, layer))
                .collect::<Result<_, _>>()?,
            neighbors: config
                .merge_after
                .map(|_| TowerLayer::read_neighbors(tensors, config))
                .transpose()?,
            post_norm,
            deepstack: config
                .deepstack
                .iter()
                .map(|layer| {
                    let names =
                        ["norm", "fc1", "fc2"].map(|part| format!("v.deepstack.{layer}.{part}"));
                    Merger::read(tensors, config, &names, (side, side))
                })
                .collect::<Result<_, _>>()?,
            head: TowerHead::read(tensors, config)?,
            line_end: read_line_end(tensors, config)?,
        };
        // Layers after the last that is used.
        for layer in config.layers..config.stored_layers {
            tensors.ignore_prefix(&format!("v.blk.{layer}."));
        }
        // The merger of MiniCPM-V 4.6 is there also where the configuration merges less.
        if config.merge_after.is_none() {
            tensors.ignore_prefix("v.vit_merger.");
        }
        // Files may have an encoder of sound, too.
        for prefix in ["a.", "mm.a."] {
            tensors.ignore_prefix(prefix);
        }
        // SigLIP's own head, which LLaVA does not use.
        if config.projector == Projector::Llava {
            tensors.ignore_prefix("v.head.");
        }
        tensors.finish_all()?;
        Ok(weights)
    }

    fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let patches = self.patch_matrix.iter().map(|patches| &patches.matrix);
        let layers = self.layers.iter().chain(&self.neighbors);
        let layers = layers.flat_map(TowerLayer::linears);
        let deepstack = self.deepstack.iter().flat_map(Merger::linears);
        let head = self.head.linears();
        patches
            .chain(layers)
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
            attention_norm: norm(tensors, config, &name("ln1"), dim)?,
            query,
            key,
            value,
            value_norm: config
                .traits
                .normalized_values
                .then(|| Norm::rms(vec![1.0; config.head_dim()])),
            query_norm: head_norm(tensors, config, &name("attn_q_norm"))?,
            key_norm: head_norm(tensors, config, &name("attn_k_norm"))?,
            out: linear(tensors, &name("attn_out"), dim, dim)?,
            post_attention_norm: norm_if_there(tensors, config, &name("attn_post_norm"), dim)?,
            post_hidden_norm: norm_if_there(tensors, config, &name("ffn_post_norm"), dim)?,
            attention_scale: tensors.vector_if_there(&name("ls1.weight"), dim)?,
            hidden_scale: tensors.vector_if_there(&name("ls2.weight"), dim)?,
            hidden_norm: norm(tensors, config, &name("ln2"), dim)?,
            gate: linear_if_there(tensors, &name("ffn_gate"), hidden, dim)?,
            up: linear(tensors, &name(up), hidden, dim)?,
            down: linear(tensors, &name(down), dim, hidden)?,
            clamps: LayerClamps::read(tensors, &name)?.map(Box::new),
        })
    }

    /// Reads what stands between two layers of MiniCPM-V 4.6.
    fn read_neighbors<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Self, LoadError> {
        let (dim, side) = (config.dim, NEIGHBORS * config.dim);
        let name = |part: &str| format!("v.vit_merger.{part}");
        let [query, key, value] = read_qkv(tensors, &name, dim)?;
        let rows = tensors.rows_of(&format!("{}.weight", name("ds_ffn_up")))?;
        let inner = rows.min(limits::HIDDEN);
        Ok(Self {
            attention_norm: norm(tensors, config, &name("ln1"), dim)?,
            query,
            key,
            value,
            value_norm: None,
            query_norm: None,
            key_norm: None,
            out: linear(tensors, &name("attn_out"), dim, dim)?,
            post_attention_norm: None,
            post_hidden_norm: None,
            attention_scale: None,
            hidden_scale: None,
            hidden_norm: norm(tensors, config, &name("ds_ln"), side)?,
            gate: None,
            up: linear(tensors, &name("ds_ffn_up"), inner, side)?,
            down: linear(tensors, &name("ds_ffn_down"), dim, inner)?,
            clamps: None,
        })
    }

    fn linears(&self) -> impl Iterator<Item = &Linear<P>> {
        let attention = [&self.query, &self.key, &self.value, &self.out];
        let feed_forward = [&self.up, &self.down].into_iter().chain(&self.gate);
        attention.into_iter().chain(feed_forward)
    }
}

impl LayerClamps {
    /// The bounds, if the file has any.
    fn read<T: Tensors>(
        tensors: &mut T,
        name: &impl Fn(&str) -> String,
    ) -> Result<Option<Self>, LoadError> {
        let parts = [
            "attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up", "ffn_down",
        ];
        let is_there = |part: &str| {
            BOUNDS
                .iter()
                .any(|bound| tensors.has(&format!("{}.{bound}", name(part))))
        };
        if !parts.iter().any(|part| is_there(part)) {
            return Ok(None);
        }
        let mut clamp = |part: &str| Clamp::read(tensors, &name(part));
        Ok(Some(Self {
            query: clamp("attn_q")?,
            key: clamp("attn_k")?,
            value: clamp("attn_v")?,
            out: clamp("attn_out")?,
            gate: clamp("ffn_gate")?,
            up: clamp("ffn_up")?,
            down: clamp("ffn_down")?,
        }))
    }
}

impl Clamp {
    fn read<T: Tensors>(tensors: &mut T, name: &str) -> Result<Self, LoadError> {
        let mut bounds = [
            f32::NEG_INFINITY,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::INFINITY,
        ];
        for (bound, kind) in bounds.iter_mut().zip(BOUNDS) {
            let name = format!("{name}.{kind}");
            match tensors.vector_if_there(&name, 1) {
                Ok(found) => *bound = found.map_or(*bound, |found| found[0]),
                // Unbounded matrices are stored with infinite bounds.
                Err(LoadError::Value { .. }) => tensors.ignore(&name),
                Err(error) => return Err(error),
            }
        }
        let [input_min, input_max, output_min, output_max] = bounds;
        Ok(Self {
            input: [input_min, input_max],
            output: [output_min, output_max],
        })
    }
}

impl<P: Packing> PatchMatrix<P> {
    /// Reads the matrix and its norms, in a model without a tower.
    fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Option<Self>, LoadError> {
        if config.projector != Projector::Gemma4Uv {
            return Ok(None);
        }
        let (dim, cols) = (config.dim, config.patch_cols());
        Ok(Some(Self {
            before: norm(tensors, config, "v.patch_norm.1", cols)?,
            matrix: linear(tensors, "v.patch_embd", dim, cols)?,
            after: norm(tensors, config, "v.patch_norm.2", dim)?,
            placed: norm(tensors, config, "v.patch_norm.3", dim)?,
        }))
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

/// The row without a patch, and the entries of the table for patches.
fn read_places<T: Tensors>(
    tensors: &mut T,
    config: &VisionConfig,
) -> Result<(Option<Vec<f32>>, Vec<f32>), LoadError> {
    let (dim, entries) = (config.dim, config.table_entries());
    let mut class = None;
    if config.traits.class_token {
        class = Some(tensors.vector("v.class_embd", dim)?);
    }
    if config.traits.positions.is_none() {
        // The first converter of Qwen2-VL writes a table that nothing reads.
        tensors.ignore("v.position_embd.weight");
        return Ok((class, Vec::new()));
    }
    if config.traits.positions == Some(Positions::Axes) {
        let name = "v.position_embd.weight";
        let stored = tensors.rows_of(name)? / 2;
        let tables = tensors.numbers(name, &[dim as u64, stored as u64, 2])?;
        let used = |table: &[f32]| table[..config.table_edge.min(stored) * dim].to_vec();
        let (columns, rows) = tables.split_at(stored * dim);
        return Ok((class, [used(columns), used(rows)].concat()));
    }
    let first = usize::from(class.is_some());
    let mut table = tensors.table("v.position_embd.weight", first + entries, dim)?;
    let patches = table.split_off(first * dim);
    if let Some(class) = &mut class {
        class.iter_mut().zip(&table).for_each(|(sum, x)| *sum += x);
    }
    Ok((class, patches))
}

/// The row at the end of a line, in a tower with such rows.
fn read_line_end<T: Tensors>(
    tensors: &mut T,
    config: &VisionConfig,
) -> Result<Option<Vec<f32>>, LoadError> {
    // Old files have the first name of two.
    let names = match config.projector {
        Projector::Pixtral => ["v.token_embd.img_break"; 2],
        Projector::Llava => ["model.image_newline", "v.image_newline"],
        _ => return Ok(None),
    };
    let [old, name] = names;
    let name = if tensors.has(old) { old } else { name };
    if config.projector == Projector::Llava && config.windows == Windows::Whole {
        tensors.ignore(name);
        return Ok(None);
    }
    tensors.vector(name, config.projection_dim).map(Some)
}

/// Queries, keys and values, as three tensors or as one.
pub(super) fn read_qkv<T: Tensors>(
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

pub(super) fn linear<T: Tensors>(
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

fn linear_if_there<T: Tensors>(
    tensors: &mut T,
    name: &str,
    rows: usize,
    cols: usize,
) -> Result<Option<Linear<T::Packing>>, LoadError> {
    let is_there = tensors.has(&format!("{name}.weight"));
    let linear = is_there.then(|| linear(tensors, name, rows, cols));
    linear.transpose()
}

/// A norm of the tower's kind. A layer norm has biases.
pub(super) fn norm<T: Tensors>(
    tensors: &mut T,
    config: &VisionConfig,
    name: &str,
    len: usize,
) -> Result<Norm, LoadError> {
    let centered = config.traits.norm == NormKind::Layer;
    let bias = format!("{name}.bias");
    Ok(Norm {
        weight: tensors.vector(&format!("{name}.weight"), len)?,
        bias: centered.then(|| tensors.vector(&bias, len)).transpose()?,
        centered,
    })
}

fn norm_if_there<T: Tensors>(
    tensors: &mut T,
    config: &VisionConfig,
    name: &str,
    len: usize,
) -> Result<Option<Norm>, LoadError> {
    let is_there = tensors.has(&format!("{name}.weight"));
    let norm = is_there.then(|| norm(tensors, config, name, len));
    norm.transpose()
}

/// An RMS norm of queries or keys: of each head, or of all together.
fn head_norm<T: Tensors>(
    tensors: &mut T,
    config: &VisionConfig,
    name: &str,
) -> Result<Option<Norm>, LoadError> {
    let name = format!("{name}.weight");
    if !tensors.has(&name) {
        return Ok(None);
    }
    let of_head = tensors.vector(&name, config.head_dim());
    let weight = of_head.or_else(|_| tensors.vector(&name, config.dim))?;
    Ok(Some(Norm::rms(weight)))
}
