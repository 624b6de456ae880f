//! Encoders in safetensors: the model of a GGUF with equal weights, bit for bit, and errors that name the place.
//!
//! Promise (Arithmetic): safetensors of encoders and rerankers (BERT, XLM-R, Nomic's BERT, also with experts), of
//! EmbeddingGemma with its projections, Qwen3-Embedding and Qwen3-Reranker give the bits of a GGUF with the same
//! weights, with the pooling of `modules.json`; F32, F16, BF16.
//! Also held by `cpu/tests/it/embedding_safetensors.rs`, `cpu/tests/it/safetensors.rs ::
//! base_model_for_embeddings_needs_no_projection_and_names_its_pooling`.

use crate::support::saved::Saved;
use crate::support::saved_encoder::{put_pooling, save, store};
use crate::support::{options, pages};
use cpu::EncoderModel;
use kernels::{Format, Isa, Pool};
use model::{Batch, Forward, Want};
use serde_json::{Value, json};
use synth::{EncoderSpec, EncoderVocab, Mix};
use weights::ModelFiles;
use weights::encoder::{EncoderConfig, EncoderKind};
use weights::gguf::Gguf;
use weights::safetensors::{Quantize, Safetensors};

fn format(name: &str) -> Format {
    match name {
        "F16" => Format::F16,
        "BF16" => Format::BF16,
        _ => Format::F32,
    }
}

fn spec(preset: &str, mix: &str) -> EncoderSpec {
    EncoderSpec {
        mix: Mix::Uniform(format(mix)),
        ..EncoderSpec::preset(preset).unwrap()
    }
}

fn open(saved: &Saved, quantize: Option<Quantize>) -> Result<ModelFiles, String> {
    let opened = Safetensors::open(&saved.folder, quantize);
    opened.map(Into::into).map_err(|why| why.to_string())
}

fn load(files: ModelFiles) -> EncoderModel {
    let kind = EncoderKind::of(files.metadata()).unwrap();
    let (isa, pool) = (Isa::best(), Pool::new(2));
    EncoderModel::load(files, kind, isa, pool, &options(None), &mut |_| {}).unwrap()
}

/// Hidden states or scores of two texts, one of them with a separator within.
fn computed(model: &mut EncoderModel) -> Vec<f32> {
    let ids = |len: u32| (0..len).map(|i| 5 + (i * i + 7 * i) % 90);
    let short: Vec<u32> = ids(9).collect();
    let long: Vec<u32> = ids(20).chain([3]).chain(ids(43)).collect();
    let mut batch = Batch::default();
    for (first, ids) in [(3, &short), (20, &long)] {
        batch.push(ids, 0, &pages(first, ids.len()), Want::AllHidden);
    }
    model.forward(&batch).unwrap();
    model.hidden().to_vec()
}

/// The configuration; a model with one token type has no use for the separator.
fn effective(model: &EncoderModel, spec: &EncoderSpec) -> EncoderConfig {
    let config = model.config().clone();
    EncoderConfig {
        separator: config
            .separator
            .filter(|_| spec.vocabulary == EncoderVocab::WordPiece),
        ..config
    }
}

#[test]
fn encoders_of_safetensors_equal_those_of_gguf() {
    for preset in [
        "tiny-bert",
        "tiny-bert-rank",
        "tiny-xlm-r",
        "tiny-xlm-r-rank",
        "tiny-nomic-bert",
        "tiny-nomic-bert-moe",
    ] {
        for mix in ["F32", "F16", "BF16"] {
            let spec = spec(preset, mix);
            let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
            let pooling = format!("{}.pooling_type", spec.kind.name());
            let files = open(&save(&spec), None).unwrap_or_else(|why| panic!("{preset}: {why}"));
            assert_eq!(
                files.metadata().need::<u32>(&pooling).ok(),
                gguf.need::<u32>(&pooling).ok(),
                "{preset}"
            );
            let (mut ours, mut theirs) = (load(gguf.into()), load(files));
            assert_eq!(
                effective(&ours, &spec),
                effective(&theirs, &spec),
                "{preset}"
            );
            assert_eq!(
                ours.capabilities().hidden_dim,
                theirs.capabilities().hidden_dim,
                "{preset}"
            );
            assert!(
                computed(&mut ours) == computed(&mut theirs),
                "{preset} {mix}: other bits"
            );
        }
    }
}

#[test]
fn positions_types_and_heads_are_not_quantized() {
    let files = open(&save(&spec("tiny-xlm-r-rank", "F32")), Some(Quantize::Q8_0)).unwrap();
    for (name, kind) in [
        ("token_embd.weight", "Q8_0"),
        ("blk.1.ffn_down.weight", "Q8_0"),
        ("position_embd.weight", "F32"),
        ("token_types.weight", "F32"),
        ("cls.output.weight", "F32"),
    ] {
        assert_eq!(files.tensor(name).unwrap().kind.to_string(), kind, "{name}");
    }
    computed(&mut load(files));
}

/// The error for a folder after this change of a field of `config.json`.
fn refusal(preset: &str, field: &str, value: Value) -> String {
    let spec = spec(preset, "F32");
    let saved = save(&spec);
    let path = saved.folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    config[field] = value;
    saved.put("config.json", config.to_string().as_bytes());
    open(&saved, None).map(|_| ()).unwrap_err()
}

#[test]
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table")]
fn fields_that_ask_for_something_else_are_errors() {
    for (preset, field, value, parts) in [
        (
            "tiny-bert",
            "hidden_act",
            json!("relu"),
            ["`hidden_act` is relu", "gelu"],
        ),
        (
            "tiny-bert",
            "position_embedding_type",
            json!("relative_key"),
            ["`position_embedding_type`", "absolute"],
        ),
        (
            "tiny-bert",
            "is_decoder",
            json!(true),
            ["`is_decoder` is true", "false"],
        ),
        (
            "tiny-bert",
            "layer_norm_eps",
            Value::Null,
            ["`layer_norm_eps`", "is missing"],
        ),
        (
            "tiny-bert",
            "num_hidden_layers",
            json!(0),
            ["config.json: num_hidden_layers", "1 to"],
        ),
        (
            "tiny-bert",
            "vocab_size",
            json!(1),
            ["`vocab_size` is 1", "rows"],
        ),
        (
            "tiny-xlm-r",
            "pad_token_id",
            json!(99),
            ["`max_position_embeddings` is 66", "99"],
        ),
        (
            "tiny-nomic-bert",
            "prenorm",
            json!(true),
            ["`prenorm` is true", "false"],
        ),
        (
            "tiny-nomic-bert",
            "rotary_emb_fraction",
            json!(0.5),
            ["`rotary_emb_fraction` is 0.5", "must be 1"],
        ),
        (
            "tiny-nomic-bert",
            "num_experts",
            json!(8),
            ["`num_experts` is 8", "`moe_every_n_layers`"],
        ),
        (
            "tiny-nomic-bert-moe",
            "num_experts",
            json!(7),
            ["`encoder.layers.1.mlp.experts.mlp.w1` has 768 rows", "7 experts"],
        ),
        (
            "tiny-nomic-bert-moe",
            "moe_top_k",
            Value::Null,
            ["`moe_top_k`", "is missing"],
        ),
        (
            "tiny-nomic-bert-moe",
            "num_shared_experts",
            json!(1),
            ["`num_shared_experts` is 1", "must be 0"],
        ),
        (
            "tiny-bert",
            "architectures",
            json!(["DebertaModel"]),
            ["DebertaModel", "XLMRobertaModel"],
        ),
    ] {
        let why = refusal(preset, field, value);
        for part in parts {
            assert!(why.contains(part), "{field}: {why}");
        }
    }
}

#[test]
fn modules_that_are_not_supported_are_errors() {
    let saved = save(&spec("tiny-bert", "F32"));
    for (pooling, part) in [
        (json!({}), "0 of pooling_mode_mean_tokens"),
        (
            json!({"pooling_mode_max_tokens": true}),
            "`pooling_mode_max_tokens` is true",
        ),
        (
            json!({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true}),
            "2 of pooling_mode_mean_tokens",
        ),
    ] {
        put_pooling(&saved, &pooling);
        let why = open(&saved, None).map(|_| ()).unwrap_err();
        assert!(why.contains(part) && why.contains("1_Pooling"), "{why}");
    }
    for (modules, part) in [
        (json!([{"path": "..", "type": "x.Pooling"}]), "\"..\""),
        (json!([{"path": "2_Dense", "type": "x.Dense"}]), "Dense"),
        (
            json!(vec![json!({"type": "x.Normalize"}); 17]),
            "at most 16",
        ),
        (json!({}), "modules.json"),
    ] {
        saved.put("modules.json", modules.to_string().as_bytes());
        let why = open(&saved, None).map(|_| ()).unwrap_err();
        assert!(why.contains(part) && why.contains("modules.json"), "{why}");
    }
}

#[test]
fn missing_and_unknown_tensors_are_named() {
    let spec = spec("tiny-bert", "F32");
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let all: Vec<_> = gguf.tensors().map(|tensor| store(&spec, &tensor)).collect();
    let saved = save(&spec);
    let missing = "encoder.layer.1.output.dense.weight";
    let some = all.iter().filter(|tensor| tensor.name != missing);
    let some: Vec<_> = some.cloned().collect();
    saved.put_weights(&some, 1);
    let files = open(&saved, None).unwrap();
    let (isa, pool) = (Isa::best(), Pool::new(1));
    let loaded = EncoderModel::load(files, spec.kind, isa, pool, &options(None), &mut |_| {});
    let why = loaded.map(|_| ()).unwrap_err().to_string();
    assert!(why.contains(missing), "{why}");
    let mut more = all;
    more[0].name = "encoder.adapter.weight".to_owned();
    saved.put_weights(&more, 1);
    let why = open(&saved, None).map(|_| ()).unwrap_err();
    assert!(
        why.contains("`encoder.adapter.weight` has no part in BertModel"),
        "{why}"
    );
}
