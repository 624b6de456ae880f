//! The tensors of one layer by the parts of their names, and the norms of a decoder's layers.

use super::layer::BlockInput;
use super::linear::{Linear, LinearOf};
use super::norm::Norm;
use super::tensors::Tensors;
use crate::Config;
use crate::LoadError;
use crate::config::traits::{FeedRule, QkNorm};

/// The tensors of one layer: `attn_q` stands for `blk.3.attn_q`.
pub(super) struct LayerTensors<'a, T, C = Config> {
    pub(super) tensors: &'a mut T,
    pub(super) config: &'a C,
    pub(super) layer: usize,
}

impl<T: Tensors, C> LayerTensors<'_, T, C> {
    pub(super) fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.layer)
    }

    pub(super) fn weight(&self, part: &str) -> String {
        format!("blk.{}.{part}.weight", self.layer)
    }

    pub(super) fn bias(&self, part: &str) -> String {
        format!("blk.{}.{part}.bias", self.layer)
    }

    /// Whether there are weights of this name.
    pub(super) fn has(&self, part: &str) -> bool {
        self.tensors.has(&self.weight(part))
    }

    /// A projection, with the bias that is there.
    pub(super) fn linear(
        &mut self,
        part: &str,
        rows: usize,
        cols: usize,
    ) -> Result<LinearOf<T>, LoadError> {
        Ok(Linear {
            weight: self.tensors.matrix(&self.weight(part), rows, cols)?,
            bias: self.bias_if_there(part, rows)?,
            adapters: None,
        })
    }

    pub(super) fn vector(&mut self, part: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.tensors.vector(&self.weight(part), len)
    }

    pub(super) fn table(
        &mut self,
        part: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Vec<f32>, LoadError> {
        self.tensors.table(&self.weight(part), rows, cols)
    }

    pub(super) fn bias_if_there(
        &mut self,
        part: &str,
        len: usize,
    ) -> Result<Option<Vec<f32>>, LoadError> {
        self.tensors.vector_if_there(&self.bias(part), len)
    }

    /// An RMS norm without biases.
    pub(super) fn rms(&mut self, part: &str, len: usize) -> Result<Norm, LoadError> {
        Ok(Norm::rms(self.vector(part, len)?))
    }
}

impl<T: Tensors> LayerTensors<'_, T> {
    pub(super) fn attention_input(&mut self) -> Result<BlockInput, LoadError> {
        if self.config.traits.pre_norms {
            Ok(BlockInput::Normed(self.norm("attn_norm")?))
        } else {
            Ok(BlockInput::Stream)
        }
    }

    pub(super) fn feed_forward_input(&mut self) -> Result<BlockInput, LoadError> {
        let traits = &self.config.traits;
        let name = traits.feed_norm;
        let as_attention = match traits.feed {
            FeedRule::AfterAttention => false,
            FeedRule::AsAttention | FeedRule::Alone | FeedRule::Never => true,
            FeedRule::ByNorm => !self.has(name),
        };
        Ok(match (as_attention, traits.pre_norms) {
            (true, _) => BlockInput::AsAttention,
            (false, true) if traits.bare_feed_norm => {
                let names = [self.name(name), self.bias(name)];
                BlockInput::Normed(stream_norm(self.tensors, self.config, &names)?)
            }
            (false, true) => BlockInput::Normed(self.norm(name)?),
            (false, false) => BlockInput::Stream,
        })
    }

    /// The norm of an output, if the family has one.
    pub(super) fn post_norm(&mut self, part: &str) -> Result<Option<Norm>, LoadError> {
        let found = self.config.traits.post_norms.then(|| self.norm(part));
        found.transpose()
    }

    /// The norm of queries or keys of `cols` columns, if there is one.
    pub(super) fn head_norm(&mut self, part: &str, cols: usize) -> Result<Option<Norm>, LoadError> {
        let head_dim = self.config.shapes[self.layer].head_dim;
        let weight = match self.config.traits.qk_norm {
            QkNorm::Never => return Ok(None),
            QkNorm::Heads | QkNorm::TurnedHeads => self.vector(part, head_dim)?,
            QkNorm::Row => self.vector(part, cols)?,
            QkNorm::EachHead if !self.has(part) => return Ok(None),
            QkNorm::EachHead => self.table(part, cols / head_dim, head_dim)?,
        };
        Ok(Some(Norm {
            weight,
            bias: None,
            centered: self.config.traits.layer_norms,
        }))
    }

    /// A norm of rows of the stream.
    pub(super) fn norm(&mut self, part: &str) -> Result<Norm, LoadError> {
        let names = [self.weight(part), self.bias(part)];
        stream_norm(self.tensors, self.config, &names)
    }
}

/// A norm of rows of the stream, from its weight and its bias.
pub(super) fn stream_norm<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    [weight, bias]: &[String; 2],
) -> Result<Norm, LoadError> {
    let centered = config.traits.layer_norms;
    Ok(Norm {
        weight: tensors.vector(weight, config.dim)?,
        bias: if centered {
            tensors.vector_if_there(bias, config.dim)?
        } else {
            None
        },
        centered,
    })
}
