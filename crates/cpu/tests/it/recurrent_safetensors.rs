//! Decoders with recurrent layers as safetensors: equal weights as GGUF give equal logits.

use crate::support::case::Case;
use crate::support::saved::{Saved, Stored};
use crate::support::{ids, logits, options, try_load};
use cpu::Model;
use kernels::{Isa, Pool};
use model::Forward;
use serde_json::{Value, json};
use synth::SynthSpec;
use weights::gguf::{Gguf, TensorInfo};
use weights::safetensors::Safetensors;

const LFM2: &str = "x preset=tiny-lfm2";

fn stored_name(name: &str) -> String {
    let Some(rest) = name.strip_prefix("blk.") else {
        return match name {
            "token_embd.weight" => "model.embed_tokens.weight",
            "token_embd_norm.weight" => "model.embedding_norm.weight",
            other => panic!("{other}"),
        }
        .to_owned();
    };
    let (layer, part) = rest.split_once('.').unwrap();
    let part = match part.trim_end_matches(".weight") {
        "attn_norm" => "operator_norm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.out_proj",
        "attn_q_norm" => "self_attn.q_layernorm",
        "attn_k_norm" => "self_attn.k_layernorm",
        "shortconv.in_proj" => "conv.in_proj",
        "shortconv.conv" => "conv.conv",
        "shortconv.out_proj" => "conv.out_proj",
        "ffn_norm" => "ffn_norm",
        "ffn_gate" => "feed_forward.w1",
        "ffn_up" => "feed_forward.w3",
        "ffn_down" => "feed_forward.w2",
        other => panic!("{other}"),
    };
    format!("model.layers.{layer}.{part}.weight")
}

fn store(tensor: &TensorInfo<'_>) -> Stored {
    let mut shape: Vec<u64> = tensor.dims.iter().rev().copied().collect();
    if tensor.name.ends_with("shortconv.conv.weight") {
        shape.insert(1, 1);
    }
    Stored {
        name: stored_name(tensor.name),
        dtype: tensor.kind.to_string(),
        shape,
        bytes: tensor.bytes.to_vec(),
    }
}

fn config(spec: &SynthSpec, gguf: &Gguf) -> Value {
    let kind = |layer: u32| match gguf.tensor(&format!("blk.{layer}.attn_q.weight")) {
        Some(_) => "full_attention",
        None => "conv",
    };
    let types: Vec<&str> = (0..spec.layers).map(kind).collect();
    json!({
        "architectures": ["Lfm2ForCausalLM"], "num_hidden_layers": spec.layers, "hidden_size": spec.dim,
        "block_ff_dim": spec.ffn, "block_auto_adjust_ff_dim": false, "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads, "vocab_size": spec.vocab, "max_position_embeddings": spec.context,
        "tie_embedding": spec.tied, "rope_theta": spec.rope.base, "norm_eps": norm_eps(gguf), "layer_types": types,
        "conv_L_cache": gguf.need::<u32>("lfm2.shortconv.l_cache").unwrap(), "conv_bias": false,
    })
}

fn norm_eps(gguf: &Gguf) -> f32 {
    gguf.need::<f32>("lfm2.attention.layer_norm_rms_epsilon")
        .unwrap()
}

fn save(line: &str) -> (Saved, Value) {
    let spec = Case::parse(line).unwrap().spec;
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let saved = Saved::empty();
    let tensors: Vec<Stored> = gguf.tensors().map(|tensor| store(&tensor)).collect();
    saved.put_weights(&tensors, 1);
    let config = config(&spec, &gguf);
    saved.put("config.json", config.to_string().as_bytes());
    (saved, config)
}

#[test]
fn safetensors_of_lfm2_equal_gguf() {
    for mix in ["F32", "F16", "BF16"] {
        let line = format!("{LFM2} mix={mix}");
        let files = Safetensors::open(&save(&line).0.folder, None);
        let files = files.unwrap_or_else(|why| panic!("{why}"));
        let (isa, pool) = (Isa::detect(), Pool::new(2));
        let mut other = Model::load(files, isa, pool, &options(None), &mut |_| {}).unwrap();
        let mut gguf = try_load(crate::support::bytes(&line), 2).unwrap();
        assert_eq!(gguf.config(), other.config(), "{mix}");
        let prompt = ids(3, 80, gguf.dims().vocab);
        assert!(
            logits(&mut gguf, &prompt, 0) == logits(&mut other, &prompt, 0),
            "{mix}: other logits"
        );
    }
}

#[test]
fn width_of_lfm2_follows_the_rule_of_its_implementation() {
    let (saved, config) = save(&format!("{LFM2} mix=F32"));
    for (change, expected) in [
        (
            json!({"block_auto_adjust_ff_dim": true, "block_multiple_of": 64, "block_ff_dim": 192}),
            128,
        ),
        (
            json!({"block_auto_adjust_ff_dim": true, "block_multiple_of": 64, "block_ff_dim": 100,
                "block_ffn_dim_multiplier": 1.5}),
            128,
        ),
        (json!({"block_ff_dim": null, "intermediate_size": 128}), 128),
    ] {
        let mut config = config.clone();
        for (field, value) in change.as_object().unwrap() {
            config[field] = value.clone();
        }
        saved.put("config.json", config.to_string().as_bytes());
        let files = Safetensors::open(&saved.folder, None).unwrap_or_else(|why| panic!("{why}"));
        let width = files.metadata().need::<u32>("lfm2.feed_forward_length");
        assert_eq!(width.ok(), Some(expected), "{change}");
    }
}

#[test]
fn fields_of_lfm2_that_ask_for_something_else_are_errors() {
    let (saved, config) = save(&format!("{LFM2} mix=F32"));
    for (field, value, part) in [
        ("conv_bias", json!(true), "`conv_bias` is true"),
        ("conv_L_cache", Value::Null, "`conv_L_cache` is missing"),
        ("layer_types", Value::Null, "`layer_types` is missing"),
        (
            "layer_types",
            json!(["mamba"]),
            "`layer_types` has mamba, must have conv",
        ),
        ("norm_eps", Value::Null, "`norm_eps` is missing"),
    ] {
        let mut config = config.clone();
        config[field] = value;
        saved.put("config.json", config.to_string().as_bytes());
        let why = Safetensors::open(&saved.folder, None)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(why.contains(part), "{field}: {why}");
    }
}
