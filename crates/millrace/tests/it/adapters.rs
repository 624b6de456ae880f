//! Adapters over HTTP: by the field `lora`, by a model's name, by default, and files that are none.

use crate::support::{Folder, Serving, command, millrace, stdout};
use serde_json::{Value, json};
use std::path::Path;
use synth::{AdapterSynth, SynthSpec};

/// A model and three adapters, written to a folder.
pub(crate) struct AdapterFiles {
    folder: Folder,
}

impl AdapterFiles {
    pub(crate) fn new(folder: &str) -> Self {
        let folder = Folder::new(folder);
        let spec = SynthSpec::preset("tiny-llama").unwrap();
        spec.create(None, &folder.0.join("tiny.gguf")).unwrap();
        for (name, seed, rank) in [("a", 1, 4), ("b", 2, 8), ("c", 3, 4)] {
            let adapter = AdapterSynth {
                seed,
                rank,
                alpha: 16.0,
            };
            let bytes = spec.adapter_bytes(&adapter).unwrap();
            std::fs::write(folder.0.join(format!("{name}.gguf")), bytes).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    fn serve(&self, flags: &[String]) -> Serving {
        let model = self.path("tiny.gguf");
        let mut args = vec!["serve", &model, "--bind", "127.0.0.1:0"];
        args.extend(flags.iter().map(String::as_str));
        Serving::start(&args)
    }
}

fn body(reply: &str, status: u16) -> Value {
    assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// The answer's text to a request with these fields beside prompt and length.
pub(crate) fn answer(serving: &Serving, fields: &Value) -> String {
    let mut request =
        json!({"prompt": "The mill", "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let more = fields.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(more);
    let reply = body(&serving.post("/v1/completions", &request.to_string()), 200);
    reply["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn adapters_are_used_by_field_by_name_and_by_default() {
    let files = AdapterFiles::new("adapters");
    let plain = answer(&files.serve(&[]), &json!({}));
    let serving = files.serve(&[
        "--lora-scaled".into(),
        format!("{}:0.5", files.path("a.gguf")),
        "--lora-modules".into(),
        format!("sql={}", files.path("b.gguf")),
        format!("chat={}", files.path("c.gguf")),
    ]);
    let ask = |fields: Value| answer(&serving, &fields);
    assert_eq!(
        ask(json!({"lora": []})),
        plain,
        "without adapters, as in a server without any"
    );
    let half = ask(json!({}));
    let sql = ask(json!({"model": "sql"}));
    let both = ask(json!({"lora": [{"id": 1}, {"name": "a", "scale": -0.5}]}));
    let mut all = vec![&plain, &half, &sql, &both];
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4, "{all:?}");
    for (fields, expected) in [
        (json!({"lora": [{"id": 0, "scale": 0.5}]}), &half),
        (json!({"model": "a"}), &half),
        (json!({"model": "tiny"}), &half),
        (json!({"lora": [{"name": "sql", "scale": 1}]}), &sql),
        (json!({"model": "sql:latest"}), &sql),
        (json!({"model": "chat", "lora": [{"id": 1}]}), &sql),
        (
            json!({"lora": [{"name": "a", "scale": -0.5}, {"name": "sql"}, {"id": 2, "scale": 0}]}),
            &both,
        ),
        (json!({"model": "sql", "lora": []}), &plain),
    ] {
        assert_eq!(&ask(fields.clone()), expected, "{fields}");
    }
    // Ollama's API has the adapter by name, and the name in its answer.
    let request = json!({"model": "sql", "prompt": "The mill", "raw": true, "stream": false,
        "options": {"num_predict": 24, "temperature": 0, "ignore_eos": true, "repeat_penalty": 1}});
    let reply = body(&serving.post("/api/generate", &request.to_string()), 200);
    assert_eq!(
        (&reply["response"], &reply["model"]),
        (&json!(sql), &json!("sql"))
    );
}

#[test]
fn adapters_are_listed_as_models() {
    let files = AdapterFiles::new("adapters-listed");
    let serving = files.serve(&[
        "--lora-modules".into(),
        format!("sql={}", files.path("b.gguf")),
    ]);
    let listed = body(&serving.get("/v1/models"), 200);
    let models = listed["data"].as_array().unwrap();
    let find = |id: &str| models.iter().find(|model| model["id"] == id).unwrap();
    let sql = find("sql");
    assert_eq!(
        (&sql["parent"], &sql["root"]),
        (&json!("tiny"), &json!("b.gguf"))
    );
    assert!(find("tiny").get("parent").is_none());
    let one = body(&serving.get("/v1/models/sql"), 200);
    assert_eq!(one["parent"], "tiny");
    let adapters = body(&serving.get("/lora-adapters"), 200);
    let expected = json!([{"id": 0, "name": "sql", "path": "b.gguf", "scale": 0.0}]);
    assert_eq!(adapters, expected);
    for (path, request) in [
        (
            "/api/copy",
            json!({"source": "sql", "destination": "other"}),
        ),
        (
            "/api/create",
            json!({"model": "other", "from": "sql", "stream": false}),
        ),
    ] {
        let error = body(&serving.post(path, &request.to_string()), 400).to_string();
        assert!(error.contains("sql: is an adapter"), "{path}: {error}");
    }
}

#[test]
fn default_scales_are_set_while_serving() {
    let files = AdapterFiles::new("adapters-defaults");
    let serving = files.serve(&[
        "--lora".into(),
        format!("{},second={}", files.path("a.gguf"), files.path("b.gguf")),
        "--lora-init-without-apply".into(),
    ]);
    let ask = |fields: Value| answer(&serving, &fields);
    let (plain, second) = (
        ask(json!({})),
        ask(json!({"lora": [{"id": 1, "scale": 2}]})),
    );
    assert_ne!(plain, second);
    let set = |scales: Value| serving.post("/lora-adapters", &scales.to_string());
    assert_eq!(
        body(&set(json!([{"id": 1, "scale": 2.0}])), 200),
        json!({"success": true})
    );
    assert_eq!(ask(json!({})), second);
    let scales = body(&serving.get("/lora-adapters"), 200);
    assert_eq!(
        (&scales[0]["scale"], &scales[1]["scale"]),
        (&json!(0.0), &json!(2.0))
    );
    let error = body(&set(json!([{"id": 2, "scale": 1}])), 400).to_string();
    assert!(error.contains("lora[0].id"), "{error}");
    assert_eq!(ask(json!({})), second, "a failed change changes nothing");
    body(&set(json!([])), 200);
    assert_eq!(ask(json!({})), plain);
}

#[test]
fn unknown_adapters_are_refused_as_unknown_models_and_fields() {
    let files = AdapterFiles::new("adapters-unknown");
    let serving = files.serve(&[
        "--lora-modules".into(),
        format!("sql={}", files.path("b.gguf")),
    ]);
    let post = |fields: Value| serving.post("/v1/completions", &fields.to_string());
    let error = body(&post(json!({"model": "sqll", "prompt": "x"})), 404).to_string();
    assert!(
        error.contains("model_not_found") && error.contains("sql"),
        "{error}"
    );
    let request = json!({"prompt": "x", "lora": [{"id": 7}, {"name": "x"}], "temperature": 9});
    let error = body(&post(request), 400).to_string();
    for field in ["lora[0].id", "lora[1].name", "temperature"] {
        assert!(error.contains(field), "{field}: {error}");
    }
    let without = files.serve(&[]);
    let request = json!({"prompt": "x", "lora": [{"id": 0}]}).to_string();
    let error = body(&without.post("/v1/completions", &request), 400).to_string();
    assert!(error.contains("the model has none"), "{error}");
}

#[test]
fn adapter_is_used_on_the_terminal() {
    let files = AdapterFiles::new("adapters-terminal");
    let (model, adapter) = (files.path("tiny.gguf"), files.path("a.gguf"));
    let run = |more: &[&str]| {
        let mut args = vec![
            "run",
            "--model",
            &model,
            "The mill",
            "--max-tokens",
            "16",
            "--temperature",
            "0",
        ];
        args.extend(more);
        stdout(&millrace(&args))
    };
    assert_ne!(run(&[]), run(&["--lora", &adapter]));
}

/// The error output of `serve`.
fn refusal(args: &[&str]) -> String {
    let output = command(args).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn bad_adapters_end_the_start_with_one_line() {
    let files = AdapterFiles::new("adapters-bad");
    let (model, other) = (files.path("tiny.gguf"), files.path("other.gguf"));
    let wide = SynthSpec {
        dim: 128,
        ..SynthSpec::preset("tiny-llama").unwrap()
    };
    let adapter = AdapterSynth {
        seed: 1,
        rank: 4,
        alpha: 1.0,
    };
    std::fs::write(Path::new(&other), wide.adapter_bytes(&adapter).unwrap()).unwrap();
    let serve =
        |adapter: &str| refusal(&["serve", &model, "--bind", "127.0.0.1:0", "--lora", adapter]);
    for (adapter, expected) in [
        (
            other.as_str(),
            "tensor `blk.0.attn_k.weight.lora_a` has shape [4, 128], must have [4, 64]",
        ),
        (&files.path("none.gguf"), "none.gguf"),
        (&model, "`general.type`"),
        (&format!("{}:1e9", files.path("a.gguf")), "model.adapters"),
    ] {
        let said = serve(adapter);
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| line.contains(expected))
            .collect();
        assert_eq!(lines.len(), 1, "{expected}: {said}");
    }
}
