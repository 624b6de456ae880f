//! Tensors of a synthetic model: those that a load of its configuration asks for, with formats and contents.

use super::error::SynthError;
use super::keys;
use super::keys::rope_factors;
use super::mix::Role;
use super::outline::Outline;
use super::spec::SynthSpec;
use kernels::Format;
use weights::Config;
use weights::config::traits::{FeedRule, Traits};
use weights::config::{Architecture, Gate};
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};
use weights::parameters::Weights;

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
const SHARPNESS: f32 = 1.5;

/// Deviation of the logits: the weights of the output norm. The embedding has `1 / sqrt(dim)`, tied or not,
/// so that a token does not predict itself.
const LOGIT_SPREAD: f32 = 3.0;

/// Spread of the logits of a reranker's answers.
const ANSWER_GAIN: f32 = 0.5;

/// Deviation of the router's scores: some experts have most of the weight, and few choices are close calls.
pub(super) const ROUTER_SPREAD: f32 = 2.0;

/// Deviation of the bias of the choice among experts: as much as the differences of most sigmoids.
const CHOICE_SPREAD: f32 = 0.2;

/// Deviation of attention sinks: some take most of the weight of a head, some none.
const SINK_SPREAD: f32 = 4.0;

/// Deviation of what a bounded activation reads: some of it is beyond the bound of 7.
const CLAMPED_GAIN: f32 = 4.0;

/// Deviation of biases.
const BIAS_SPREAD: f32 = 0.5;

/// Deviation of the taps of a convolution: the present and the past weigh the same.
const TAP_SPREAD: f32 = 0.5;

/// Weights of the norms after attention and feed-forward (Gemma): Gemma multiplies the embedding by
/// `sqrt(dim)`, and a token must not predict itself.
const POST_NORM: f32 = 4.0;

impl SynthSpec {
    /// All tensors in file order.
    pub(super) fn plan(&self) -> Result<Vec<Planned>, SynthError> {
        let config = self.config()?;
        let mut outline = Outline::new(self);
        Weights::read(&mut outline, &config).map_err(SynthError::Load)?;
        let factors = rope_factors(self).into_iter().map(|(name, values)| {
            let dims = vec![values.len() as u64];
            Ok(planned(name.to_owned(), dims, Fill::Values(values)))
        });
        let traits = self.architecture.traits();
        let contents = outline.tensors.into_iter().map(|tensor| {
            let part = TensorPart::of(&tensor.name);
            let fill = if tensor.is_matrix {
                self.matrix_fill(&traits, &part, &tensor.dims)?
            } else {
                self.number_fill(&traits, &part, &tensor.dims)
            };
            Ok(planned(tensor.name.clone(), tensor.dims, fill))
        });
        factors.chain(contents).collect()
    }

    /// The configuration that a reader of the file finds.
    fn config(&self) -> Result<Config, SynthError> {
        let mut writer = GgufWriter::new();
        keys::put(self, &mut writer);
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(()))?;
        let gguf = Gguf::from_bytes(bytes).map_err(|error| SynthError::Shape(error.to_string()))?;
        let config = Config::from_gguf(&gguf, None).and_then(|config| {
            if self.mtp {
                config.with_mtp()
            } else {
                Ok(config)
            }
        });
        config.map_err(SynthError::Config)
    }

    /// A matrix that preserves the magnitude of its input, times a gain.
    fn matrix_fill(
        &self,
        traits: &Traits,
        part: &TensorPart<'_>,
        dims: &[u64],
    ) -> Result<Fill, SynthError> {
        let width = match part.name {
            "per_layer_token_embd" => self.differing.map_or(0, |layers| layers.per_layer),
            _ => dims[0] as u32,
        };
        let format = match part.name {
            // Quantizers leave them as they are.
            "laurel_l" | "laurel_r" => Format::F32,
            _ => {
                let role = self.role(traits, part);
                self.mix.format(role, self.layers, dims[0])?
            }
        };
        let deviation = self.gain(traits, part) / (width as f32).sqrt();
        Ok(Fill::Noise { format, deviation })
    }

    fn role(&self, traits: &Traits, part: &TensorPart<'_>) -> Role {
        match part.name {
            "token_embd" if self.tied => Role::Output,
            "output" => Role::Output,
            "attn_v" | "attn_qkv" => Role::Value(part.layer),
            "ffn_down" | "ffn_down_shexp" => Role::Down(part.layer),
            "ffn_down_exps" if traits.dense_beside_experts => Role::Down(part.layer),
            "ffn_down_exps" => Role::ExpertDown(part.layer),
            "ffn_gate_exps" | "ffn_up_exps" => Role::Expert,
            _ => Role::Plain,
        }
    }

    fn gain(&self, traits: &Traits, part: &TensorPart<'_>) -> f32 {
        let clamped = traits.gate == Gate::ClampedSwiglu;
        match (part.name, self.latent) {
            ("cls.output", _) => ANSWER_GAIN,
            ("attn_q" | "attn_k" | "attn_q_b" | "attn_kv_a_mqa", _) => SHARPNESS,
            ("attn_qkv", _) if traits.recurrent.is_none() => SHARPNESS,
            // Of keys it is the transposed projection, which keeps their magnitude.
            ("attn_k_b", Some(latent)) => {
                let plain = self.head_dim - self.rope.dims.unwrap_or(self.head_dim);
                (plain as f32 / latent.rank as f32).sqrt()
            }
            ("ffn_gate_exps" | "ffn_up_exps", _) if clamped => CLAMPED_GAIN,
            ("ffn_down_exps", _) if clamped => 0.5 / CLAMPED_GAIN,
            _ => 1.0,
        }
    }

    /// Numbers in f32.
    fn number_fill(&self, traits: &Traits, part: &TensorPart<'_>, dims: &[u64]) -> Fill {
        let by_width = 1.0 / (self.dim as f32).sqrt();
        // Little in a deep model, so that rounding is amplified little.
        let mixing = if self.layers > 16 { 0.05 } else { 0.15 };
        match (part.name, part.kind) {
            ("ssm_a", _) => decays(dims.iter().product::<u64>() as u32),
            ("ffn_gate_inp", "scale") => norm((self.dim as f32).sqrt()),
            ("exp_probs_b", _) => noise(CHOICE_SPREAD),
            ("ssm_conv1d", "bias") => noise(0.2),
            ("ssm_dt", _) => noise(1.0),
            (_, "bias") => noise(BIAS_SPREAD),
            ("ffn_gate_inp", _) => noise(ROUTER_SPREAD / (self.dim as f32).sqrt()),
            ("ffn_gate_inp_shexp", _) => noise(by_width),
            ("attn_sinks", _) => noise(SINK_SPREAD),
            ("ssm_conv1d" | "shortconv.conv", _) => noise(TAP_SPREAD),
            // The router's input is divided by the width.
            ("altup_router", _) => noise(1.0 / by_width),
            ("altup_predict_coef" | "altup_correct_coef", _) => noise(mixing),
            ("attn_q_norm" | "attn_k_norm", _) if traits.unscaled_scores => {
                norm(1.0 / (dims[0] as f32).sqrt().sqrt())
            }
            ("attn_q_norm" | "attn_k_norm", _) => norm(SHARPNESS),
            ("post_attention_norm" | "post_ffw_norm", _) if traits.post_norms => {
                norm(self.post_norm(traits))
            }
            ("post_norm", _) => norm(self.post_norm(traits).min(1.0)),
            ("layer_output_scale", _) => norm(0.9),
            ("nextn.shared_head_norm", _) => norm(LOGIT_SPREAD),
            (name, _) if name == traits.output_norm => norm(LOGIT_SPREAD),
            _ => norm(1.0),
        }
    }

    /// Mean of the norms after attention and feed-forward.
    fn post_norm(&self, traits: &Traits) -> f32 {
        if traits.scaled_embedding && traits.altup {
            0.4
        } else if traits.scaled_embedding {
            POST_NORM
        } else if self.layers > 16 {
            // Small updates, so that many layers amplify the rounding of keys and values little.
            0.03
        } else {
            1.0
        }
    }

    /// Whether a file of this model has a tensor that the family's files may lack.
    pub(super) fn has_tensor(&self, name: &str) -> bool {
        use Architecture::{GptOss, Phi2, Phi3, Qwen2, Qwen2Vl, StableLm};
        let part = TensorPart::of(name);
        let (architecture, traits) = (self.architecture, self.architecture.traits());
        let is_command_r = traits.feed == FeedRule::AsAttention && traits.gated;
        match (part.name, part.kind) {
            ("attn_q" | "attn_k" | "attn_v", "bias") => {
                matches!(architecture, Qwen2 | Qwen2Vl | Phi2 | StableLm | GptOss)
            }
            ("attn_output", "bias") => matches!(architecture, Phi2 | GptOss),
            ("ffn_up" | "ffn_down" | "output", "bias") => architecture == Phi2,
            ("exp_probs_b", _) => self.latent.is_some_and(|latent| latent.sigmoid),
            ("ssm_conv1d", "bias") => true,
            // Norms with biases, except Command R's.
            (_, "bias") => part.name.ends_with("norm") && !is_command_r,
            ("output", _) => !self.tied,
            ("attn_qkv", _) => architecture == Phi3,
            ("attn_v", _) => self.sizes_of(part.layer).has_values,
            ("attn_q_norm" | "attn_k_norm", _) => self.has_each_head_norm(),
            ("ffn_gate_up_exps", _) => traits.dense_beside_experts,
            ("attn_k_b" | "attn_v_b", _) => self.latent.is_some_and(|latent| !latent.joined),
            ("attn_kv_b", _) => self.latent.is_some_and(|latent| latent.joined),
            ("ssm_norm", _) => self.recurrent.is_some_and(|recurrent| recurrent.norm),
            ("ssm_in" | "ssm_dt" | "nextn.embed_tokens" | "nextn.shared_head_head", _) => false,
            ("layer_output_scale", _) => !traits.altup,
            (name, _) if name == traits.feed_norm => !self.has_each_head_norm(),
            // Written without being read here.
            ("rope_freqs" | "rope_factors_long" | "rope_factors_short", _) => false,
            _ => true,
        }
    }
}

/// The parts of a tensor's name.
pub(super) struct TensorPart<'a> {
    /// Without layer and kind.
    pub(super) name: &'a str,
    /// `weight`, `bias`, `scale` or nothing.
    kind: &'static str,
    /// 0 outside the layers.
    pub(super) layer: u32,
}

impl<'a> TensorPart<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        let of_layer = name.strip_prefix("blk.").and_then(|rest| {
            let (layer, part) = rest.split_once('.')?;
            Some((layer.parse().ok()?, part))
        });
        let (layer, part) = of_layer.unwrap_or((0, name));
        let mut kinds = ["weight", "bias", "scale"].into_iter();
        let found = kinds.find_map(|kind| {
            let name = part.strip_suffix(kind)?.strip_suffix('.')?;
            Some((name, kind))
        });
        let (name, kind) = found.unwrap_or((part, ""));
        Self { name, kind, layer }
    }
}

fn planned(name: String, dims: Vec<u64>, fill: Fill) -> Planned {
    let format = match &fill {
        Fill::Noise { format, .. } => *format,
        Fill::Norm { .. } | Fill::Values(_) => Format::F32,
    };
    let kind = TensorKind::from(format);
    let tensor = TensorPlan { name, dims, kind };
    Planned { tensor, fill }
}

fn norm(mean: f32) -> Fill {
    Fill::Norm { mean }
}

/// Numbers with mean 0 in f32.
fn noise(deviation: f32) -> Fill {
    Fill::Noise {
        format: Format::F32,
        deviation,
    }
}

/// From heads that remember hundreds of tokens to heads that remember a few.
fn decays(heads: u32) -> Fill {
    let slow = |head: u32| -0.01 - 0.5 * head as f32 / heads as f32;
    Fill::Values((0..heads).map(slow).collect())
}
