//! `config.json` and stored names of models with recurrent layers, by their classes in transformers.

use serde_json::{Value, json};
use synth::{RecurrentSynth, SynthSpec};
use weights::gguf::Gguf;

/// Factors of the parts of Falcon H1 that have one, by the part's name in GGUF.
pub(crate) const FACTORS: [(&str, f32); 9] = [
    ("token_embd.weight", 0.5),
    ("output.weight", 0.25),
    ("attn_q.weight", 0.5),
    ("attn_k.weight", 0.125),
    ("attn_v.weight", 0.5),
    ("attn_output.weight", 0.125),
    ("ssm_out.weight", 0.25),
    ("ffn_gate.weight", 0.5),
    ("ffn_down.weight", 0.25),
];
/// Factors of gate, values, keys, queries and steps, beside that of the input, 0.5.
pub(crate) const SSM_FACTORS: [f32; 5] = [0.5, 0.25, 1.0, 0.125, 0.5];

/// The stored name of a tensor outside of layers.
pub(crate) fn outer_name(class: &str, name: &str) -> String {
    let has_backbone = class.starts_with("Mamba2") || class.starts_with("Nemotron");
    let stored = match name {
        "output.weight" => return "lm_head.weight".to_owned(),
        "token_embd.weight" if has_backbone => "backbone.embeddings.weight",
        "output_norm.weight" if has_backbone => "backbone.norm_f.weight",
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" if class.starts_with("Falcon") => "model.final_layernorm.weight",
        "output_norm.weight" => "model.norm.weight",
        other => panic!("{other}"),
    };
    nested(class, stored)
}

/// In a model for images, too, the text model has a name.
fn nested(class: &str, stored: &str) -> String {
    if class.ends_with("ForConditionalGeneration") {
        stored.replacen("model.", "model.language_model.", 1)
    } else {
        stored.to_owned()
    }
}

/// The stored name of a tensor of a layer; of one of many experts, with `EXPERT` for the number.
pub(crate) fn layer_name(class: &str, spec: &SynthSpec, layer: u32, part: &str) -> String {
    let of_mtp = match part {
        "nextn.eh_proj.weight" => Some("mtp.fc.weight"),
        "nextn.enorm.weight" => Some("mtp.pre_fc_norm_embedding.weight"),
        "nextn.hnorm.weight" => Some("mtp.pre_fc_norm_hidden.weight"),
        "nextn.shared_head_norm.weight" => Some("mtp.norm.weight"),
        _ => None,
    };
    if let Some(name) = of_mtp {
        return name.to_owned();
    }
    let stored = match class {
        _ if class.starts_with("Qwen3Next") => qwen_part(part, true),
        _ if class.starts_with("Qwen3_5") => qwen_part(part, false),
        _ if class.starts_with("Granite") => granite_part(part),
        _ if class.starts_with("Falcon") => falcon_part(part),
        _ => {
            return format!("backbone.layers.{layer}.{}", mixer_part(part));
        }
    };
    if spec.mtp && layer == spec.layers {
        format!("mtp.layers.0.{stored}")
    } else {
        nested(class, &format!("model.layers.{layer}.{stored}"))
    }
}

fn attention_part(part: &str) -> &'static str {
    match part {
        "attn_norm.weight" => "input_layernorm.weight",
        "attn_q.weight" => "self_attn.q_proj.weight",
        "attn_k.weight" => "self_attn.k_proj.weight",
        "attn_v.weight" => "self_attn.v_proj.weight",
        "attn_output.weight" => "self_attn.o_proj.weight",
        other => panic!("{other}"),
    }
}

fn qwen_part(part: &str, is_next: bool) -> &'static str {
    match part {
        "post_attention_norm.weight" => "post_attention_layernorm.weight",
        "attn_q_norm.weight" => "self_attn.q_norm.weight",
        "attn_k_norm.weight" => "self_attn.k_norm.weight",
        "ssm_in.weight" => "linear_attn.in_proj_qkvz.weight",
        "ssm_ba.weight" => "linear_attn.in_proj_ba.weight",
        "attn_qkv.weight" => "linear_attn.in_proj_qkv.weight",
        "attn_gate.weight" => "linear_attn.in_proj_z.weight",
        "ssm_alpha.weight" => "linear_attn.in_proj_a.weight",
        "ssm_beta.weight" => "linear_attn.in_proj_b.weight",
        "ssm_conv1d.weight" => "linear_attn.conv1d.weight",
        "ssm_a" => "linear_attn.A_log",
        "ssm_dt.bias" => "linear_attn.dt_bias",
        "ssm_norm.weight" => "linear_attn.norm.weight",
        "ssm_out.weight" => "linear_attn.out_proj.weight",
        "ffn_gate.weight" => "mlp.gate_proj.weight",
        "ffn_up.weight" => "mlp.up_proj.weight",
        "ffn_down.weight" => "mlp.down_proj.weight",
        "ffn_gate_inp.weight" => "mlp.gate.weight",
        "ffn_gate_shexp.weight" => "mlp.shared_expert.gate_proj.weight",
        "ffn_up_shexp.weight" => "mlp.shared_expert.up_proj.weight",
        "ffn_down_shexp.weight" => "mlp.shared_expert.down_proj.weight",
        "ffn_gate_inp_shexp.weight" => "mlp.shared_expert_gate.weight",
        "ffn_gate_exps.weight" if is_next => "mlp.experts.EXPERT.gate_proj.weight",
        "ffn_up_exps.weight" if is_next => "mlp.experts.EXPERT.up_proj.weight",
        "ffn_down_exps.weight" if is_next => "mlp.experts.EXPERT.down_proj.weight",
        "ffn_gate_exps.weight" | "ffn_up_exps.weight" => "mlp.experts.gate_up_proj",
        "ffn_down_exps.weight" => "mlp.experts.down_proj",
        other => attention_part(other),
    }
}

fn mamba_part(part: &str) -> &'static str {
    match part {
        "ssm_in.weight" => "mamba.in_proj.weight",
        "ssm_conv1d.weight" => "mamba.conv1d.weight",
        "ssm_conv1d.bias" => "mamba.conv1d.bias",
        "ssm_a" => "mamba.A_log",
        "ssm_d" => "mamba.D",
        "ssm_dt.bias" => "mamba.dt_bias",
        "ssm_norm.weight" => "mamba.norm.weight",
        "ssm_out.weight" => "mamba.out_proj.weight",
        other => attention_part(other),
    }
}

fn granite_part(part: &str) -> &'static str {
    match part {
        "ffn_norm.weight" => "post_attention_layernorm.weight",
        "ffn_gate.weight" | "ffn_gate_shexp.weight" => "shared_mlp.input_linear.weight",
        "ffn_down.weight" | "ffn_down_shexp.weight" => "shared_mlp.output_linear.weight",
        "ffn_gate_inp.weight" => "block_sparse_moe.router.layer.weight",
        "ffn_gate_exps.weight" | "ffn_up_exps.weight" => "block_sparse_moe.input_linear.weight",
        "ffn_down_exps.weight" => "block_sparse_moe.output_linear.weight",
        other => mamba_part(other),
    }
}

fn falcon_part(part: &str) -> &'static str {
    match part {
        "ffn_norm" => "pre_ff_layernorm.weight",
        "ffn_gate.weight" => "feed_forward.gate_proj.weight",
        "ffn_up.weight" => "feed_forward.up_proj.weight",
        "ffn_down.weight" => "feed_forward.down_proj.weight",
        other => mamba_part(other),
    }
}

fn mixer_part(part: &str) -> String {
    match part {
        "attn_norm.weight" => "norm.weight".to_owned(),
        "ffn_up.weight" => "mixer.up_proj.weight".to_owned(),
        "ffn_down.weight" => "mixer.down_proj.weight".to_owned(),
        other => {
            let name = mamba_part(other);
            let (_, rest) = name.split_once('.').unwrap();
            format!("mixer.{rest}")
        }
    }
}

/// The `config.json` of a case's model, of this class.
pub(crate) fn config(spec: &SynthSpec, class: &str, gguf: &Gguf) -> Value {
    let recurrent = spec.recurrent;
    let mut config = json!({
        "architectures": [class], "hidden_act": "silu", "hidden_size": spec.dim, "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads, "num_key_value_heads": spec.kv_heads, "head_dim": spec.head_dim,
        "vocab_size": spec.vocab, "max_position_embeddings": spec.context, "tie_word_embeddings": spec.tied,
        "rms_norm_eps": 1e-6, "intermediate_size": spec.ffn,
    });
    let more = match class {
        _ if class.starts_with("Qwen3") => qwen(spec, &recurrent.unwrap()),
        _ if class.starts_with("Granite") => granite(spec, gguf),
        _ if class.starts_with("Falcon") => falcon(spec, &recurrent.unwrap()),
        _ if class.starts_with("Mamba2") => mamba2(&recurrent.unwrap()),
        _ => nemotron(spec, &recurrent.unwrap(), gguf),
    };
    merge(&mut config, &more);
    if !class.ends_with("ForConditionalGeneration") {
        return config;
    }
    let classes = config["architectures"].take();
    let tied = config["tie_word_embeddings"].clone();
    json!({"architectures": classes, "tie_word_embeddings": tied, "text_config": config, "vision_config": {"depth": 1}})
}

/// Sets fields; of null, removes them.
pub(crate) fn merge(config: &mut Value, more: &Value) {
    let fields = config.as_object_mut().unwrap();
    for (field, value) in more.as_object().unwrap() {
        match value {
            Value::Null => fields.remove(field),
            value => fields.insert(field.clone(), value.clone()),
        };
    }
}

fn qwen(spec: &SynthSpec, recurrent: &RecurrentSynth) -> Value {
    let kind = |layer: u32| {
        if (layer + 1).is_multiple_of(recurrent.period) {
            "full_attention"
        } else {
            "linear_attention"
        }
    };
    let types: Vec<&str> = (0..spec.layers).map(kind).collect();
    let part = f64::from(spec.rope.dims.unwrap()) / f64::from(spec.head_dim);
    let mut more = json!({
        "layer_types": types, "attention_bias": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope.base, "partial_rotary_factor": part},
        "linear_conv_kernel_dim": recurrent.taps, "linear_key_head_dim": recurrent.state_dim,
        "linear_value_head_dim": recurrent.head_dim, "linear_num_key_heads": recurrent.key_heads,
        "linear_num_value_heads": recurrent.value_heads, "mtp_num_hidden_layers": u32::from(spec.mtp),
    });
    if let Some([time, height, width, _]) = spec.sections {
        more["rope_parameters"]["mrope_section"] = json!([time, height, width]);
    }
    if let Some(experts) = spec.experts {
        let of_experts = json!({
            "intermediate_size": null, "num_experts": experts.count, "num_experts_per_tok": experts.used,
            "moe_intermediate_size": experts.ffn, "shared_expert_intermediate_size": experts.shared,
            "norm_topk_prob": true, "mlp_only_layers": [], "decoder_sparse_step": 1,
        });
        merge(&mut more, &of_experts);
        more["intermediate_size"] = Value::Null;
    }
    more
}

fn granite(spec: &SynthSpec, gguf: &Gguf) -> Value {
    let kind = |layer: u32| match gguf.tensor(&format!("blk.{layer}.attn_q.weight")) {
        Some(_) => "attention",
        None => "mamba",
    };
    let types: Vec<&str> = (0..spec.layers).map(kind).collect();
    let mut more = json!({
        "layer_types": types, "position_embedding_type": "rope", "rope_theta": spec.rope.base,
        "embedding_multiplier": 12, "residual_multiplier": 0.25, "logits_scaling": 8,
        "attention_multiplier": 3.0 / f64::from(spec.head_dim), "head_dim": null,
        "shared_intermediate_size": spec.ffn, "num_local_experts": 0, "num_experts_per_tok": 0,
    });
    if let Some(experts) = spec.experts {
        let of_experts = json!({
            "intermediate_size": experts.ffn, "shared_intermediate_size": experts.shared,
            "num_local_experts": experts.count, "num_experts_per_tok": experts.used,
        });
        merge(&mut more, &of_experts);
    }
    if let Some(recurrent) = &spec.recurrent {
        let inner = recurrent.value_heads * recurrent.head_dim;
        merge(&mut more, &mamba(recurrent));
        more["mamba_expand"] = json!(inner / spec.dim);
    }
    more
}

fn mamba(recurrent: &RecurrentSynth) -> Value {
    json!({
        "mamba_n_heads": recurrent.value_heads, "mamba_n_groups": recurrent.key_heads,
        "mamba_d_state": recurrent.state_dim, "mamba_d_head": recurrent.head_dim, "mamba_d_conv": recurrent.taps,
        "mamba_conv_bias": true, "mamba_proj_bias": false,
    })
}

fn falcon(spec: &SynthSpec, recurrent: &RecurrentSynth) -> Value {
    let mut more = mamba(recurrent);
    let factors = json!({
        "rope_theta": spec.rope.base, "mamba_d_ssm": recurrent.value_heads * recurrent.head_dim,
        "mamba_rms_norm": recurrent.norm, "mamba_norm_before_gate": false,
        "embedding_multiplier": 0.5, "lm_head_multiplier": 0.25, "attention_in_multiplier": 0.5,
        "key_multiplier": 0.25, "attention_out_multiplier": 0.125, "ssm_in_multiplier": 0.5,
        "ssm_multipliers": SSM_FACTORS, "ssm_out_multiplier": 0.25, "mlp_multipliers": [0.5, 0.25],
    });
    merge(&mut more, &factors);
    more
}

fn mamba2(recurrent: &RecurrentSynth) -> Value {
    json!({
        "num_attention_heads": null, "num_key_value_heads": null, "max_position_embeddings": null,
        "rms_norm_eps": null, "intermediate_size": null, "layer_norm_epsilon": 1e-6,
        "num_heads": recurrent.value_heads, "head_dim": recurrent.head_dim, "state_size": recurrent.state_dim,
        "n_groups": recurrent.key_heads, "conv_kernel": recurrent.taps, "expand": 2,
        "time_step_limit": [0.0, {"__float__": "Infinity"}],
    })
}

fn nemotron(spec: &SynthSpec, recurrent: &RecurrentSynth, gguf: &Gguf) -> Value {
    let has = |layer: u32, part: &str| gguf.tensor(&format!("blk.{layer}.{part}.weight")).is_some();
    let letter = |layer: u32| match layer {
        layer if has(layer, "attn_q") => '*',
        layer if has(layer, "ssm_in") => 'M',
        _ => '-',
    };
    let pattern: String = (0..spec.layers).map(letter).collect();
    json!({
        "hidden_act": null, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "rms_norm_eps": null,
        "layer_norm_epsilon": 1e-6, "hybrid_override_pattern": pattern,
        "mamba_num_heads": recurrent.value_heads, "mamba_head_dim": recurrent.head_dim,
        "ssm_state_size": recurrent.state_dim, "n_groups": recurrent.key_heads, "conv_kernel": recurrent.taps,
    })
}
