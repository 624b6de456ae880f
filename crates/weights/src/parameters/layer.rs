//! The weights of one layer.

use super::altup::LayerStates;
use super::attention::Attention;
use super::experts::Experts;
use super::latent::Latent;
use super::layer_tensors::LayerTensors;
use super::linear::{Linear, LinearOf, cut, join};
use super::norm::Norm;
use super::per_layer::PerLayerUpdate;
use super::recurrent::Recurrent;
use super::tensors::{KernelPacking, Packing, Tensors};
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
        layer: &mut LayerTensors<'_, T>,
    ) -> Result<Self, LoadError> {
        let (config, number) = (layer.config, layer.layer);
        let shape = &config.shapes[number];
        let latent = config.latent.as_ref();
        let latent = latent.map(|sizes| Latent::load(layer, sizes)).transpose()?;
        let attention = shape.attends() && latent.is_none();
        let attention = attention.then(|| Attention::load(layer)).transpose()?;
        let recurrent = config.recurrent.as_ref();
        let recurrent = recurrent.filter(|recurrent| recurrent.layers[number]);
        let recurrent = recurrent.map(|layers| Recurrent::load(layer, layers));
        let recurrent = recurrent.transpose()?;
        let dense = (shape.hidden > 0).then(|| Dense::load(layer)).transpose()?;
        let experts = config.experts_of(number);
        let experts = experts.map(|experts| Experts::load(layer, experts));
        Ok(Self {
            attention,
            latent,
            recurrent,
            dense,
            experts: experts.transpose()?,
            attention_post_norm: layer.post_norm("post_attention_norm")?,
            hidden_post_norm: layer.post_norm("post_ffw_norm")?,
            attention_input: layer.attention_input()?,
            hidden_input: layer.feed_forward_input()?,
            per_layer: PerLayerUpdate::load(layer)?,
            states: LayerStates::load(layer)?,
            output_scale: load_output_scale(layer)?,
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
    fn load<T: Tensors<Packing = P>>(layer: &mut LayerTensors<'_, T>) -> Result<Self, LoadError> {
        let (config, number) = (layer.config, layer.layer);
        let (hidden, dim) = (config.shapes[number].hidden, config.dim);
        if config.experts_of(number).is_some() && !config.traits.dense_beside_experts {
            return Ok(Self {
                gate: Some(layer.linear("ffn_gate_shexp", hidden, dim)?),
                cutoff: None,
                up: layer.linear("ffn_up_shexp", hidden, dim)?,
                down: layer.linear("ffn_down_shexp", dim, hidden)?,
                share: if config.traits.shared_gate {
                    Some(layer.vector("ffn_gate_inp_shexp", dim)?)
                } else {
                    None
                },
            });
        }
        let (gate, up) = load_gate_up(layer, hidden)?;
        let sparse = config.traits.altup;
        Ok(Self {
            gate,
            cutoff: sparse.then(|| cutoff(number)).flatten(),
            up,
            down: layer.linear("ffn_down", dim, hidden)?,
            share: None,
        })
    }
}

fn load_output_scale<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
) -> Result<Option<f32>, LoadError> {
    if !layer.config.traits.layers_differ || !layer.has("layer_output_scale") {
        return Ok(None);
    }
    Ok(layer.vector("layer_output_scale", 1)?.first().copied())
}

/// Gate, if the family has one, and up projections, from two tensors or from one.
fn load_gate_up<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    hidden: usize,
) -> Result<(Option<LinearOf<T>>, LinearOf<T>), LoadError> {
    let (dim, traits) = (layer.config.dim, &layer.config.traits);
    if !traits.fused_gate_up {
        let gate = traits.gated;
        let gate = gate.then(|| layer.linear("ffn_gate", hidden, dim));
        return Ok((gate.transpose()?, layer.linear("ffn_up", hidden, dim)?));
    }
    let rows = [hidden, hidden];
    let bias = layer.bias_if_there("ffn_up", 2 * hidden)?;
    let weights = layer.tensors.split(&layer.weight("ffn_up"), rows, dim)?;
    let [gate, up] = join(weights, cut(bias, rows));
    Ok((Some(gate), up))
}
