//! The metadata of a synthetic model, and the divisors of its rope's frequencies.

use super::spec::{RopeScaling, SynthSpec};
use weights::config::Architecture;
use weights::config::recurrent_rule::RecurrentRule;
use weights::config::traits::{FeedRule, RopeLayers};
use weights::gguf::GgufWriter;

/// Adds all keys except the tokenizer.
pub(super) fn put(spec: &SynthSpec, out: &mut GgufWriter) {
    let name = spec.architecture.name();
    let key = |part: &str| format!("{name}.{part}");
    // The model's name must not contain the architecture: llama.cpp takes "phi3" in the name for Phi's
    // vocabulary.
    let title = format!("Synthetic {}x{} {}", spec.dim, spec.layers, spec.mix);
    out.str("general.architecture", name)
        .str("general.type", "model")
        .str("general.name", &title)
        .str(
            "general.description",
            &format!("random weights, seed {}", spec.seed),
        )
        .u32("general.file_type", spec.mix.file_type())
        .u32("general.quantization_version", 2)
        .u32(&key("context_length"), spec.context)
        .u32(&key("embedding_length"), spec.dim)
        .u32(&key("block_count"), spec.layers + u32::from(spec.mtp))
        .f32(&key(epsilon_key(spec)), epsilon(spec.architecture))
        .u32(&key("vocab_size"), spec.vocab);
    put_attention(spec, out);
    match spec.differing {
        Some(_) => spec.put_layers(out),
        None => put_widths(spec, out),
    }
    if spec.architecture.traits().roped != RopeLayers::Never {
        put_rope(spec, out);
    }
    spec.put_task(out);
    if let Some(recurrent) = &spec.recurrent {
        recurrent.put(spec.architecture, out);
    }
    if spec.deepstack > 0 {
        out.u32(&key("n_deepstack_layers"), spec.deepstack);
    }
    if spec.mtp {
        out.u32(&key("nextn_predict_layers"), 1);
    }
    if let Some(window) = spec.window {
        out.u32(&key("attention.sliding_window"), window);
    }
    if let Some(period) = spec.window_period.filter(|_| spec.differing.is_none()) {
        out.u32(&key("attention.sliding_window_pattern"), period);
    }
    put_scales(spec, out);
    if let Some(experts) = spec.experts {
        out.u32(&key("expert_count"), experts.count)
            .u32(&key("expert_used_count"), experts.used);
        // llama.cpp takes `feed_forward_length` for the width in the other families.
        if has_width_key(spec.architecture) {
            out.u32(&key("expert_feed_forward_length"), experts.ffn);
        }
        if let Some(latent) = &spec.latent {
            latent.put_router(spec, &experts, out);
        } else if experts.shared > 0 {
            out.u32(&key("expert_shared_feed_forward_length"), experts.shared);
        }
    }
}

/// Heads of attention: a model without attention has none.
fn put_attention(spec: &SynthSpec, out: &mut GgufWriter) {
    let key = |part: &str| format!("{}.attention.{part}", spec.architecture);
    let rule = spec.architecture.traits().recurrent;
    if rule.is_some_and(RecurrentRule::replaces_all_attention) {
        // llama.cpp asks for it.
        out.u32(&key("head_count"), 0);
        return;
    }
    if let Some(latent) = &spec.latent {
        return latent.put_attention(spec, out);
    }
    out.u32(&key("head_count"), spec.heads)
        .u32(&key("key_length"), spec.head_dim)
        .u32(&key("value_length"), spec.head_dim);
    if spec.differing.is_none() {
        put_kv_heads(spec, &key("head_count_kv"), out);
    }
}

/// The number of key and value heads, of each layer where those with attention are listed so.
fn put_kv_heads(spec: &SynthSpec, key: &str, out: &mut GgufWriter) {
    let rule = spec.architecture.traits().recurrent;
    if !rule.is_some_and(RecurrentRule::lists_attention) {
        out.u32(key, spec.kv_heads);
        return;
    }
    let heads = |layer| {
        if spec.parts_of(layer).attends {
            spec.kv_heads as i32
        } else {
            0
        }
    };
    out.i32s(key, &(0..spec.layers).map(heads).collect::<Vec<_>>());
}

/// The width of the feed-forward part, of each layer where it is a layer of its own.
fn put_widths(spec: &SynthSpec, out: &mut GgufWriter) {
    let key = format!("{}.feed_forward_length", spec.architecture);
    match spec.architecture.traits().feed {
        FeedRule::Never => out.u32(&key, 0),
        FeedRule::Alone => {
            let width = |layer| {
                if spec.parts_of(layer).feeds {
                    spec.ffn as i32
                } else {
                    0
                }
            };
            out.i32s(&key, &(0..spec.layers).map(width).collect::<Vec<_>>())
        }
        _ => out.u32(&key, dense_width(spec)),
    };
}

/// The width of experts, except in a family with a key for it.
fn dense_width(spec: &SynthSpec) -> u32 {
    match spec.experts {
        Some(experts) if !has_width_key(spec.architecture) => experts.ffn,
        _ => spec.ffn,
    }
}

fn has_width_key(architecture: Architecture) -> bool {
    use Architecture::{DeepSeek2, Gemma4, GptOss, Qwen3Moe, Qwen3Next, Qwen3VlMoe, Qwen35Moe};
    matches!(
        architecture,
        DeepSeek2 | Qwen3Moe | Qwen3VlMoe | Qwen35Moe | Qwen3Next | GptOss | Gemma4
    )
}

/// Caps and factors that no tensor has.
fn put_scales(spec: &SynthSpec, out: &mut GgufWriter) {
    let key = |part: &str| format!("{}.{part}", spec.architecture.name());
    match spec.architecture {
        Architecture::Gemma2 => {
            out.f32(&key("attn_logit_softcapping"), 50.0)
                .f32(&key("final_logit_softcapping"), 30.0);
        }
        Architecture::Granite | Architecture::GraniteMoe | Architecture::GraniteHybrid => {
            out.f32(&key("embedding_scale"), 12.0)
                .f32(&key("residual_scale"), 0.25)
                .f32(&key("attention.scale"), 3.0 / spec.head_dim as f32)
                .f32(&key("logit_scale"), 8.0);
        }
        Architecture::CommandR | Architecture::Cohere2 => {
            out.f32(&key("logit_scale"), 0.0625);
        }
        Architecture::Mistral3 => {
            out.f32(&key("attention.temperature_scale"), 0.1);
        }
        _ => {}
    }
    if let Some(sections) = spec.sections {
        out.i32s(
            &key("rope.dimension_sections"),
            &sections.map(|pairs| pairs as i32),
        );
    }
}

fn epsilon_key(spec: &SynthSpec) -> &'static str {
    let traits = spec.architecture.traits();
    if traits.layer_norms || traits.feed == FeedRule::Alone {
        "attention.layer_norm_epsilon"
    } else {
        "attention.layer_norm_rms_epsilon"
    }
}

fn put_rope(spec: &SynthSpec, out: &mut GgufWriter) {
    let key = |part: &str| format!("{}.rope.{part}", spec.architecture.name());
    out.u32(
        &key("dimension_count"),
        spec.rope.dims.unwrap_or(spec.head_dim),
    )
    .f32(&key("freq_base"), spec.rope.base);
    let mut scaling = |kind: &str, factor: f32| {
        out.str(&key("scaling.type"), kind)
            .f32(&key("scaling.factor"), factor);
    };
    match spec.rope.scaling {
        // Llama 3's scaling is only in a tensor.
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Linear { factor } => scaling("linear", factor),
        RopeScaling::Yarn {
            factor,
            original_context,
        } => {
            scaling("yarn", factor);
            out.u32(&key("scaling.original_context_length"), original_context);
            let weight = match (spec.architecture, spec.latent) {
                (Architecture::Mistral3, _) => Some(1.0),
                // A tenth of the weight, which is 1 in V3 and 0.707 in V2.
                (_, Some(latent)) if latent.sigmoid => Some(0.1),
                (_, Some(_)) => Some(0.0707),
                _ => None,
            };
            if let Some(weight) = weight {
                out.f32(&key("scaling.yarn_log_multiplier"), weight);
            }
        }
        RopeScaling::Longrope {
            original_context,
            attention_factor,
        } => {
            out.u32(&key("scaling.original_context_length"), original_context)
                .f32(&key("scaling.attn_factor"), attention_factor);
            if spec.architecture == Architecture::Llama {
                out.str(&key("scaling.type"), "longrope");
            }
        }
    }
}

fn epsilon(architecture: Architecture) -> f32 {
    match architecture {
        Architecture::Llama | Architecture::Phi3 | Architecture::Olmoe | Architecture::GptOss => {
            1e-5
        }
        _ => 1e-6,
    }
}

/// Divisors of the rope's frequencies, if the model has any.
pub(super) fn rope_factors(spec: &SynthSpec) -> Vec<(&'static str, Vec<f32>)> {
    if spec.architecture == Architecture::Gemma4 {
        return vec![("rope_freqs.weight", spec.proportional_factors())];
    }
    let dims = spec.rope.dims.unwrap_or(spec.head_dim);
    match spec.rope.scaling {
        RopeScaling::Llama3 {
            factor,
            original_context,
        } => {
            let factors = llama3_factors(spec.rope.base, dims, factor, original_context);
            vec![("rope_freqs.weight", factors)]
        }
        RopeScaling::Longrope { .. } => {
            let half = dims / 2;
            let rising = |from: f32, to: f32| {
                (0..half)
                    .map(|i| from + (to - from) * i as f32 / half as f32)
                    .collect()
            };
            vec![
                ("rope_factors_long.weight", rising(1.1, 24.0)),
                ("rope_factors_short.weight", rising(1.0, 2.0)),
            ]
        }
        _ => Vec::new(),
    }
}

/// Llama 3.1's rule (as in its `config.json`: low 1, high 4): wavelengths beyond the original context are
/// divided by `factor`, wavelengths below a quarter of the context are kept, wavelengths between are
/// interpolated.
fn llama3_factors(base: f32, dims: u32, factor: f32, original_context: u32) -> Vec<f32> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let (factor, context) = (f64::from(factor), f64::from(original_context));
    (0..dims / 2)
        .map(|i| {
            let exponent = f64::from(2 * i) / f64::from(dims);
            let wavelength = std::f64::consts::TAU * f64::from(base).powf(exponent);
            if wavelength < context / HIGH {
                1.0
            } else if wavelength > context / LOW {
                factor as f32
            } else {
                let smooth = (context / wavelength - LOW) / (HIGH - LOW);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            }
        })
        .collect()
}
