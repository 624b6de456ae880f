//! Projectors between a tower and the text, by kind of arithmetic.

use super::linear::Linear;
use super::norm::Norm;
use super::resampler::Resampler;
use super::tensors::{KernelPacking, Packing, Tensors};
use super::tower::{linear, norm};
use crate::LoadError;
use crate::config::limits;
use crate::vision::{Projector, VisionConfig};

/// Two matrices that turn neighbors, side by side, into a row, with a gelu by the error function between them.
pub struct Merger<P: Packing = KernelPacking> {
    /// Of a patch, `(dim)`, or of all that stand side by side, by its length.
    pub norm: Option<Norm>,
    /// Neighbors to one patch, `(dim, side)`, where `side` is the width of the neighbors. Its inputs are by element: the first
    /// of each neighbor, then the second of each.
    pub reduce: Option<Linear<P>>,
    /// `(inner, side)`, or `(inner, dim)` of reduced neighbors.
    pub first: Linear<P>,
    /// `(projection_dim, inner)`.
    pub second: Linear<P>,
}

/// The projector between the tower and the text.
pub enum TowerHead<P: Packing = KernelPacking> {
    /// Neighbors side by side, through one matrix, `(projection_dim, side)`.
    Joined { matrix: Linear<P> },
    /// Neighbors side by side, normalized if there is a norm, through two.
    Merged(Merger<P>),
    /// The mean of neighbors, an RMS norm, and a matrix in f32, `(projection_dim, dim)`.
    Pooled { norm: Vec<f32>, matrix: Vec<f32> },
    /// The mean of neighbors times `factor`, less the first of `standard` and times the second, an RMS norm, and a matrix,
    /// `(projection_dim, dim)`.
    Standardized {
        factor: f32,
        standard: Option<[Vec<f32>; 2]>,
        norm: Vec<f32>,
        matrix: Linear<P>,
    },
    /// Learned queries that attend to all patches.
    Resampled(Box<Resampler<P>>),
}

impl<P: Packing> Merger<P> {
    /// Reads a norm of `width` and two matrices of these names, with rows of `inner` between them.
    pub(super) fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
        [norm, first, second]: &[String; 3],
        (width, inner): (usize, usize),
    ) -> Result<Self, LoadError> {
        let side = config.dim * config.merged_patches();
        Ok(Self {
            norm: Some(self::norm(tensors, config, norm, width)?),
            reduce: None,
            first: linear(tensors, first, inner, side)?,
            second: linear(tensors, second, config.projection_dim, inner)?,
        })
    }

    /// Reads Pixtral's: neighbors are reduced to one patch, in towers that merge.
    fn read_reduced<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Self, LoadError> {
        let (dim, out) = (config.dim, config.projection_dim);
        let side = dim * config.merged_patches();
        let merges = side > dim;
        let norm = merges.then(|| norm(tensors, config, "mm.input_norm", dim));
        let norm = norm.transpose()?;
        let reduce = merges.then(|| linear(tensors, "mm.patch_merger", dim, side));
        Ok(Self {
            norm,
            reduce: reduce.transpose()?,
            first: linear(tensors, "mm.1", out, dim)?,
            second: linear(tensors, "mm.2", out, out)?,
        })
    }

    /// Reads two matrices of these names, with rows of `inner` between them, and a norm of neighbors side by side, if there is one.
    fn read_side<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
        [first, second]: [&str; 2],
        inner: usize,
    ) -> Result<Self, LoadError> {
        let side = config.side();
        let is_normed = tensors.has("mm.input_norm.weight") || config.projector != Projector::Lfm2;
        let norm = is_normed.then(|| side_norm(tensors, "mm.input_norm", side));
        Ok(Self {
            norm: norm.transpose()?,
            reduce: None,
            first: linear(tensors, first, inner, side)?,
            second: linear(tensors, second, config.projection_dim, inner)?,
        })
    }

    pub(super) fn linears(&self) -> impl Iterator<Item = &Linear<P>> {
        self.reduce.iter().chain([&self.first, &self.second])
    }
}

impl<P: Packing> TowerHead<P> {
    pub(super) fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
    ) -> Result<Self, LoadError> {
        let (dim, out, side) = (config.dim, config.projection_dim, config.side());
        if let Some(sizes) = config.resampler {
            let resampler = Resampler::read(tensors, config, sizes)?;
            return Ok(Self::Resampled(Box::new(resampler)));
        }
        Ok(match config.projector {
            Projector::Idefics3 => Self::Joined {
                matrix: linear(tensors, "mm.model.fc", out, side)?,
            },
            Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl => {
                let names = ["v.post_ln", "mm.0", "mm.2"].map(str::to_owned);
                Self::Merged(Merger::read(tensors, config, &names, (dim, side))?)
            }
            Projector::Pixtral => Self::Merged(Merger::read_reduced(tensors, config)?),
            Projector::Llava => Self::Merged(Merger {
                norm: None,
                reduce: None,
                first: linear(tensors, "mm.0", out, side)?,
                second: linear(tensors, "mm.2", out, out)?,
            }),
            Projector::InternVl => Self::Merged(Merger {
                norm: Some(side_norm(tensors, "mm.model.mlp.0", side)?),
                reduce: None,
                first: linear(tensors, "mm.model.mlp.1", out, side)?,
                second: linear(tensors, "mm.model.mlp.3", out, out)?,
            }),
            Projector::Lfm2 => {
                let inner = tensors.rows_of("mm.1.weight")?.min(limits::HIDDEN);
                Self::Merged(Merger::read_side(tensors, config, ["mm.1", "mm.2"], inner)?)
            }
            Projector::Resampler | Projector::MiniCpm46 => Self::Merged(Merger::read_side(
                tensors,
                config,
                ["mm.up", "mm.down"],
                side,
            )?),
            Projector::Gemma4V | Projector::Gemma4Uv => {
                let has_layers = config.layers > 0;
                let standard = tensors.has("v.std_bias").then(|| {
                    let shift = tensors.vector("v.std_bias", dim)?;
                    Ok::<_, LoadError>([shift, tensors.vector("v.std_scale", dim)?])
                });
                Self::Standardized {
                    factor: if has_layers { (dim as f32).sqrt() } else { 1.0 },
                    standard: standard.transpose()?,
                    norm: vec![1.0; dim],
                    matrix: linear(tensors, "mm.input_projection", out, dim)?,
                }
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

    pub(super) fn linears(&self) -> impl Iterator<Item = &Linear<P>> {
        let linears: Vec<&Linear<P>> = match self {
            Self::Joined { matrix } | Self::Standardized { matrix, .. } => vec![matrix],
            Self::Merged(merger) => merger.linears().collect(),
            Self::Pooled { .. } => Vec::new(),
            Self::Resampled(resampler) => resampler.linears().to_vec(),
        };
        linears.into_iter()
    }
}

/// The norm of neighbors side by side: a layer norm in towers of every kind.
fn side_norm<T: Tensors>(tensors: &mut T, name: &str, side: usize) -> Result<Norm, LoadError> {
    Ok(Norm {
        weight: tensors.vector(&format!("{name}.weight"), side)?,
        bias: Some(tensors.vector(&format!("{name}.bias"), side)?),
        centered: true,
    })
}

/// A matrix of rows of `cols`, with rows and columns exchanged.
fn transposed(matrix: &[f32], cols: usize) -> Vec<f32> {
    let rows = matrix.len() / cols.max(1);
    let at = |index: usize| matrix[index % rows * cols + index / rows];
    (0..matrix.len()).map(at).collect()
}
