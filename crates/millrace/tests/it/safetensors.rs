//! A folder as Hugging Face's libraries save it, served, run, listed and deleted as any other model.

use crate::support::folder::both;
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};
use std::path::Path;

const ASK: &str = r#"{"model":"MODEL","max_tokens":8,"temperature":0,"messages":[{"role":"user","content":"Once <|im_end|> upon"}]}"#;

fn serve(path: &Path, more: &[&str]) -> Serving {
    let path = path.display().to_string();
    Serving::start(&[&["serve", &path, "--bind", "127.0.0.1:0"], more].concat())
}

fn body(reply: &str) -> Value {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
}

/// What was said, and what it cost.
fn said(serving: &Serving, model: &str) -> (Value, Value) {
    let told = body(&serving.post("/v1/chat/completions", &ASK.replace("MODEL", model)));
    (told["choices"][0].clone(), told["usage"].clone())
}

#[test]
fn folder_answers_as_the_gguf_of_the_same_weights() {
    let (saved, bytes) = both();
    let other = Folder::new("safetensors-gguf");
    let file = other.0.join("tiny.gguf");
    std::fs::write(&file, bytes).unwrap();
    let gguf = serve(&file, &["--name", "it"]);
    let wanted = said(&gguf, "it");
    assert!(
        wanted.1["completion_tokens"].as_u64() > Some(0),
        "{wanted:?}"
    );
    assert!(gguf.terminate().success());
    let folder = serve(&saved.folder, &["--name", "it"]);
    assert_eq!(said(&folder, "it"), wanted);
    let shown = body(&folder.post("/api/show", r#"{"model":"it"}"#));
    assert_eq!(shown["details"]["family"], "llama");
    assert_eq!(shown["details"]["quantization_level"], "BF16");
    assert!(folder.terminate().success());
}

#[test]
fn blank_chat_template_is_none() {
    let (saved, _) = both();
    edit_json(&saved.folder.join("tokenizer_config.json"), |config| {
        config["chat_template"] = json!(" \n");
    });
    let serving = serve(&saved.folder, &[]);
    let messages = json!({"messages": [{"role": "user", "content": "Okapi7"}]});
    let prompt = body(&serving.post("/apply-template", &messages.to_string()));
    let prompt = prompt["prompt"].as_str().unwrap();
    assert!(prompt.contains("Okapi7"), "{prompt:?}");
    assert!(serving.terminate().success());
}

#[test]
fn file_that_is_not_usable_is_a_sentence() {
    type Edit = fn(&mut Value);
    let rows: [(&str, Edit, &str); 4] = [
        (
            "tokenizer.json",
            |file| {
                file["model"]["continuing_subword_prefix"] =
                    json!("<prefix longer than any token>");
            },
            "tokenizer.json is not usable",
        ),
        (
            "tokenizer_config.json",
            |file| {
                file["bos_token"] = json!(5);
            },
            "a token (bos_token, eos_token, unk_token) must be a text",
        ),
        (
            "tokenizer_config.json",
            |file| {
                file["chat_template"] = json!(5);
            },
            "chat_template must be a text",
        ),
        (
            "tokenizer_config.json",
            |file| {
                *file = json!(5);
            },
            "expected an object",
        ),
    ];
    for (name, edit, words) in rows {
        let (saved, _) = both();
        edit_json(&saved.folder.join(name), edit);
        let output = millrace(&["run", &saved.folder.display().to_string(), "A", "-n", "1"]);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains(words), "{why}");
        for other in ["panicked", "RUST_BACKTRACE", "struct ", "enum "] {
            assert!(!why.contains(other), "{why}");
        }
    }
}

#[test]
fn weights_are_quantized_at_load() {
    let (saved, _) = both();
    let name = saved.folder.file_name().unwrap().to_str().unwrap();
    for kind in ["q8_0", "q4_k"] {
        let serving = serve(&saved.folder, &["--quantize", kind]);
        let (choice, _) = said(&serving, name);
        assert!(choice["message"]["content"].is_string(), "{choice}");
        let shown = body(&serving.post("/api/show", &json!({"model": name}).to_string()));
        // Rows of 64 are no blocks of 256.
        assert_eq!(shown["details"]["quantization_level"], "Q8_0", "{kind}");
        assert!(serving.terminate().success());
    }
}

#[test]
fn folder_among_the_models_is_loaded_and_deleted_by_its_path() {
    let (saved, _) = both();
    let models = Folder::new("safetensors-models");
    let home = models.0.join("org/repo");
    std::fs::create_dir_all(home.parent().unwrap()).unwrap();
    copy(&saved.folder, &home);
    let sly = models.0.join("sly");
    copy(&saved.folder, &sly);
    std::fs::remove_file(sly.join("tokenizer.json")).unwrap();
    std::os::unix::fs::symlink(
        saved.folder.join("tokenizer.json"),
        sly.join("tokenizer.json"),
    )
    .unwrap();
    let directories = json!([models.0]).to_string();
    let vars = [("MILLRACE_MODELS_DIRECTORIES", directories.as_str())];
    let serving = Serving::start_with(
        &["serve", "millrace-mini", "--bind", "127.0.0.1:0"],
        &vars,
        std::process::Stdio::null(),
    );
    let tags = body(&serving.get("/api/tags"));
    let names: Vec<_> = tags["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["name"])
        .collect();
    assert_eq!(
        names,
        ["millrace-mini:latest", "org/repo:latest"],
        "what a link leads out of is left alone"
    );
    assert!(said(&serving, "org/repo").0["message"].is_object());
    let gone = serving.post("/api/generate", r#"{"model":"org/repo","keep_alive":0}"#);
    assert_eq!(body(&gone)["done_reason"], "unload");
    let deleted = serving.send("DELETE", "/api/delete", "", r#"{"model":"org/repo"}"#);
    assert!(deleted.starts_with("HTTP/1.1 200"), "{deleted}");
    assert!(!home.exists(), "nothing is left of it");
    assert!(saved.folder.join("tokenizer.json").exists());
    assert!(serving.terminate().success());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn folder_is_run_and_inspected_and_missing_files_are_named() {
    let (saved, _) = both();
    let folder = saved.folder.display().to_string();
    let run = |args: &[&str]| {
        millrace(&[&["run"], args, &["A", "-n", "3", "--temperature", "0"]].concat())
    };
    let whole = stdout(&run(&[&folder]));
    let shard = saved
        .folder
        .join("model-00001-of-00002.safetensors")
        .display()
        .to_string();
    assert_eq!(
        stdout(&run(&[&shard])),
        whole,
        "one of its files stands for all"
    );
    let inspected = stdout(&millrace(&["inspect", &folder]));
    assert!(
        inspected.contains("runs here: llama with 2 layers"),
        "{inspected}"
    );
    for name in [
        "tokenizer.json",
        "model-00002-of-00002.safetensors",
        "config.json",
    ] {
        std::fs::remove_file(saved.folder.join(name)).unwrap();
        let output = run(&[&folder]);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && why.contains(name),
            "{name}: {why}"
        );
    }
}

/// The model's digests in the log: weights, tokenizer, template.
fn digests(folder: &Path, flags: &[&str]) -> [String; 3] {
    let path = folder.to_str().unwrap();
    let args = ["run", path, "--log", "debug", "--max-tokens", "1"];
    let output = millrace(&[&args, flags, &["A"]].concat());
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    let line = log
        .lines()
        .find(|line| line.contains("the model was identified"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    ["weights", "tokenizer", "template"].map(|name| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).expect(name);
        let digest = rest.split('"').next().unwrap();
        assert_eq!(digest.len(), 64, "{line}");
        digest.to_owned()
    })
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    edit(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

/// Changes one bit of the last weight of a file.
fn change_weight(folder: &Path) {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path = paths
        .find(|path| {
            path.extension()
                .is_some_and(|ending| ending == "safetensors")
        })
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.len() - 2;
    bytes[place] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Promise (Journal): a model's identity changes with one bit of a sampled weight, a hyperparameter, a token, a
/// merge, the template or the output parser; equal files have one identity.
/// Also held by `millrace/src/model_files/identity.rs :: one_changed_bit_changes_one_digest`.
#[test]
fn identity_changes_with_the_part_that_changes() {
    let (saved, _) = both();
    let folder = &saved.folder;
    let plain = digests(folder, &[]);
    assert_eq!(digests(folder, &[]), plain, "two loads");
    let changed = |other: &[String; 3]| -> [bool; 3] {
        std::array::from_fn(|part| other[part] != plain[part])
    };
    // The types of the loaded tensors count, not only the stored bytes.
    let quantized = digests(folder, &["--quantize", "q8_0"]);
    assert_eq!(changed(&quantized), [true, false, false]);
    change_weight(folder);
    assert_eq!(changed(&digests(folder, &[])), [true, false, false]);
    edit_json(&folder.join("tokenizer_config.json"), |config| {
        let template = config["chat_template"].as_str().unwrap();
        config["chat_template"] = json!(format!("{template} "));
    });
    assert_eq!(changed(&digests(folder, &[])), [true, false, true]);
    edit_json(&folder.join("tokenizer.json"), |tokenizer| {
        tokenizer["model"]["merges"].as_array_mut().unwrap().pop();
    });
    assert_eq!(changed(&digests(folder, &[])), [true, true, true]);
}
