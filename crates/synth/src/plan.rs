//! Tensors of a synthetic model, with formats and contents.

use super::error::SynthError;
use super::experts::ExpertsSynth;
use super::mix::Role;
use super::rope_factors::rope_factors;
use super::spec::SynthSpec;
use kernels::Format;
use weights::config::traits::{FeedRule, QkNorm, Traits};
use weights::config::{Architecture, Gate};
use weights::gguf::{TensorKind, TensorPlan};

/// Content of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fill {
    /// Noise with mean 0.
    Noise { format: Format, deviation: f32 },
    /// f32, uniform within a tenth of `mean` on either side.
    Norm { mean: f32 },
    /// These values.
    Values(Vec<f32>),
}

/// A tensor and its content.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) tensor: TensorPlan,
    pub(super) fill: Fill,
}

/// Sharpness of attention: queries and keys have this deviation, scores its square.
pub(super) const SHARPNESS: f32 = 1.5;

/// Deviation of the logits: the weights of the output norm. The embedding has `1 / sqrt(dim)`, tied or not,
/// so that a token does not predict itself.
const LOGIT_SPREAD: f32 = 3.0;

/// Deviation of the router's scores: some experts have most of the weight, and few choices are close calls.
pub(super) const ROUTER_SPREAD: f32 = 2.0;

/// Deviation of attention sinks: some take most of the weight of a head, some none.
const SINK_SPREAD: f32 = 4.0;

/// Deviation of what a bounded activation reads: some of it is beyond the bound of 7.
const CLAMPED_GAIN: f32 = 4.0;

/// Deviation of biases.
const BIAS_SPREAD: f32 = 0.5;

/// Weights of the norms after attention and feed-forward (Gemma): Gemma multiplies the embedding by
/// `sqrt(dim)`, and a token must not predict itself.
const POST_NORM: f32 = 4.0;

impl SynthSpec {
    /// All tensors in file order.
    pub(super) fn plan(&self) -> Result<Vec<Planned>, SynthError> {
        let mut planner = Planner {
            spec: self,
            traits: self.architecture.traits(),
            tensors: Vec::new(),
        };
        planner.model()?;
        for layer in 0..self.layers {
            planner.mixing_parts(layer)?;
            planner.feed_forward(layer)?;
            planner.layer_update(layer)?;
            planner.layer_states(layer);
        }
        if self.mtp {
            planner.mtp_head()?;
        }
        Ok(planner.tensors)
    }
}

pub(super) struct Planner<'a> {
    pub(super) spec: &'a SynthSpec,
    pub(super) traits: Traits,
    tensors: Vec<Planned>,
}

impl Planner<'_> {
    fn model(&mut self) -> Result<(), SynthError> {
        let spec = self.spec;
        for (name, values) in rope_factors(spec) {
            self.vector(name, values.len() as u32, Fill::Values(values));
        }
        let embedding = if spec.tied { Role::Output } else { Role::Plain };
        self.matrix("token_embd.weight", spec.dim, spec.vocab, embedding, 1.0)?;
        self.stream_norm(self.traits.output_norm, LOGIT_SPREAD);
        if !spec.tied {
            self.matrix("output.weight", spec.dim, spec.vocab, Role::Output, 1.0)?;
        }
        if spec.architecture == Architecture::Phi2 {
            self.bias("output", spec.vocab);
        }
        self.state_head()?;
        self.states()?;
        self.layer_inputs()
    }

    /// The MTP head: a layer after the others.
    fn mtp_head(&mut self) -> Result<(), SynthError> {
        let (dim, layer) = (self.spec.dim, self.spec.layers);
        let name = |part: &str| format!("blk.{layer}.nextn.{part}.weight");
        self.mixing_parts(layer)?;
        self.feed_forward(layer)?;
        self.matrix(name("eh_proj"), 2 * dim, dim, Role::Plain, 1.0)?;
        self.norm(name("enorm"), dim, 1.0);
        self.norm(name("hnorm"), dim, 1.0);
        self.norm(name("shared_head_norm"), dim, LOGIT_SPREAD);
        Ok(())
    }

    /// Attention, a recurrent part, or both, with the norm before.
    fn mixing_parts(&mut self, layer: u32) -> Result<(), SynthError> {
        if self.traits.pre_norms {
            self.stream_norm(&format!("blk.{layer}.attn_norm"), 1.0);
        }
        let parts = self.spec.parts_of(layer);
        if let Some(recurrent) = parts.recurrent {
            self.recurrent(layer, recurrent)?;
        }
        match (parts.attends, self.spec.latent) {
            (false, _) => Ok(()),
            (true, Some(latent)) => self.latent_attention(layer, &latent),
            (true, None) => self.attention(layer),
        }
    }

    fn attention(&mut self, layer: u32) -> Result<(), SynthError> {
        use Architecture::{GptOss, Phi2, Phi3, Qwen2, Qwen2Vl, StableLm};
        let spec = self.spec;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let sizes = spec.sizes_of(layer);
        let (q, kv) = (spec.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
        if spec.architecture == Phi3 {
            let rows = q + 2 * kv;
            let role = Role::Value(layer);
            self.matrix(name("attn_qkv.weight"), spec.dim, rows, role, SHARPNESS)?;
        } else {
            // Queries and gates alternate.
            let query_rows = if self.traits.gated_attention {
                2 * q
            } else {
                q
            };
            let parts = [
                ("attn_q", query_rows, Role::Plain, SHARPNESS),
                ("attn_k", kv, Role::Plain, SHARPNESS),
                ("attn_v", kv, Role::Value(layer), 1.0),
            ];
            let left_out = |part| match part {
                "attn_k" => !sizes.has_keys,
                "attn_v" => !sizes.has_keys || !sizes.has_values,
                _ => false,
            };
            for (part, rows, role, gain) in parts {
                if left_out(part) {
                    continue;
                }
                self.matrix(name(&format!("{part}.weight")), spec.dim, rows, role, gain)?;
                if matches!(
                    spec.architecture,
                    Qwen2 | Qwen2Vl | Phi2 | StableLm | GptOss
                ) {
                    self.bias(&name(part), rows);
                }
            }
        }
        if self.traits.sinks {
            let fill = noise(SINK_SPREAD);
            self.vector(name("attn_sinks.weight"), spec.heads, fill);
        }
        self.head_norm(name("attn_q_norm.weight"), q, sizes.head_dim);
        if sizes.has_keys {
            self.head_norm(name("attn_k_norm.weight"), kv, sizes.head_dim);
        }
        self.matrix(name("attn_output.weight"), q, spec.dim, Role::Plain, 1.0)?;
        if matches!(spec.architecture, Phi2 | GptOss) {
            self.bias(&name("attn_output"), spec.dim);
        }
        if self.traits.post_norms {
            self.stream_norm(&name("post_attention_norm"), self.post_norm());
        }
        Ok(())
    }

    fn feed_forward(&mut self, layer: u32) -> Result<(), SynthError> {
        let (spec, traits) = (self.spec, self.traits);
        if !spec.parts_of(layer).feeds {
            return Ok(());
        }
        let (dim, ffn) = (spec.dim, spec.sizes_of(layer).ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let parallel = match traits.feed {
            FeedRule::AfterAttention => false,
            FeedRule::AsAttention | FeedRule::Alone | FeedRule::Never => true,
            FeedRule::ByNorm => spec.has_each_head_norm(),
        };
        if traits.bare_feed_norm {
            self.norm(name(traits.feed_norm), dim, 1.0);
        } else if traits.pre_norms && !parallel {
            self.stream_norm(&name(traits.feed_norm), 1.0);
        }
        match spec.experts {
            Some(experts) if traits.dense_beside_experts => self.experts_beside(layer, &experts)?,
            Some(experts) if spec.has_experts(layer) => return self.experts(layer, &experts),
            _ => {}
        }
        // Gate and up projection in one tensor, gate first.
        let up = if traits.fused_gate_up { 2 * ffn } else { ffn };
        if traits.gated && !traits.fused_gate_up {
            self.matrix(name("ffn_gate.weight"), dim, ffn, Role::Plain, 1.0)?;
        }
        self.matrix(name("ffn_up.weight"), dim, up, Role::Plain, 1.0)?;
        self.matrix(name("ffn_down.weight"), ffn, dim, Role::Down(layer), 1.0)?;
        if spec.architecture == Architecture::Phi2 {
            self.bias(&name("ffn_up"), ffn);
            self.bias(&name("ffn_down"), dim);
        }
        if traits.post_norms {
            self.stream_norm(&name("post_ffw_norm"), self.post_norm());
        }
        Ok(())
    }

    /// Router and experts, and the expert that each row uses.
    fn experts(&mut self, layer: u32, experts: &ExpertsSynth) -> Result<(), SynthError> {
        let (dim, ffn, down) = (self.spec.dim, experts.ffn, Role::ExpertDown(layer));
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let router = noise(ROUTER_SPREAD / (dim as f32).sqrt());
        let dims = vec![dim.into(), experts.count.into()];
        self.push(name("ffn_gate_inp"), dims, Format::F32, router);
        self.choice_bias(layer, experts.count);
        for (part, cols, rows, role) in [
            ("ffn_gate", dim, ffn, Role::Expert),
            ("ffn_up", dim, ffn, Role::Expert),
            ("ffn_down", ffn, dim, down),
        ] {
            let gain = self.expert_gain(part != "ffn_down");
            let dims = [cols, rows, experts.count];
            self.stack(name(&format!("{part}_exps")), dims, role, gain)?;
            if self.traits.expert_biases {
                let dims = [rows, experts.count].map(u64::from).to_vec();
                let name = format!("blk.{layer}.{part}_exps.bias");
                self.push(name, dims, Format::F32, noise(BIAS_SPREAD));
            }
        }
        if self.traits.expert_biases {
            self.bias(&format!("blk.{layer}.ffn_gate_inp"), experts.count);
        }
        if experts.shared > 0 {
            let ffn = experts.shared;
            self.matrix(name("ffn_gate_shexp"), dim, ffn, Role::Plain, 1.0)?;
            self.matrix(name("ffn_up_shexp"), dim, ffn, Role::Plain, 1.0)?;
            self.matrix(name("ffn_down_shexp"), ffn, dim, Role::Down(layer), 1.0)?;
            if self.traits.shared_gate {
                let fill = noise(1.0 / (dim as f32).sqrt());
                self.vector(name("ffn_gate_inp_shexp"), dim, fill);
            }
        }
        Ok(())
    }

    /// Gain of an expert's projections into the hidden width, or out of it.
    fn expert_gain(&self, into: bool) -> f32 {
        match (self.traits.gate, into) {
            (Gate::ClampedSwiglu, true) => CLAMPED_GAIN,
            (Gate::ClampedSwiglu, false) => 0.5 / CLAMPED_GAIN,
            _ => 1.0,
        }
    }

    /// Several matrices that preserve the magnitude of their input, times `gain`.
    pub(super) fn stack(
        &mut self,
        name: String,
        dims: [u32; 3],
        role: Role,
        gain: f32,
    ) -> Result<(), SynthError> {
        let cols = dims[0];
        let format = self.spec.mix.format(role, self.spec.layers, cols.into())?;
        let deviation = gain / (cols as f32).sqrt();
        let fill = Fill::Noise { format, deviation };
        self.push(name, dims.map(u64::from).to_vec(), format, fill);
        Ok(())
    }

    /// Weights of the norms of queries or keys of `cols` columns, if the model has such norms.
    fn head_norm(&mut self, name: String, cols: u32, head_dim: u32) {
        let mean = match self.traits.unscaled_scores {
            true => 1.0 / (head_dim as f32).sqrt().sqrt(),
            false => SHARPNESS,
        };
        let fill = Fill::Norm { mean };
        match self.traits.qk_norm {
            QkNorm::Never => {}
            QkNorm::Heads | QkNorm::TurnedHeads => self.vector(name, head_dim, fill),
            QkNorm::Row => self.vector(name, cols, fill),
            QkNorm::EachHead if self.spec.has_each_head_norm() => {
                let dims = vec![head_dim.into(), (cols / head_dim).into()];
                self.push(name, dims, Format::F32, fill);
            }
            QkNorm::EachHead => {}
        }
    }

    /// Mean of the norms after attention and feed-forward.
    pub(super) fn post_norm(&self) -> f32 {
        match self.traits.scaled_embedding {
            // As below.
            true if self.traits.altup => 0.4,
            true => POST_NORM,
            // Small updates, so that many layers amplify the rounding of keys and values little.
            false if self.spec.layers > 16 => 0.03,
            false => 1.0,
        }
    }

    /// A norm of the stream.
    fn stream_norm(&mut self, name: &str, mean: f32) {
        self.norm(format!("{name}.weight"), self.spec.dim, mean);
        let is_command_r = self.traits.feed == FeedRule::AsAttention && self.traits.gated;
        if self.traits.layer_norms && !is_command_r {
            self.bias(name, self.spec.dim);
        }
    }

    fn bias(&mut self, name: &str, len: u32) {
        self.vector(format!("{name}.bias"), len, noise(BIAS_SPREAD));
    }

    /// A matrix that preserves the magnitude of its input, times `gain`.
    pub(super) fn matrix(
        &mut self,
        name: impl Into<String>,
        cols: u32,
        rows: u32,
        role: Role,
        gain: f32,
    ) -> Result<(), SynthError> {
        let format = self.spec.mix.format(role, self.spec.layers, cols.into())?;
        let deviation = gain / (cols as f32).sqrt();
        let dims = vec![cols.into(), rows.into()];
        self.push(name, dims, format, Fill::Noise { format, deviation });
        Ok(())
    }

    pub(super) fn norm(&mut self, name: impl Into<String>, len: u32, mean: f32) {
        self.vector(name, len, Fill::Norm { mean });
    }

    pub(super) fn vector(&mut self, name: impl Into<String>, len: u32, fill: Fill) {
        self.push(name, vec![len.into()], Format::F32, fill);
    }

    pub(super) fn push(
        &mut self,
        name: impl Into<String>,
        dims: Vec<u64>,
        format: Format,
        fill: Fill,
    ) {
        let kind = TensorKind::from(format);
        self.tensors.push(Planned {
            tensor: TensorPlan {
                name: name.into(),
                dims,
                kind,
            },
            fill,
        });
    }
}

/// Numbers with mean 0 in f32.
fn noise(deviation: f32) -> Fill {
    Fill::Noise {
        format: Format::F32,
        deviation,
    }
}
