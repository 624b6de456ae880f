//! Equal weights as GGUF and as safetensors give equal models.
//!
//! Promise (Arithmetic): safetensors give the bits of a GGUF with the same weights: eleven architectures, four with
//! experts, LFM2 and gpt-oss in MXFP4, F32, F16, BF16, one file and several; quantized at load, they give those of a
//! quantized GGUF.
//! Also held by `cpu/tests/it/gpt_oss.rs`, `cpu/tests/it/recurrent_safetensors.rs`,
//! `millrace/tests/it/safetensors.rs`, `tools/oracle/saved.py`.

use crate::support::case::Case;
use crate::support::saved::{self, Saved};
use crate::support::{ids, logits, options, try_load};
use cpu::Model;
use kernels::{Format, Isa, Pool};
use model::Forward;
use serde_json::json;
use weights::ModelFiles;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};
use weights::safetensors::{Quantize, Safetensors};

/// Names of presets without their size, and what differs from them.
const FAMILIES: [&str; 11] = [
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gemma",
    "granite",
    "smollm3",
    "olmo2 window=0",
    "ernie4_5",
];

fn load(saved: &Saved, quantize: Option<Quantize>) -> Model {
    let files = Safetensors::open(&saved.folder, quantize).unwrap_or_else(|why| panic!("{why}"));
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    Model::load(files, isa, pool, &options(None), &mut |_| {}).unwrap_or_else(|why| panic!("{why}"))
}

/// Logits of a prompt that is longer than windows and original contexts.
fn said(model: &mut Model) -> Vec<Vec<f32>> {
    let vocab = model.dims().vocab;
    logits(model, &ids(3, 80, vocab), 0)
}

#[track_caller]
fn check(line: &str, files: usize) {
    let bytes = crate::support::bytes(line);
    let mut gguf = try_load(bytes, 2).unwrap();
    let mut other = load(&Saved::of(line, files), None);
    assert_eq!(gguf.config(), other.config(), "{line}");
    assert!(
        said(&mut gguf) == said(&mut other),
        "{line} in {files}: other logits"
    );
}

#[test]
fn safetensors_equal_gguf_for_every_family_and_kind() {
    for family in FAMILIES {
        for mix in ["F32", "F16", "BF16"] {
            check(&format!("x preset=tiny-{family} mix={mix}"), 1);
        }
        check(&format!("x preset=tiny-{family} mix=BF16"), 3);
    }
}

#[test]
fn safetensors_equal_gguf_for_experts() {
    for line in [
        "x preset=tiny-mixtral mix=F32",
        "x preset=tiny-qwen3moe mix=BF16",
        "x preset=tiny-granitemoe mix=F16 shared=0",
        "x preset=tiny-olmoe mix=F32",
    ] {
        check(line, 1);
    }
    check("x preset=tiny-qwen3moe mix=F32", 3);
}

#[test]
fn safetensors_equal_gguf_for_every_rope_and_shape() {
    for line in [
        "x preset=tiny-llama rope=none tied=true",
        "x preset=tiny-llama rope=linear:2",
        "x preset=tiny-llama rope=longrope:64:1.19",
        "x preset=tiny-llama rope=longrope:256:1.19",
        "x preset=tiny-llama rope=yarn:4:64 heads=8 kv_heads=1 head_dim=32",
        "x preset=tiny-qwen2 rope=yarn:4:64",
        "x preset=tiny-qwen3 rope=linear:4 tied=false",
        "x preset=tiny-gemma3 rope=linear:8 base=1000000 period=3",
        "x preset=tiny-gemma2 window=8",
        "x preset=tiny-phi3 rope=none",
        "x preset=small-llama mix=F16",
    ] {
        check(line, 1);
    }
}

/// A GGUF whose matrices are stored in other formats.
pub(crate) fn requantized(bytes: Vec<u8>, format: impl Fn(&str, usize) -> Format) -> Vec<u8> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let target = |name: &str, cols: usize, dims: &[u64]| match dims.len() {
        1 => Format::F32,
        _ => format(name, cols),
    };
    for tensor in gguf.tensors() {
        let kind = TensorKind::from(target(tensor.name, tensor.cols(), tensor.dims));
        let (name, dims) = (tensor.name.to_owned(), tensor.dims.to_vec());
        writer.tensor(TensorPlan { name, dims, kind });
    }
    let mut out = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| {
        let tensor = gguf.tensor(&plan.name).unwrap();
        let mut weights = vec![0.0; tensor.elements()];
        kernels::dequantize(tensor.format().unwrap(), tensor.bytes, &mut weights);
        let format = plan.kind.format().unwrap();
        sink.write_all(&kernels::quantize_with_search(format, &weights))
    };
    writer.write(&mut out, fill).unwrap();
    out
}

#[test]
fn quantizing_at_load_equals_quantizing_before() {
    for family in FAMILIES {
        let line = format!("x preset=small-{family} mix=F32");
        let spec = Case::parse(&line).unwrap().spec;
        let projection = if spec.tied {
            "token_embd.weight"
        } else {
            "output.weight"
        };
        let four = |name: &str, _: usize| {
            if name == projection {
                Format::Q6_K
            } else {
                Format::Q4_K
            }
        };
        let saved = Saved::of(&line, 1);
        let eight = |_: &str, _: usize| Format::Q8_0;
        for (quantize, bytes) in [
            (
                Quantize::Q8_0,
                requantized(crate::support::bytes(&line), eight),
            ),
            (
                Quantize::Q4_K,
                requantized(crate::support::bytes(&line), four),
            ),
        ] {
            let files = ModelFiles::from(Safetensors::open(&saved.folder, Some(quantize)).unwrap());
            let total: u64 = files.tensors().iter().map(|tensor| tensor.bytes).sum();
            let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
            let stored: usize = gguf.tensors().map(|tensor| tensor.bytes.len()).sum();
            assert_eq!(total, stored as u64, "{family} {quantize:?}");
            let mut gguf = try_load(bytes, 2).unwrap();
            let mut other = load(&saved, Some(quantize));
            assert!(said(&mut gguf) == said(&mut other), "{family} {quantize:?}");
        }
    }
}

#[test]
fn rows_without_blocks_of_256_become_q8_0() {
    let line = "x preset=tiny-qwen3 mix=F32";
    let files = Safetensors::open(&Saved::of(line, 1).folder, Some(Quantize::Q4_K)).unwrap();
    for entry in files.entries() {
        let wanted = match entry.dims.len() {
            1 => Format::F32,
            _ => Format::Q8_0,
        };
        assert_eq!(entry.format(), Some(wanted), "{}", entry.name);
    }
}

#[test]
fn newer_rope_and_window_fields_are_read() {
    for (line, change) in [
        (
            "x preset=tiny-llama",
            json!({"rope_theta": null, "rope_scaling": null, "rope_parameters": {"rope_theta": 10000.0,
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}}),
        ),
        (
            "x preset=tiny-qwen3 rope=yarn:4:64",
            json!({"rope_theta": null, "rope_scaling": null, "rope_parameters": {"rope_theta": 10000.0,
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}),
        ),
        (
            "x preset=tiny-gemma3 base=500000",
            json!({"rope_theta": null, "rope_local_base_freq": null, "sliding_window_pattern": null,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 500_000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}}}),
        ),
        (
            "x preset=tiny-gemma2",
            json!({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 32,
                "attn_logit_softcapping": 50.0, "tie_word_embeddings": null}),
        ),
        (
            "x preset=tiny-qwen2 kv_heads=2",
            json!({"head_dim": null, "use_sliding_window": false}),
        ),
    ] {
        let spec = Case::parse(line).unwrap().spec;
        let saved = Saved::of(line, 1);
        let old = load(&saved, None).config().clone();
        let mut config = saved::config(&spec);
        for (field, value) in change.as_object().unwrap() {
            config[field] = value.clone();
        }
        saved.put("config.json", config.to_string().as_bytes());
        assert_eq!(load(&saved, None).config(), &old, "{line}");
    }
}

#[test]
fn base_model_for_embeddings_needs_no_projection_and_names_its_pooling() {
    let line = "x preset=tiny-qwen3-embedding mix=F32";
    let spec = Case::parse(line).unwrap().spec;
    assert!(spec.tied);
    let mut tensors = saved::stored(&spec);
    for tensor in &mut tensors {
        tensor.name = tensor.name.trim_start_matches("model.").to_owned();
    }
    let saved = Saved::empty();
    saved.put_weights(&tensors, 1);
    let mut config = saved::config(&spec);
    config["architectures"] = json!(["Qwen3Model"]);
    config["tie_word_embeddings"] = json!(false);
    saved.put("config.json", config.to_string().as_bytes());
    let why = Safetensors::open(&saved.folder, None).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("`tie_word_embeddings` is not true"), "{why}");
    let modules = json!([{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]);
    saved.put("modules.json", modules.to_string().as_bytes());
    std::fs::create_dir(saved.folder.join("1_Pooling")).unwrap();
    let pooling = json!({"pooling_mode_cls_token": false, "pooling_mode_lasttoken": true});
    saved.put("1_Pooling/config.json", pooling.to_string().as_bytes());
    let files = Safetensors::open(&saved.folder, None).unwrap();
    assert_eq!(
        files.metadata().need::<u32>("qwen3.pooling_type").ok(),
        Some(3)
    );
    let mut gguf = try_load(crate::support::bytes(line), 2).unwrap();
    let mut other = load(&saved, None);
    assert_eq!(gguf.config(), other.config());
    assert!(said(&mut gguf) == said(&mut other), "other logits");
}
