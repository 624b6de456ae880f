//! Decoders made for embeddings or for scores, as safetensors: equal weights as GGUF give equal vectors and scores.

use crate::support::case::Case;
use crate::support::saved::{self, Saved, Stored};
use crate::support::{ids, options, pages, try_load};
use cpu::Model;
use kernels::{Isa, Pool};
use model::{Batch, Forward, Want};
use serde_json::{Value, json};
use weights::ModelFiles;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};
use weights::safetensors::Safetensors;

const RERANKER: &str = "tiny-qwen3-reranker";
/// Tokens of the answers yes and no.
const ANSWERS: [u32; 2] = [121, 110];

fn open(saved: &Saved) -> Result<ModelFiles, String> {
    let files = Safetensors::open(&saved.folder, None);
    files.map(ModelFiles::from).map_err(|why| why.to_string())
}

fn load(saved: &Saved) -> Model {
    let files = open(saved).unwrap_or_else(|why| panic!("{why}"));
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    Model::load(files, isa, pool, &options(None), &mut |_| {}).unwrap_or_else(|why| panic!("{why}"))
}

fn vectors(model: &mut Model, want: Want) -> Vec<f32> {
    let text = ids(3, 60, model.dims().vocab);
    let mut batch = Batch::default();
    batch.push(&text, 0, &pages(3, text.len()), want);
    model.forward(&batch).unwrap();
    model.hidden().to_vec()
}

/// The model of a case as sentence-transformers saves EmbeddingGemma: a base model, and a folder for each projection.
fn gemma(line: &str) -> Saved {
    let spec = Case::parse(line).unwrap().spec;
    let all = saved::stored(&spec).into_iter();
    let (dense, mut own): (Vec<_>, Vec<_>) = all.partition(|tensor| tensor.name.contains('/'));
    for tensor in &mut own {
        tensor.name = tensor.name.trim_start_matches("model.").to_owned();
    }
    let saved = Saved::empty();
    saved.put_weights(&own, 1);
    let mut config = saved::config(&spec);
    config["use_bidirectional_attention"] = json!(true);
    saved.put("config.json", config.to_string().as_bytes());
    for tensor in dense {
        put_dense(&saved, tensor);
    }
    put_modules(
        &saved,
        &["Transformer", "Pooling", "Dense", "Dense", "Normalize"],
    );
    std::fs::create_dir(saved.folder.join("1_Pooling")).unwrap();
    saved.put(
        "1_Pooling/config.json",
        br#"{"pooling_mode_mean_tokens": true}"#,
    );
    saved
}

fn put_dense(saved: &Saved, tensor: Stored) {
    let (folder, name) = tensor.name.split_once('/').unwrap();
    let config = json!({"in_features": tensor.shape[1], "out_features": tensor.shape[0], "bias": false,
        "activation_function": "torch.nn.modules.linear.Identity"});
    std::fs::create_dir_all(saved.folder.join(folder)).unwrap();
    let path = |file: &str| format!("{folder}/{file}");
    saved.put(&path("config.json"), config.to_string().as_bytes());
    let (name, weights) = (name.to_owned(), path("model.safetensors"));
    saved.put(&weights, &saved::file(&[Stored { name, ..tensor }]));
}

fn put_modules(saved: &Saved, kinds: &[&str]) {
    let module = |(at, kind): (usize, &&str)| {
        let path = format!("{at}_{kind}");
        json!({"path": path, "type": format!("sentence_transformers.models.{kind}")})
    };
    let modules: Vec<Value> = kinds.iter().enumerate().map(module).collect();
    saved.put("modules.json", json!(modules).to_string().as_bytes());
}

#[test]
fn embedding_gemma_with_its_projections_equals_gguf() {
    for mix in ["F32", "F16", "BF16"] {
        let line = format!("x preset=tiny-gemma-embedding mix={mix}");
        let mut gguf = try_load(crate::support::bytes(&line), 2).unwrap();
        let mut other = load(&gemma(&line));
        assert_eq!(gguf.config(), other.config(), "{mix}");
        let want = Want::AllHidden;
        assert!(
            vectors(&mut gguf, want) == vectors(&mut other, want),
            "{mix}: other bits"
        );
    }
}

#[test]
fn projections_that_are_computed_otherwise_are_errors() {
    let saved = gemma("x preset=tiny-gemma-embedding mix=F32");
    let config = saved.folder.join("2_Dense/config.json");
    let read = std::fs::read(&config).unwrap();
    let config: Value = serde_json::from_slice(&read).unwrap();
    for (field, value, part) in [
        ("bias", json!(true), "`bias` is not false"),
        ("bias", Value::Null, "`bias` is not false"),
        (
            "activation_function",
            json!("torch.nn.modules.activation.Tanh"),
            "must be torch.nn.modules.linear.Identity",
        ),
        ("out_features", json!(8), "out_features of 2_Dense` is 8"),
        ("out_features", json!(32), "in_features of 3_Dense` is 256"),
        ("in_features", json!(32), "in_features of 2_Dense` is 32"),
    ] {
        let mut changed = config.clone();
        changed[field] = value;
        saved.put("2_Dense/config.json", changed.to_string().as_bytes());
        let why = open(&saved).map(|_| ()).unwrap_err();
        assert!(why.contains(part), "{field}: {why}");
    }
    saved.put("2_Dense/config.json", &read);
    let weights = std::fs::read(saved.folder.join("2_Dense/model.safetensors")).unwrap();
    saved.put("3_Dense/model.safetensors", &weights);
    let (isa, pool) = (Isa::detect(), Pool::new(1));
    let files = open(&saved).unwrap();
    let why = Model::load(files, isa, pool, &options(None), &mut |_| {}).map(|_| ());
    let why = why.unwrap_err().to_string();
    assert!(
        why.contains("3_Dense/model.safetensors: linear.weight"),
        "{why}"
    );
    saved.put("3_Dense/model.safetensors", &saved::file(&[]));
    let why = open(&saved).map(|_| ()).unwrap_err();
    assert!(
        why.contains("has 0 tensors, must have linear.weight"),
        "{why}"
    );
    put_modules(&saved, &["Transformer", "Pooling", "Dense"]);
    let why = open(&saved).map(|_| ()).unwrap_err();
    assert!(
        why.contains("has 1 modules Dense, must have 2 or none"),
        "{why}"
    );
}

/// The GGUF of a case, with other scores: the rows of the answers, of the tensor with the logits.
fn with_answers(bytes: Vec<u8>, projection: &str) -> Vec<u8> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    for tensor in gguf.tensors() {
        let (name, dims) = (tensor.name.to_owned(), tensor.dims.to_vec());
        let kind = tensor.kind;
        writer.tensor(TensorPlan { name, dims, kind });
    }
    let mut out = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| match &plan.name[..] {
        "cls.output.weight" => {
            let logits = gguf.tensor(projection).unwrap();
            let row = logits.bytes.len() / logits.rows();
            let of = |id: u32| &logits.bytes[id as usize * row..][..row];
            sink.write_all(&ANSWERS.map(of).concat())
        }
        name => sink.write_all(gguf.tensor(name).unwrap().bytes),
    };
    writer.write(&mut out, fill).unwrap();
    out
}

/// A reranker's folder: a model for text, and a vocabulary with the answers.
fn reranker(line: &str) -> Saved {
    let spec = Case::parse(line).unwrap().spec;
    let saved = Saved::empty();
    let mut tensors = saved::stored(&spec);
    tensors.retain(|tensor| !tensor.name.starts_with("cls."));
    saved.put_weights(&tensors, 1);
    let mut config = saved::config(&spec);
    config["_name_or_path"] = json!("Qwen/Qwen3-Reranker-0.6B");
    saved.put("config.json", config.to_string().as_bytes());
    put_vocabulary(&saved, &json!({"yes": ANSWERS[0], "no": ANSWERS[1]}));
    saved
}

fn put_vocabulary(saved: &Saved, vocab: &Value) {
    let tokenizer = json!({"model": {"type": "BPE", "vocab": vocab}});
    saved.put("tokenizer.json", tokenizer.to_string().as_bytes());
}

#[test]
fn reranker_equals_gguf_with_the_rows_of_its_answers() {
    for (mix, tied) in [("F32", true), ("F16", false), ("BF16", true)] {
        let line = format!("x preset={RERANKER} mix={mix} tied={tied}");
        let projection = if tied {
            "token_embd.weight"
        } else {
            "output.weight"
        };
        let bytes = with_answers(crate::support::bytes(&line), projection);
        let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
        let files = open(&reranker(&line)).unwrap_or_else(|why| panic!("{why}"));
        let pooling = files.metadata().need::<u32>("qwen3.pooling_type");
        assert_eq!(pooling.ok(), gguf.need::<u32>("qwen3.pooling_type").ok());
        let template = files
            .metadata()
            .need::<&str>("tokenizer.chat_template.rerank");
        assert!(template.is_ok_and(|text| text.contains("{query}")));
        assert!(files.tensor("output.weight").is_none());
        let mut gguf = try_load(bytes, 2).unwrap();
        let mut other = load(&reranker(&line));
        assert_eq!(gguf.config(), other.config(), "{line}");
        let want = Want::LastHidden;
        assert!(
            vectors(&mut gguf, want) == vectors(&mut other, want),
            "{line}: other bits"
        );
    }
}

#[test]
fn folder_is_a_reranker_by_its_readme_too() {
    let saved = reranker(&format!("x preset={RERANKER} mix=F32"));
    let path = saved.folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    config["_name_or_path"] = Value::Null;
    saved.put("config.json", config.to_string().as_bytes());
    let ranks = || open(&saved).unwrap().tensor("cls.output.weight").is_some();
    assert!(!ranks());
    saved.put("README.md", b"# Qwen3-Embedding\n");
    assert!(!ranks());
    saved.put(
        "README.md",
        b"---\nlicense: x\n---\n# Qwen3-Reranker-0.6B\n",
    );
    assert!(ranks());
}

#[test]
fn answers_without_a_row_are_errors() {
    let saved = reranker(&format!("x preset={RERANKER} mix=F32"));
    for (vocabulary, part) in [
        (
            json!({"yes": 9999, "no": 1}),
            "`model.embed_tokens.weight` has 300 rows, must have one for token 9999, the answer yes",
        ),
        (json!({"yes": 1}), "`model.vocab` has no token no"),
    ] {
        put_vocabulary(&saved, &vocabulary);
        let why = open(&saved).map(|_| ()).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
