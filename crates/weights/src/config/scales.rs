//! Factors of embeddings, updates, attention scores and logits.

use super::keys::Keys;
use super::traits::{LogitScale, Traits};
use super::{ConfigError, HeadSizes, limits};

/// Factors of a decoder; 1 has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Scales {
    /// Factor of the embeddings.
    pub embedding: f32,
    /// Factor of vectors in the place of embeddings. Families with multipliers were trained with that of the embeddings, others
    /// with none.
    pub vectors: f32,
    /// Factor of the outputs of attention and feed-forward before they are added to the stream.
    pub update: f32,
    /// Factor of the attention scores.
    pub query: f32,
    /// Growth of the attention scores with the position.
    pub temperature: Option<Temperature>,
    /// Factor of the logits.
    pub logits: f32,
}

/// Growth of attention scores with the position (Llama 4, Mistral 3): the factor
/// `1 + scale * ln(1 + floor(position / step))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Weight of the logarithm.
    pub scale: f32,
    /// Positions between two steps: the context before it was extended.
    pub step: usize,
}

impl Temperature {
    /// The factor of a query's scores.
    pub fn factor(&self, position: usize) -> f32 {
        let steps = (position / self.step) as f64;
        ((steps + 1.0).ln() * f64::from(self.scale) + 1.0) as f32
    }
}

impl Scales {
    pub(super) fn read(
        keys: &Keys<'_>,
        traits: &Traits,
        layers: usize,
        dim: usize,
        heads: &HeadSizes,
    ) -> Result<Self, ConfigError> {
        let multiplier = |name: &str, default: f32| {
            if traits.multipliers {
                let found = keys.float(name, limits::MULTIPLIER)?;
                Ok(found.filter(|&factor| factor > 0.0).unwrap_or(default))
            } else {
                Ok(default)
            }
        };
        let by_width = if traits.scaled_embedding {
            (dim as f32).sqrt()
        } else {
            1.0
        };
        let embedding = multiplier("embedding_scale", by_width)?;
        Ok(Self {
            embedding,
            vectors: if traits.multipliers { embedding } else { 1.0 },
            update: multiplier("residual_scale", 1.0)?,
            query: multiplier("attention.scale", query_scale(traits, layers, dim, heads))?,
            temperature: read_temperature(keys)?,
            logits: read_logits(keys, traits.logit_scale)?,
        })
    }
}

fn query_scale(traits: &Traits, layers: usize, dim: usize, heads: &HeadSizes) -> f32 {
    if traits.unscaled_scores || heads.queries == 0 {
        return 1.0;
    }
    let by_dim = traits.layers_scaled_by_dim == Some(layers);
    let divisor = if by_dim {
        dim / heads.queries
    } else {
        heads.dim
    };
    1.0 / (divisor as f32).sqrt()
}

fn read_temperature(keys: &Keys<'_>) -> Result<Option<Temperature>, ConfigError> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    let scale = keys.float("attention.temperature_scale", limits::TEMPERATURE)?;
    let Some(scale) = scale.filter(|&scale| scale > 0.0) else {
        return Ok(None);
    };
    let step = match keys.size(ORIGINAL, 1, limits::CONTEXT)? {
        Some(step) => step,
        None => keys.required("context_length", 1, limits::CONTEXT)?,
    };
    Ok(Some(Temperature { scale, step }))
}

fn read_logits(keys: &Keys<'_>, meaning: LogitScale) -> Result<f32, ConfigError> {
    const NAME: &str = "logit_scale";
    match meaning {
        LogitScale::Never => Ok(1.0),
        LogitScale::Factor => {
            let factor = keys.float(NAME, limits::MULTIPLIER)?;
            Ok(factor.filter(|&factor| factor > 0.0).unwrap_or(1.0))
        }
        LogitScale::Divisor => match keys.float(NAME, limits::DIVISOR)? {
            Some(divisor) => Ok(1.0 / divisor),
            None => Err(keys.missing(NAME)),
        },
    }
}
