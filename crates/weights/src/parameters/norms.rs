//! The norms of a decoder.

use super::layer::BlockInput;
use super::linear::Names;
use super::norm::Norm;
use super::tensors::Tensors;
use crate::Config;
use crate::LoadError;
use crate::config::traits::{FeedRule, QkNorm};

/// Loads the norms of one layer.
pub(super) struct LayerNorms<'a, T> {
    pub(super) tensors: &'a mut T,
    pub(super) config: &'a Config,
    pub(super) names: &'a Names,
}

impl<T: Tensors> LayerNorms<'_, T> {
    pub(super) fn before_attention(&mut self) -> Result<BlockInput, LoadError> {
        if self.config.traits.pre_norms {
            self.before("attn_norm")
        } else {
            Ok(BlockInput::Stream)
        }
    }

    pub(super) fn before_feed_forward(&mut self) -> Result<BlockInput, LoadError> {
        let traits = &self.config.traits;
        let name = traits.feed_norm;
        let as_attention = match traits.feed {
            FeedRule::AfterAttention => false,
            FeedRule::AsAttention | FeedRule::Alone | FeedRule::Never => true,
            FeedRule::ByNorm => !self.tensors.has(&self.names.weight(name)),
        };
        match (as_attention, traits.pre_norms) {
            (true, _) => Ok(BlockInput::AsAttention),
            (false, true) if traits.bare_feed_norm => {
                let weight = format!("blk.{}.{name}", self.names.layer);
                let names = [weight, self.names.bias(name)];
                let norm = load_norm(self.tensors, self.config, &names)?;
                Ok(BlockInput::Normed(norm))
            }
            (false, true) => self.before(name),
            (false, false) => Ok(BlockInput::Stream),
        }
    }

    /// The norm of an output, if the family has one.
    pub(super) fn after(&mut self, name: &str) -> Result<Option<Norm>, LoadError> {
        let found = self.config.traits.post_norms.then(|| self.norm(name));
        found.transpose()
    }

    /// The norm of queries or keys of `cols` columns, if there is one.
    pub(super) fn of_heads(&mut self, name: &str, cols: usize) -> Result<Option<Norm>, LoadError> {
        let name = self.names.weight(name);
        let head_dim = self.config.shapes[self.names.layer].head_dim;
        let weight = match self.config.traits.qk_norm {
            QkNorm::Never => return Ok(None),
            QkNorm::Heads | QkNorm::TurnedHeads => self.tensors.vector(&name, head_dim)?,
            QkNorm::Row => self.tensors.vector(&name, cols)?,
            QkNorm::EachHead if !self.tensors.has(&name) => return Ok(None),
            QkNorm::EachHead => self.tensors.table(&name, cols / head_dim, head_dim)?,
        };
        Ok(Some(Norm {
            weight,
            bias: None,
            centered: self.config.traits.layer_norms,
        }))
    }

    fn before(&mut self, name: &str) -> Result<BlockInput, LoadError> {
        Ok(BlockInput::Normed(self.norm(name)?))
    }

    fn norm(&mut self, name: &str) -> Result<Norm, LoadError> {
        let names = [self.names.weight(name), self.names.bias(name)];
        load_norm(self.tensors, self.config, &names)
    }
}

/// A norm of rows of the stream, from its weight and its bias.
pub(super) fn load_norm<T: Tensors>(
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
