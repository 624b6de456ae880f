//! The weights of one layer.

use super::altup::LayerStates;
use super::attention::Attention;
use super::experts::Experts;
use super::latent::Latent;
use super::linear::{Linear, LinearOf, Names, cut, join, linear};
use super::norm::Norm;
use super::norms::LayerNorms;
use super::per_layer::PerLayerUpdate;
use super::recurrent::Recurrent;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;
use crate::config::altup::cutoff;

/// Input of attention or of a feed-forward part.
pub enum BlockInput {
    /// The normalized stream.
    Normed(Norm),
    /// The stream.
    Stream,
    /// The input of the attention of the same layer.
    AsAttention,
}

/// A feed-forward part that every row uses.
pub struct Dense<P: Packing = KernelPacking> {
    pub gate: Option<Linear<P>>,
    /// Standard deviations above the mean from which on entries of the gate are kept.
    pub cutoff: Option<f32>,
    pub up: Linear<P>,
    pub down: Linear<P>,
    /// Weights of a row's factor, before the sigmoid (dim).
    pub share: Option<Vec<f32>>,
}

/// The weights of one layer. Norms are `(dim)`; those of queries and keys `(head_dim)` or as long as a row.
pub struct Layer<P: Packing = KernelPacking> {
    /// Input of attention, or of the recurrent part.
    pub attention_input: BlockInput,
    pub attention: Option<Attention<P>>,
    /// Attention to latents, in place of the other.
    pub latent: Option<Latent<P>>,
    /// The recurrent part, in place of attention or beside it.
    pub recurrent: Option<Recurrent<P>>,
    pub attention_post_norm: Option<Norm>,
    /// Input of the feed-forward part, if there is one.
    pub hidden_input: BlockInput,
    /// The feed-forward part, or the expert that every row uses beside the others.
    pub dense: Option<Dense<P>>,
    pub experts: Option<Experts<P>>,
    pub hidden_post_norm: Option<Norm>,
    pub per_layer: Option<PerLayerUpdate<P>>,
    /// Of a model with several states.
    pub states: Option<LayerStates<P>>,
    /// Factor of the stream after the layer.
    pub output_scale: Option<f32>,
}

impl<P: Packing> Layer<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let names = Names { layer };
        let shape = &config.shapes[layer];
        let latent = config.latent.as_ref();
        let latent = latent.map(|sizes| Latent::load(tensors, config, sizes, &names));
        let latent = latent.transpose()?;
        let attention = shape.attends() && latent.is_none();
        let attention = attention.then(|| Attention::load(tensors, config, &names));
        let attention = attention.transpose()?;
        let recurrent = config.recurrent.as_ref();
        let recurrent = recurrent.filter(|recurrent| recurrent.layers[layer]);
        let recurrent = recurrent.map(|layers| Recurrent::load(tensors, config, layers, &names));
        let recurrent = recurrent.transpose()?;
        let dense = (shape.hidden > 0).then(|| Dense::load(tensors, config, &names));
        let dense = dense.transpose()?;
        let experts = config.experts_of(layer);
        let experts = experts.map(|experts| Experts::load(tensors, config, experts, &names));
        let experts = experts.transpose()?;
        let norms = &mut LayerNorms {
            tensors,
            config,
            names: &names,
        };
        Ok(Self {
            attention,
            latent,
            recurrent,
            dense,
            experts,
            attention_post_norm: norms.after("post_attention_norm")?,
            hidden_post_norm: norms.after("post_ffw_norm")?,
            attention_input: norms.before_attention()?,
            hidden_input: norms.before_feed_forward()?,
            per_layer: PerLayerUpdate::load(tensors, config, &names)?,
            states: LayerStates::load(tensors, config, &names)?,
            output_scale: load_output_scale(tensors, config, &names)?,
        })
    }

    /// Whether the layer has attention, a recurrent part, or both.
    pub fn mixes(&self) -> bool {
        self.attention.is_some() || self.latent.is_some() || self.recurrent.is_some()
    }

    /// Whether the layer has a feed-forward part.
    pub fn feeds(&self) -> bool {
        self.dense.is_some() || self.experts.is_some()
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let attention = self.attention.iter().flat_map(Attention::matrices);
        let latent = self.latent.iter().flat_map(Latent::matrices);
        let attention = attention.chain(latent);
        let recurrent = self.recurrent.iter().flat_map(Recurrent::matrices);
        let dense = self.dense.iter().flat_map(|dense| {
            let always = [&dense.up, &dense.down].into_iter();
            always.chain(&dense.gate)
        });
        let per_layer = self.per_layer.iter().flat_map(PerLayerUpdate::matrices);
        let states = self.states.iter().flat_map(LayerStates::matrices);
        let others = per_layer.chain(states);
        let dense = dense.map(|linear| &linear.weight);
        attention.chain(recurrent).chain(dense).chain(others)
    }
}

impl<P: Packing> Dense<P> {
    /// The shared expert's tensors have names of their own.
    fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        names: &Names,
    ) -> Result<Self, LoadError> {
        let (hidden, dim) = (config.shapes[names.layer].hidden, config.dim);
        if config.experts_of(names.layer).is_some() && !config.traits.dense_beside_experts {
            let mut part = |name: &str, rows, cols| {
                linear(tensors, names, &format!("{name}_shexp"), rows, cols)
            };
            return Ok(Self {
                gate: Some(part("ffn_gate", hidden, dim)?),
                cutoff: None,
                up: part("ffn_up", hidden, dim)?,
                down: part("ffn_down", dim, hidden)?,
                share: if config.traits.shared_gate {
                    Some(tensors.vector(&names.weight("ffn_gate_inp_shexp"), dim)?)
                } else {
                    None
                },
            });
        }
        let (gate, up) = load_gate_up(tensors, config, names)?;
        let sparse = config.traits.altup;
        Ok(Self {
            gate,
            cutoff: sparse.then(|| cutoff(names.layer)).flatten(),
            up,
            down: linear(tensors, names, "ffn_down", dim, hidden)?,
            share: None,
        })
    }
}

fn load_output_scale<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    names: &Names,
) -> Result<Option<f32>, LoadError> {
    let name = names.weight("layer_output_scale");
    if !config.traits.layers_differ || !tensors.has(&name) {
        return Ok(None);
    }
    Ok(tensors.vector(&name, 1)?.first().copied())
}

/// Gate, if the family has one, and up projections, from two tensors or from one.
fn load_gate_up<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    names: &Names,
) -> Result<(Option<LinearOf<T>>, LinearOf<T>), LoadError> {
    let (hidden, dim) = (config.shapes[names.layer].hidden, config.dim);
    if !config.traits.fused_gate_up {
        let gate = if config.traits.gated {
            Some(linear(tensors, names, "ffn_gate", hidden, dim)?)
        } else {
            None
        };
        return Ok((gate, linear(tensors, names, "ffn_up", hidden, dim)?));
    }
    let rows = [hidden, hidden];
    let bias = tensors.vector_if_there(&names.bias("ffn_up"), 2 * hidden)?;
    let weights = tensors.split(&names.weight("ffn_up"), rows, dim)?;
    let [gate, up] = join(weights, cut(bias, rows));
    Ok((Some(gate), up))
}
