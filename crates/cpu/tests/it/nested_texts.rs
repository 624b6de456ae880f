//! Texts of Gemma 4, Ministral 3 and MiniCPM-V in folders of classes that see images: equal weights as GGUF give equal models.
//!
//! Promise (Models): the text of Gemma 4, of Ministral 3 and of MiniCPM-V in safetensors gives the bits of a GGUF with the same weights; a
//! field that cannot be computed is named.

use crate::support::saved::{Saved, Stored, halves};
use crate::support::{bytes, ids, logits, options, try_load};
use cpu::Model;
use kernels::{Isa, Pool};
use model::Forward;
use serde_json::{Value, json};
use weights::gguf::{self, Gguf};
use weights::safetensors::{Quantize, Safetensors};

/// Parts of names in GGUF, and those of transformers.
const NAMES: &[(&str, &str)] = &[
    ("token_embd.weight", "embed_tokens.weight"),
    ("output_norm.weight", "norm.weight"),
    (
        "per_layer_token_embd.weight",
        "embed_tokens_per_layer.weight",
    ),
    (
        "per_layer_model_proj.weight",
        "per_layer_model_projection.weight",
    ),
    (
        "per_layer_proj_norm.weight",
        "per_layer_projection_norm.weight",
    ),
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    (
        "post_attention_norm.weight",
        "post_attention_layernorm.weight",
    ),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
    (
        "post_ffw_norm_1.weight",
        "post_feedforward_layernorm_1.weight",
    ),
    (
        "post_ffw_norm_2.weight",
        "post_feedforward_layernorm_2.weight",
    ),
    (
        "pre_ffw_norm_2.weight",
        "pre_feedforward_layernorm_2.weight",
    ),
    ("inp_gate.weight", "per_layer_input_gate.weight"),
    ("proj.weight", "per_layer_projection.weight"),
    ("post_norm.weight", "post_per_layer_input_norm.weight"),
    ("layer_output_scale.weight", "layer_scalar"),
    ("ffn_gate_inp.weight", "router.proj.weight"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    ("ffn_down_exps.weight", "experts.down_proj"),
];

/// A synthetic model, and its tensors and fields as transformers saves them.
pub(crate) struct Text {
    gguf: Gguf,
    bytes: Vec<u8>,
    family: &'static str,
    pub(crate) config: Value,
}

impl Text {
    pub(crate) fn number(&self, key: &str) -> u32 {
        let key = format!("{}.{key}", self.family);
        self.gguf
            .find::<u32>(&key)
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    fn float(&self, key: &str) -> f32 {
        match self.gguf.get(&format!("{}.{key}", self.family)) {
            Some(gguf::Value::F32(number)) => number,
            found => panic!("{key}: {found:?}"),
        }
    }

    /// A number of each layer.
    fn each(&self, key: &str) -> Vec<u32> {
        match self.gguf.get(&format!("{}.{key}", self.family)) {
            Some(gguf::Value::Array(array)) => array
                .values()
                .map(|value| value.integer().unwrap_or_default() as u32)
                .collect(),
            _ => vec![self.number(key); self.number("block_count") as usize],
        }
    }

    /// The tensors, whose names begin with `start`, which ends with `model.`
    pub(crate) fn tensors(&self, start: &str) -> Vec<Stored> {
        let heads = [
            self.number("attention.head_count"),
            self.each("attention.head_count_kv")[0],
        ];
        let stored = self
            .gguf
            .tensors()
            .filter(|tensor| !tensor.name.starts_with("rope_"));
        let stored = stored.map(|tensor| {
            let (layer, part) = match tensor
                .name
                .strip_prefix("blk.")
                .and_then(|rest| rest.split_once('.'))
            {
                Some((layer, part)) => (format!("layers.{layer}."), part),
                None => (String::new(), tensor.name),
            };
            let (whole, kind) = part.rsplit_once('.').unwrap_or((part, ""));
            let (part, kind) = match kind {
                "bias" => (format!("{whole}.weight"), "bias"),
                _ => (part.to_owned(), "weight"),
            };
            let theirs = match &part[..] {
                "output.weight" => {
                    return Stored {
                        name: format!("{}lm_head.weight", start.trim_end_matches("model.")),
                        dtype: tensor.kind.to_string(),
                        shape: tensor.dims.iter().rev().copied().collect(),
                        bytes: tensor.bytes.to_vec(),
                    };
                }
                "ffn_norm.weight" if self.family == "gemma4" => "pre_feedforward_layernorm.weight",
                "ffn_norm.weight" => "post_attention_layernorm.weight",
                part => {
                    NAMES
                        .iter()
                        .find(|(ours, _)| *ours == part)
                        .unwrap_or_else(|| panic!("{part}"))
                        .1
                }
            };
            let mut bytes = tensor.bytes.to_vec();
            for (end, heads) in ["attn_q.weight", "attn_k.weight"].iter().zip(heads) {
                if part == *end && ["mistral3", "llama"].contains(&self.family) {
                    bytes = halves(&bytes, tensor.rows(), tensor.rows() / heads as usize);
                }
            }
            Stored {
                name: format!("{start}{layer}{}", theirs.replace("weight", kind)),
                dtype: tensor.kind.to_string(),
                shape: tensor.dims.iter().rev().copied().collect(),
                bytes,
            }
        });
        stored.collect()
    }

    fn folder(&self, start: &str, config: &Value) -> Saved {
        let saved = Saved::empty();
        saved.put("config.json", config.to_string().as_bytes());
        saved.put_weights(&self.tensors(start), 2);
        saved
    }
}

fn read(line: &str, family: &'static str) -> Text {
    read_bytes(bytes(line), family)
}

/// A text's file.
pub(crate) fn read_bytes(bytes: Vec<u8>, family: &'static str) -> Text {
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let mut text = Text {
        gguf,
        bytes,
        family,
        config: Value::Null,
    };
    text.config = json!({
        "num_hidden_layers": text.number("block_count"),
        "hidden_size": text.number("embedding_length"),
        "num_attention_heads": text.number("attention.head_count"),
        "max_position_embeddings": text.number("context_length"),
        "intermediate_size": text.each("feed_forward_length")[0],
        "vocab_size": text.gguf.tensor("token_embd.weight").unwrap().rows(),
        "rms_norm_eps": text.float("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": text.gguf.tensor("output.weight").is_none(),
    });
    text
}

fn put(config: &mut Value, more: Value) {
    if let (Value::Object(config), Value::Object(more)) = (config, more) {
        config.extend(more);
    }
}

/// A text of Gemma 4, with fields as published files have them.
fn gemma4(line: &str) -> Text {
    let mut text = read(line, "gemma4");
    let windowed = text.each("attention.sliding_window_pattern");
    let kinds = windowed.iter().map(|windowed| match windowed {
        0 => "full_attention",
        _ => "sliding_attention",
    });
    let kinds: Vec<&str> = kinds.collect();
    let heads = text.each("attention.head_count_kv");
    let of_kind = |wanted: u32| heads[windowed.iter().position(|kind| *kind == wanted).unwrap()];
    let widths = text.each("feed_forward_length");
    let per_layer = text.number("embedding_length_per_layer_input");
    let has_experts = text.number("expert_count") > 0;
    let global = windowed.iter().position(|kind| *kind == 0).unwrap();
    let values = format!("blk.{global}.attn_v.weight");
    let more = json!({
        "model_type": "gemma4_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": text.float("final_logit_softcapping"),
        "layer_types": kinds,
        "sliding_window": text.number("attention.sliding_window"),
        "head_dim": text.number("attention.key_length_swa"),
        "global_head_dim": text.number("attention.key_length"),
        "num_key_value_heads": of_kind(1),
        "num_global_key_value_heads": of_kind(0),
        "attention_k_eq_v": text.gguf.tensor(&values).is_none(),
        "num_kv_shared_layers": text.number("attention.shared_kv_layers"),
        "use_double_wide_mlp": widths.iter().any(|width| *width != widths[0]),
        "hidden_size_per_layer_input": per_layer,
        "vocab_size_per_layer_input": text.config["vocab_size"],
        "use_bidirectional_attention": if per_layer == 0 { json!("vision") } else { Value::Null },
        "enable_moe_block": has_experts,
        "num_experts": text.number("expert_count"),
        "top_k_experts": text.number("expert_used_count"),
        "moe_intermediate_size": text.number("expert_feed_forward_length"),
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": text.float("rope.freq_base")},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    });
    put(&mut text.config, more);
    text
}

fn wrapped(class: &str, text: &Value) -> Value {
    json!({"architectures": [class], "text_config": text, "tie_word_embeddings": text["tie_word_embeddings"]})
}

fn load(saved: &Saved, quantize: Option<Quantize>) -> Result<Model, String> {
    let files = Safetensors::open(&saved.folder, quantize).map_err(|why| why.to_string())?;
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    Model::load(files, isa, pool, &options(None), &mut |_| {}).map_err(|why| why.to_string())
}

#[track_caller]
fn check(label: &str, text: &Text, saved: &Saved) {
    let mut ours = load(saved, None).unwrap_or_else(|why| panic!("{label}: {why}"));
    let mut theirs = try_load(text.bytes.clone(), 2).unwrap();
    assert_eq!(ours.config(), theirs.config(), "{label}");
    let prompt = ids(3, 80, ours.dims().vocab);
    let equal = logits(&mut ours, &prompt, 0) == logits(&mut theirs, &prompt, 0);
    assert!(equal, "{label}: other logits");
    let quantized = load(saved, Some(Quantize::Q8_0));
    let mut quantized = quantized.unwrap_or_else(|why| panic!("{label}: {why}"));
    let rows = logits(&mut quantized, &prompt[..5], 0);
    assert!(
        rows.iter().flatten().all(|logit| logit.is_finite()),
        "{label}"
    );
}

const GEMMA4: &str = "Gemma4ForConditionalGeneration";
const MISTRAL3: &str = "Mistral3ForConditionalGeneration";

#[test]
fn texts_of_gemma4_equal_gguf() {
    let mut published = 0;
    for preset in ["tiny-gemma4", "tiny-gemma4-31b", "tiny-gemma4-26b"] {
        for mix in ["F32", "F16", "BF16"] {
            let line = format!("x preset={preset} mix={mix}");
            let text = gemma4(&line);
            let config = &text.config;
            // Other numbers of heads in layers without a window count where keys are values.
            let same_heads = config["num_key_value_heads"] == config["num_global_key_value_heads"];
            if same_heads || config["attention_k_eq_v"] == true {
                let saved = text.folder("model.language_model.", &wrapped(GEMMA4, config));
                check(&line, &text, &saved);
                published += 1;
            }
            // As newer versions of transformers save the layers without a window.
            let mut each = text.config.clone();
            let globals = each["layer_types"].as_array().unwrap().clone();
            let globals = globals
                .iter()
                .enumerate()
                .filter(|(_, kind)| *kind == "full_attention");
            let mut layers = json!({});
            for (layer, _) in globals {
                layers[layer.to_string()] = json!({
                    "head_dim": each["global_head_dim"],
                    "num_key_value_heads": each["num_global_key_value_heads"],
                });
            }
            each["per_layer_config"] = layers;
            each["global_head_dim"] = Value::Null;
            each["num_global_key_value_heads"] = Value::Null;
            check(
                &line,
                &text,
                &text.folder("language_model.model.", &wrapped(GEMMA4, &each)),
            );
        }
    }
    assert!(published >= 6, "{published}");
}

#[test]
fn texts_of_ministral3_equal_gguf() {
    for mix in ["F32", "F16", "BF16"] {
        let line = format!("x preset=tiny-mistral3 mix={mix} tied=true");
        let mut text = read(&line, "mistral3");
        let more = json!({
            "model_type": "ministral3",
            "head_dim": text.number("attention.key_length"),
            "num_key_value_heads": text.number("attention.head_count_kv"),
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": text.float("rope.freq_base"),
                "factor": text.float("rope.scaling.factor"), "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": text.number("rope.scaling.original_context_length"),
                "mscale": 1.0, "mscale_all_dim": text.float("rope.scaling.yarn_log_multiplier"),
                "llama_4_scaling_beta": text.float("attention.temperature_scale"),
            },
        });
        put(&mut text.config, more);
        let config = wrapped(MISTRAL3, &text.config);
        check(&line, &text, &text.folder("language_model.model.", &config));
        let mut other = config.clone();
        other["text_config"]["rope_parameters"]["mscale"] = json!(0.5);
        let said = load(&text.folder("language_model.model.", &other), None)
            .err()
            .unwrap();
        let part = "`text_config.rope_parameters.mscale` is 0.5, must be 1";
        assert!(said.contains(part), "{said}");
    }
}

/// A projection next to an embedding that is said to be the projection, as transformers saves a file that names neither.
#[test]
fn projections_of_mistral3_count_whatever_the_flag_says() {
    let text = read("x preset=tiny-llama mix=F32 rope=none", "llama");
    let mut config = text.config.clone();
    let more = json!({
        "model_type": "mistral", "sliding_window": null, "rms_norm_eps": text.float("attention.layer_norm_rms_epsilon"),
        "head_dim": text.number("attention.key_length"), "num_key_value_heads": text.number("attention.head_count_kv"),
        "rope_parameters": {"rope_type": "default", "rope_theta": text.float("rope.freq_base")},
    });
    put(&mut config, more);
    let mut tensors = text.tensors_with_head();
    for tensor in &mut tensors {
        let turned = ["q_proj", "k_proj"]
            .iter()
            .any(|part| tensor.name.contains(part));
        if turned {
            let head_dim = text.number("attention.key_length") as usize;
            tensor.bytes = halves(&tensor.bytes, tensor.shape[0] as usize, head_dim);
        }
    }
    let mut theirs = try_load(text.bytes.clone(), 2).unwrap();
    for tied in [true, false] {
        let mut config = wrapped(MISTRAL3, &config);
        config["tie_word_embeddings"] = json!(tied);
        let saved = Saved::empty();
        saved.put("config.json", config.to_string().as_bytes());
        saved.put_weights(&tensors, 1);
        let mut ours = load(&saved, None).unwrap();
        let prompt = ids(3, 20, ours.dims().vocab);
        assert!(
            logits(&mut ours, &prompt, 0) == logits(&mut theirs, &prompt, 0),
            "{tied}"
        );
    }
}

impl Text {
    /// The tensors of a model with a projection of its own.
    fn tensors_with_head(&self) -> Vec<Stored> {
        let all = self.gguf.tensors();
        let stored =
            all.map(|tensor| Stored {
                name: match tensor.name {
                    "output.weight" => "language_model.lm_head.weight".to_owned(),
                    name => crate::support::saved::name(weights::Architecture::Llama, name)
                        .replacen("model.", "language_model.model.", 1),
                },
                dtype: tensor.kind.to_string(),
                shape: tensor.dims.iter().rev().copied().collect(),
                bytes: tensor.bytes.to_vec(),
            });
        stored.collect()
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn fields_of_gemma4_that_do_not_fit_are_named() {
    let text = gemma4("x preset=tiny-gemma4-26b mix=F32");
    let rows = [
        (
            "hidden_activation",
            json!("silu"),
            "is silu, must be gelu_pytorch_tanh",
        ),
        (
            "attention_bias",
            json!(true),
            "is true, which is not supported",
        ),
        (
            "use_bidirectional_attention",
            json!("all"),
            "is all, must be vision in a model with `hidden_size_per_layer_input` 0",
        ),
        (
            "use_bidirectional_attention",
            Value::Null,
            "is null, must be vision",
        ),
        (
            "layer_types",
            json!(["full_attention"]),
            "has 1 layers, must have",
        ),
        (
            "layer_types",
            json!(["chunked_attention"]),
            "has chunked_attention, must have",
        ),
        (
            "num_hidden_layers",
            json!(100_000),
            "is 100000, must be 1 to 512",
        ),
        ("num_hidden_layers", json!(0), "is 0, must be 1 to 512"),
        (
            "per_layer_config",
            json!({"0": {"head_dim": 2}}),
            "has `head_dim` 2",
        ),
        (
            "per_layer_config",
            json!({"0": {"sliding_window": 2}}),
            "is not supported in a single layer",
        ),
        (
            "hidden_size_per_layer_input",
            json!(1 << 30),
            "must be null in a model",
        ),
        ("top_k_experts", Value::Null, "is missing"),
        ("num_kv_shared_layers", json!(5000), "is 5000"),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_type": "yarn"}}),
            "is yarn, must be proportional",
        ),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 2.0}}),
            "is 2, must be 0 to 1",
        ),
        ("quantization_config", json!({}), "quantized already"),
    ];
    for (field, value, part) in rows {
        let mut config = wrapped(GEMMA4, &text.config);
        config["text_config"][field] = value;
        let saved = text.folder("model.language_model.", &config);
        let said = load(&saved, None)
            .err()
            .unwrap_or_else(|| panic!("{field}: {part}"));
        let named = field.split('_').next().unwrap();
        assert!(
            said.contains(part) && said.contains(named),
            "{field}: {said}"
        );
    }
}

/// The fields of MiniCPM-V's text are those of the whole, and its version tells the family.
#[test]
fn texts_of_minicpm_equal_gguf() {
    for (version, family, class) in [
        (json!(2.6), "qwen2", "MiniCPMV"),
        (json!("4.5"), "qwen3", "MiniCPMO"),
    ] {
        let line = format!("x preset=tiny-{family} mix=F16 tied=true");
        let mut text = read(&line, family);
        let more = json!({
            "architectures": [class],
            "model_type": class.to_lowercase(),
            "version": version,
            "num_key_value_heads": text.number("attention.head_count_kv"),
            "head_dim": text.number("attention.key_length"),
            "rope_theta": text.float("rope.freq_base"),
        });
        put(&mut text.config, more);
        check(&line, &text, &text.folder("llm.model.", &text.config));
        let mut other = text.config.clone();
        other["hidden_act"] = json!("relu");
        let said = load(&text.folder("llm.model.", &other), None)
            .err()
            .unwrap();
        assert!(said.contains(": `hidden_act` is relu"), "{said}");
    }
}
