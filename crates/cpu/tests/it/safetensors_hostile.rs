//! Broken folders are rejected with the file and the place in the file; no input causes a panic.
//!
//! Promise (Arithmetic): no folder of safetensors causes a panic; errors name the file, field or tensor.

use crate::support::case::Case;
use crate::support::options;
use crate::support::saved::{self, Saved, Stored};
use cpu::Model;
use proptest::prelude::*;
use serde_json::{Value, json};
use weights::LoadError;
use weights::safetensors::Safetensors;

const LINE: &str = "x preset=tiny-llama mix=BF16 rope=none";

fn spec() -> synth::SynthSpec {
    Case::parse(LINE).unwrap().spec
}

/// The error of opening a folder.
fn refused(saved: &Saved) -> String {
    match Safetensors::open(&saved.folder, None) {
        Ok(_) => panic!("opened"),
        Err(why) => why.to_string(),
    }
}

/// The error of loading an opened folder.
fn not_loaded(saved: &Saved) -> LoadError {
    let files = Safetensors::open(&saved.folder, None).unwrap_or_else(|why| panic!("{why}"));
    let (isa, pool) = (kernels::Isa::detect(), kernels::Pool::new(1));
    match Model::load(files, isa, pool, &options(None), &mut |_| {}) {
        Ok(_) => panic!("loaded"),
        Err(why) => why,
    }
}

#[track_caller]
fn says(label: &str, why: &str, parts: &[&str]) {
    for part in parts {
        assert!(why.contains(part), "{label}: {why:?} without {part:?}");
    }
}

#[test]
#[rustfmt::skip]
fn invalid_config_fields_are_named() {
    let rows: &[(&str, Value, &[&str])] = &[
        ("architectures", json!(["MambaForCausalLM"]), &["config.json", "`architectures`", "MambaForCausalLM", "Qwen3ForCausalLM"]),
        ("architectures", json!([]), &["`architectures` is missing"]),
        ("architectures", json!("LlamaForCausalLM"), &["`architectures`", "a list of texts"]),
        ("hidden_size", Value::Null, &["`hidden_size` is missing"]),
        ("hidden_size", json!(40), &["config.json: hidden_size", "multiple of 32"]),
        ("hidden_size", json!(-1), &["`hidden_size` is -1", "whole number"]),
        ("hidden_size", json!(1u64 << 40), &["`hidden_size`", "below 2^32"]),
        ("hidden_size", json!("64"), &["`hidden_size` is \"64\""]),
        ("num_hidden_layers", json!(0), &["config.json: num_hidden_layers", "1 to 512"]),
        ("num_key_value_heads", json!(3), &["config.json: num_key_value_heads", "divisor"]),
        ("head_dim", json!(15), &["config.json: head_dim"]),
        ("rms_norm_eps", json!(0.0), &["config.json: rms_norm_eps"]),
        ("rms_norm_eps", json!("small"), &["`rms_norm_eps`", "finite number"]),
        ("vocab_size", json!(301), &["`vocab_size` is 301", "300 rows"]),
        ("hidden_act", json!("relu"), &["`hidden_act` is relu", "silu"]),
        ("quantization_config", json!({"quant_method": "fp8"}), &["`quantization_config`", "already"]),
        ("rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0}), &["`rope_scaling.rope_type` is dynamic"]),
        ("rope_scaling", json!({"rope_type": "linear"}), &["`rope_scaling.factor` is missing"]),
        ("rope_scaling", json!({"type": "yarn", "factor": 2.0, "beta_fast": 16}), &["`rope_scaling.beta_fast`", "must be 32"]),
        ("rope_scaling", json!({"type": "llama3", "factor": 0}), &["`rope_scaling.factor` is 0"]),
        ("rope_scaling", json!([]), &["`rope_scaling`", "an object"]),
        ("rope_scaling", json!({"type": "linear", "factor": 1e30}), &["config.json: rope_scaling.factor"]),
        ("partial_rotary_factor", json!(0.5), &["`partial_rotary_factor` is 0.5", "must be 1"]),
        ("attn_logit_softcapping", json!(50.0), &["`attn_logit_softcapping`"]),
        ("tie_word_embeddings", json!("yes"), &["`tie_word_embeddings`", "true or false"]),
    ];
    let saved = Saved::of(LINE, 1);
    for (field, value, parts) in rows {
        let mut config = saved::config(&spec());
        config[*field] = value.clone();
        saved.put("config.json", config.to_string().as_bytes());
        says(field, &refused(&saved), parts);
    }
}

#[test]
fn invalid_fields_of_one_family_are_named() {
    let rows = [
        (
            "smollm3",
            "no_rope_layers",
            json!([1, 1, 1, 1]),
            "0 for each 4th layer",
        ),
        (
            "smollm3",
            "no_rope_layers",
            json!([1, 1, -1, 0]),
            "a list of whole numbers",
        ),
        (
            "granite",
            "logits_scaling",
            json!(0.0),
            "config.json: logits_scaling",
        ),
        (
            "granite",
            "embedding_multiplier",
            json!(-1),
            "config.json: embedding_multiplier",
        ),
        ("gemma", "hidden_act", json!("silu"), "`hidden_act` is silu"),
    ];
    for (family, field, value, part) in rows {
        let line = format!("x preset=tiny-{family} mix=F32");
        let mut config = saved::config(&Case::parse(&line).unwrap().spec);
        config[field] = value;
        let saved = Saved::of(&line, 1);
        saved.put("config.json", config.to_string().as_bytes());
        says(family, &refused(&saved), &[field, part]);
    }
}

#[test]
#[rustfmt::skip]
fn invalid_config_files_are_rejected() {
    let saved = Saved::of(LINE, 1);
    let rows: [(&str, &[u8], &str); 6] = [
        ("empty", b"", "EOF"),
        ("no object", b"[1]", "invalid type"),
        ("NaN", b"{\"rms_norm_eps\": NaN}", "expected value"),
        ("no text", b"\xff\xfe", "expected value"),
        ("too deep", &b"{\"a\":".repeat(4000), "recursion limit"),
        ("too long", &vec![b' '; (1 << 20) + 1], "at most 1048576"),
    ];
    for (label, bytes, part) in rows {
        saved.put("config.json", bytes);
        says(label, &refused(&saved), &["config.json", part]);
    }
    std::fs::remove_file(saved.folder.join("config.json")).unwrap();
    says("missing", &refused(&saved), &["config.json"]);
}

/// A header, and the bytes behind it.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

#[test]
#[rustfmt::skip]
fn invalid_headers_are_rejected() {
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(
            "{{\"model.norm.weight\": {{\"dtype\": \"{dtype}\", \"shape\": {shape}, \"data_offsets\": {offsets}}}}}"
        )
    };
    let two = |second: &str| {
        format!(
            "{{\"model.norm.weight\": {{\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]}}, \
             \"lm_head.weight\": {{\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": {second}}}}}"
        )
    };
    let header = |text: String, data: usize| with_header(&text, data);
    let many = format!(
        "{{\"{}\": {{\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}}}",
        "n".repeat(256)
    );
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "truncated"),
        ("seven bytes", vec![1; 7], "truncated"),
        ("cut in the header", with_header("{}", 0)[..9].to_vec(), "truncated"),
        ("longer than the file", 9u64.to_le_bytes().to_vec(), "truncated: the header needs 17"),
        ("absurd length", u64::MAX.to_le_bytes().to_vec(), "at most 33554432"),
        ("a list", with_header("[]", 0), "object of tensors"),
        ("no JSON", with_header("{\"a\"", 0), "EOF"),
        ("NaN", header(tensor("F32", "[NaN]", "[0, 4]"), 4), "model.norm.weight"),
        ("beyond the end", header(tensor("F32", "[4]", "[0, 16]"), 15), "end at 15"),
        ("far beyond", header(tensor("F32", "[4]", "[18446744073709551600, 18446744073709551615]"), 16), "data_offsets"),
        ("falling", header(tensor("F32", "[4]", "[16, 0]"), 16), "must rise"),
        ("negative", header(tensor("F32", "[4]", "[-1, 15]"), 16), "model.norm.weight"),
        ("too few bytes", header(tensor("F32", "[4]", "[0, 12]"), 16), "which are not F32"),
        ("shape overflows", header(tensor("F32", "[18446744073709551615, 2]", "[0, 16]"), 16), "which are not F32"),
        ("six dimensions", header(tensor("F32", "[1,1,1,1,1,1]", "[0, 4]"), 4), "at most 5 dimensions"),
        ("no elements", header(tensor("F32", "[0]", "[0, 0]"), 0), "none of them 0"),
        ("a scalar", header(tensor("F32", "[]", "[0, 4]"), 4), "one or two dimensions"),
        ("eight bits", header(tensor("F8_E4M3", "[4]", "[0, 4]"), 4), "is stored as F8_E4M3, must be F32, F16 or BF16"),
        ("whole numbers", header(tensor("I32", "[4]", "[0, 16]"), 16), "is stored as I32"),
        ("a kind of tomorrow", header(tensor("F3", "[4]", "[0, 16]"), 16), "not known here"),
        ("overlapping", header(two("[8, 24]"), 32), "begins inside tensor `model.norm.weight`"),
        ("the same bytes", header(two("[0, 16]"), 32), "begins inside"),
        ("a long name", header(many, 4), "must have 1 to 255"),
        ("no dtype", with_header("{\"a\": {\"shape\": [1], \"data_offsets\": [0, 4]}}", 4), "missing field `dtype`"),
        ("no part", with_header("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4), "has no part in llama"),
    ];
    let saved = Saved::of(LINE, 1);
    for (label, bytes, part) in rows {
        saved.put("model.safetensors", &bytes);
        says(label, &refused(&saved), &["model.safetensors", part]);
    }
}

fn named<'a>(tensors: &'a mut [Stored], name: &str) -> &'a mut Stored {
    tensors
        .iter_mut()
        .find(|tensor| tensor.name == name)
        .unwrap()
}

#[test]
fn mismatched_tensors_are_named() {
    let saved = Saved::of(LINE, 1);
    let up = "model.layers.1.mlp.up_proj.weight";
    let check = |label: &str, change: &dyn Fn(&mut Vec<Stored>), parts: &[&str]| {
        let mut tensors = saved::stored(&spec());
        change(&mut tensors);
        saved.put_weights(&tensors, 1);
        let why = match Safetensors::open(&saved.folder, None) {
            Ok(_) => not_loaded(&saved).to_string(),
            Err(why) => why.to_string(),
        };
        says(label, &why, parts);
    };
    check(
        "another shape",
        &|all| named(all, up).shape.reverse(),
        &["model.safetensors", up, "shape"],
    );
    check(
        "missing",
        &|all| all.retain(|tensor| tensor.name != up),
        &[up, "missing"],
    );
    check(
        "no projection",
        &|all| all.retain(|tensor| tensor.name != "lm_head.weight"),
        &["lm_head.weight", "tie_word_embeddings"],
    );
    let query = "model.layers.0.self_attn.q_proj.weight";
    check(
        "odd rows of a head",
        &|all| {
            let tensor = named(all, query);
            tensor.shape = vec![tensor.shape[0] * tensor.shape[1] / 2 - 1, 2];
            tensor.bytes.truncate(tensor.bytes.len() - 4);
        },
        &[query, "for each of 4 heads"],
    );
    let norm = "model.layers.0.input_layernorm.weight";
    check(
        "no number",
        &|all| named(all, norm).bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
        &["model.safetensors", norm, "element 0"],
    );
}

#[test]
fn weights_that_are_not_finite_are_not_quantized() {
    use weights::safetensors::Quantize;
    let saved = Saved::of(LINE, 1);
    let up = "model.layers.1.mlp.up_proj.weight";
    let mut tensors = saved::stored(&spec());
    named(&mut tensors, up).bytes[6..8].copy_from_slice(&[0x80, 0x7f]); // infinite
    saved.put_weights(&tensors, 1);
    let files = Safetensors::open(&saved.folder, Some(Quantize::Q8_0)).unwrap();
    let (isa, pool) = (kernels::Isa::detect(), kernels::Pool::new(2));
    let loaded = Model::load(files, isa, pool, &options(None), &mut |_| {});
    let why = loaded.map(|_| ()).unwrap_err().to_string();
    says("infinite", &why, &[up, "element 3"]);
}

#[test]
#[rustfmt::skip]
fn index_outside_the_folder_is_rejected() {
    const NORM: &str = "model.norm.weight";
    let saved = Saved::of(LINE, 3);
    let path = saved.folder.join("model.safetensors.index.json");
    let index: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let is_in = index["weight_map"][NORM].as_str().unwrap().to_owned();
    let rows: Vec<(&str, &str, Value, &[&str])> = vec![
        ("out of the folder", NORM, json!("../model.safetensors"), &[NORM, "not a file of this folder"]),
        ("absolute", NORM, json!("/etc/passwd"), &[NORM, "not a file of this folder"]),
        ("a folder", NORM, json!("a/b.safetensors"), &[NORM, "not a file of this folder"]),
        ("nothing", NORM, json!(""), &[NORM, "not a file of this folder"]),
        ("itself", NORM, json!("."), &[NORM, "not a file of this folder"]),
        ("backwards", NORM, json!("..\\x"), &[NORM, "not a file of this folder"]),
        ("a missing file", NORM, json!("model-9.safetensors"), &["model-9.safetensors"]),
        ("a tensor that is not there", "x", json!(is_in), &["`x`", "and is not"]),
        ("a number", NORM, json!(1), &["model.safetensors.index.json", "string"]),
    ];
    for (label, tensor, file, parts) in rows {
        let mut index = index.clone();
        index["weight_map"][tensor] = file;
        saved.put("model.safetensors.index.json", index.to_string().as_bytes());
        says(label, &refused(&saved), parts);
    }
    for (label, text, part) in [
        ("no map", "{}", "weight_map"),
        ("an empty map", "{\"weight_map\": {}}", "names no tensors"),
        ("no JSON", "{", "EOF"),
    ] {
        saved.put("model.safetensors.index.json", text.as_bytes());
        says(label, &refused(&saved), &["index.json", part]);
    }
    std::fs::remove_file(&path).unwrap();
    says(
        "neither",
        &refused(&saved),
        &["model.safetensors", "model.safetensors.index.json"],
    );
}

#[test]
fn duplicate_tensor_is_rejected() {
    let twice = |files: usize| {
        let saved = Saved::of(LINE, 1);
        let mut tensors = saved::stored(&spec());
        let again = named(&mut tensors, "model.norm.weight").clone();
        if files == 2 {
            std::fs::remove_file(saved.folder.join("model.safetensors")).unwrap();
            tensors.push(again);
            saved.put_weights(&tensors, 2);
            return refused(&saved);
        }
        // A header with a duplicate key, which no writer produces.
        let file = saved::file(&tensors);
        let text = String::from_utf8_lossy(&file).into_owned();
        let start = text.find("\"model.norm.weight\"").unwrap();
        let entry = &text[start..start + text[start..].find('}').unwrap() + 1];
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let mut header = String::from_utf8(file[8..8 + length].to_vec()).unwrap();
        let close = header.rfind('}').unwrap();
        header.insert_str(close, &format!(",{entry}"));
        let mut changed = (header.len() as u64).to_le_bytes().to_vec();
        changed.extend(header.as_bytes());
        changed.extend(&file[8 + length..]);
        saved.put("model.safetensors", &changed);
        refused(&saved)
    };
    says("in one file", &twice(1), &["model.norm.weight"]);
    says("in two files", &twice(2), &["model.norm.weight", "twice"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn mutated_safetensors_do_not_panic(at in 0usize..4096, byte: u8, cut in 0usize..8192) {
        let saved = Saved::of(LINE, 1);
        let mut file = saved::file(&saved::stored(&spec()));
        let at = at % file.len();
        file[at] = byte;
        file.truncate(file.len() - cut.min(file.len()) / 2);
        saved.put("model.safetensors", &file);
        if let Ok(files) = Safetensors::open(&saved.folder, None) {
            let (isa, pool) = (kernels::Isa::detect(), kernels::Pool::new(1));
            let _ = Model::load(files, isa, pool, &options(None), &mut |_| {});
        }
    }
}
