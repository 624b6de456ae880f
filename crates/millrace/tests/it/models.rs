//! Several models of one directory, as a user has them: real files, real engines.
//!
//! Promise (Models): a server without a model setting starts with the only model of this machine, and names several,
//! also to requests without a model; a missing `--models-dir` is an error; links that are not followed are named.

use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};

/// A directory with two synthetic models.
fn directory(name: &str) -> Folder {
    let folder = Folder::new(name);
    for (file, preset) in [("one", "tiny-llama"), ("two", "tiny-qwen3")] {
        let path = folder.0.join(format!("{file}.gguf")).display().to_string();
        stdout(&millrace(&["synth", &path, "--preset", preset]));
    }
    folder
}

fn serving(folder: &Folder, more: &[(&str, &str)]) -> Serving {
    let directories = json!([folder.0]).to_string();
    let mut vars = vec![("MILLRACE_MODELS_DIRECTORIES", directories.as_str())];
    vars.extend(more);
    let log = std::fs::File::create(folder.0.join("log")).unwrap();
    let serve = ["serve", "millrace-mini", "--bind", "127.0.0.1:0"];
    Serving::start_with(&serve, &vars, log)
}

fn body(reply: &str) -> Value {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
}

fn names(list: &Value, of: &str) -> Vec<String> {
    let all = list[of].as_array().unwrap().iter();
    all.map(|model| model["name"].as_str().unwrap().to_owned())
        .collect()
}

fn said(serving: &Serving, model: &str) -> String {
    let ask = json!({"model": model, "prompt": "A", "max_tokens": 4, "temperature": 0}).to_string();
    let told = body(&serving.post("/v1/completions", &ask));
    assert_eq!(told["model"], model);
    told["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn tool_support_is_detected_from_templates() {
    let folder = directory("tools");
    let serving = serving(&folder, &[]);
    let user = json!({"role": "user", "content": "hi"});
    let tool = json!({"name": "weather", "input_schema": {"type": "object"}});
    let prompt_tokens = |ask: Value| {
        let told = body(&serving.post("/v1/messages/count_tokens", &ask.to_string()));
        told["input_tokens"].as_u64().unwrap()
    };
    // The built-in model's template has a place for tools; those of synthetic models are not there.
    for (model, want) in [("millrace-mini", "template"), ("one", "generic")] {
        let shown =
            |name: &str| body(&serving.post("/api/show", &json!({"model": name}).to_string()));
        assert_eq!(
            shown(model)["tool_prompt"],
            want,
            "{model}, before it is loaded"
        );
        let ask = json!({"model": model, "messages": [user]});
        let mut with = ask.clone();
        with["tools"] = json!([tool]);
        let (without, with) = (prompt_tokens(ask), prompt_tokens(with));
        assert!(with > without + 10, "{model}: {without} and {with}");
        assert_eq!(shown(model)["tool_prompt"], want, "{model}");
        let card = body(&serving.get(&format!("/v1/models/{model}")));
        assert_eq!(card["tools"], want, "{card}");
    }
    let log = std::fs::read_to_string(folder.0.join("log")).unwrap();
    assert!(log.contains("generic tool prompt"), "{log}");
}

#[test]
fn models_of_a_directory_are_loaded_on_demand() {
    let folder = directory("several");
    let serving = serving(&folder, &[]);
    let tags = body(&serving.get("/api/tags"));
    assert_eq!(
        names(&tags, "models"),
        ["millrace-mini:latest", "one:latest", "two:latest"]
    );
    assert_eq!(tags["models"][2]["details"]["family"], "qwen3");
    assert_eq!(
        names(&body(&serving.get("/api/ps")), "models"),
        ["millrace-mini:latest"]
    );
    let (one, two) = (said(&serving, "one"), said(&serving, "two"));
    let ps = body(&serving.get("/api/ps"));
    assert_eq!(ps["models"].as_array().unwrap().len(), 3);
    let alone = folder.0.join("one.gguf").display().to_string();
    let run = ["run", &alone, "A", "--raw", "-n", "4", "--temperature", "0"];
    assert_eq!(
        stdout(&millrace(&run)).trim_end_matches('\n'),
        one.trim_end_matches('\n')
    );
    let gone = serving.post("/api/generate", r#"{"model":"two","keep_alive":0}"#);
    assert_eq!(body(&gone)["done_reason"], "unload");
    assert_eq!(said(&serving, "two"), two, "the same when it comes back");
    assert!(serving.terminate().success());
}

#[test]
fn derived_model_is_created_and_used() {
    let (folder, data) = (directory("made"), Folder::new("made-data"));
    let data_home = ("XDG_DATA_HOME", data.0.to_str().unwrap());
    let serving = serving(&folder, &[data_home]);
    let made = json!({
        "model": "brief", "from": "one", "system": "Be brief.", "parameters": {"num_predict": 2, "temperature": 0},
    });
    let made = serving.post("/api/create", &made.to_string());
    assert!(made.contains("{\"status\":\"success\"}"), "{made}");
    let ask = r#"{"model":"brief","stream":false,"messages":[{"role":"user","content":"A"}]}"#;
    let told = body(&serving.post("/api/chat", ask));
    assert_eq!(told["eval_count"], 2, "{told}");
    let shown = body(&serving.post("/api/show", r#"{"model":"brief"}"#));
    assert_eq!(
        (&shown["system"], &shown["details"]["family"]),
        (&json!("Be brief."), &json!("llama"))
    );
    assert!(
        shown["model_info"]["llama.context_length"].is_number(),
        "{shown}"
    );
    let copy = json!({"source": "two", "destination": "second"}).to_string();
    let copied = serving.post("/api/copy", &copy);
    assert!(copied.starts_with("HTTP/1.1 200"), "{copied}");
    assert!(
        !folder.0.join("names").exists(),
        "a directory that only has models stays as it is"
    );
    let directories = json!([folder.0]).to_string();
    let vars = [data_home, ("MILLRACE_MODELS_DIRECTORIES", &*directories)];
    let millrace = |args: &[&str]| stdout(&crate::support::millrace_with(args, &vars));
    // Names are there when the server comes again.
    let listed = millrace(&["models"]);
    assert!(
        listed.contains("brief ") && listed.contains("second "),
        "{listed}"
    );
    let removed = millrace(&["rm", "second"]);
    assert!(removed.contains("removed the name second"), "{removed}");
    assert!(folder.0.join("two.gguf").exists());
    assert!(serving.terminate().success());
}

#[test]
fn budget_too_small_is_rejected_with_the_numbers() {
    let folder = directory("budget");
    let serving = serving(&folder, &[("MILLRACE_MODELS_MEMORY_BUDGET_MIB", "2")]);
    let ask = r#"{"model":"one","prompt":"A"}"#;
    let refused = serving.post("/v1/completions", ask);
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(
        refused.contains("may have 2 MiB (models.memory_budget_mib)"),
        "{refused}"
    );
    assert!(
        said(&serving, "millrace-mini").len() < 100,
        "the first goes on"
    );
    assert!(serving.terminate().success());
}

#[test]
fn model_names_in_requests_stay_within_the_directories() {
    let folder = directory("inside");
    let models = folder.0.join("models");
    std::fs::create_dir_all(&models).unwrap();
    let inner = Folder(models);
    std::os::unix::fs::symlink(folder.0.join("one.gguf"), inner.0.join("sly.gguf")).unwrap();
    let serving = serving(&inner, &[]);
    let outside = folder.0.join("one").display().to_string();
    for name in [
        "../one",
        "../one.gguf",
        "sly",
        &outside,
        "%2e%2e%2fone",
        "..%2fone",
        "models/../../one",
    ] {
        for (path, body) in [
            ("/v1/completions", json!({"model": name, "prompt": "A"})),
            ("/api/show", json!({"model": name})),
            ("/api/copy", json!({"source": name, "destination": "mine"})),
        ] {
            let reply = serving.post(path, &body.to_string());
            assert!(reply.starts_with("HTTP/1.1 404"), "{path} {name}: {reply}");
        }
    }
    for path in [
        "/v1/models/../one",
        "/v1/models/%2e%2e%2fone",
        "/v1/models/..%252fone",
    ] {
        let reply = serving.get(path);
        assert!(reply.starts_with("HTTP/1.1 404"), "{path}: {reply}");
    }
    assert!(serving.terminate().success());
}

#[test]
fn server_without_a_model_starts_with_the_one_of_this_machine() {
    let folder = directory("unnamed");
    let serve = ["serve", "--port", "0"];
    let directories = json!([folder.0]).to_string();
    let data = Folder::new("unnamed-data");
    let vars = [
        ("MILLRACE_MODELS_DIRECTORIES", directories.as_str()),
        ("XDG_DATA_HOME", data.0.to_str().unwrap()),
    ];
    let several = Serving::start_with(&serve, &vars, std::process::Stdio::null());
    let request = json!({"model": "two", "prompt": "a", "max_tokens": 1}).to_string();
    let named = body(&several.post("/v1/completions", &request));
    assert_eq!(named["model"], "two", "a request names one of several");
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let request = json!({"prompt": "a", "messages": [{"role": "user", "content": "a"}]});
        let unnamed = several.post(path, &request.to_string());
        assert!(unnamed.starts_with("HTTP/1.1 400"), "{unnamed}");
        assert!(
            unnamed.contains("must name its model") && unnamed.contains("one, two"),
            "{unnamed}"
        );
    }
    assert!(several.terminate().success());
    // An encoder is for other requests, and a second name is no second model.
    std::fs::remove_file(folder.0.join("two.gguf")).unwrap();
    let encoder = folder.0.join("vectors.gguf").display().to_string();
    stdout(&millrace(&["synth", &encoder, "--preset", "tiny-bert"]));
    stdout(&crate::support::millrace_with(
        &["cp", "one", "alias"],
        &vars,
    ));
    let serving = Serving::start_with(&serve, &vars, std::process::Stdio::null());
    let listed = body(&serving.get("/v1/models"));
    let started = &listed["data"][0];
    assert_eq!(
        (&started["id"], &started["state"], &started["kind"]),
        (&json!("alias"), &Value::Null, &json!("text")),
        "{listed}"
    );
    let of = |name: &str| {
        let all = listed["data"].as_array().unwrap();
        all.iter().find(|model| model["id"] == name).cloned()
    };
    let encoder = of("vectors").expect("the encoder is listed");
    assert_eq!(
        (&encoder["kind"], &encoder["capabilities"]),
        (&json!("embedding"), &json!(["embedding"])),
        "before it is loaded"
    );
    assert!(serving.terminate().success());
    // Where there is none, the toy is served.
    let empty = Folder::new("unnamed-empty");
    let args = ["serve", "--port", "0", "--models-dir"];
    let args = [&args[..], &[empty.0.to_str().unwrap()]].concat();
    let serving = Serving::start(&args);
    assert_eq!(
        body(&serving.get("/v1/models"))["data"][0]["id"],
        "millrace-mini"
    );
    assert!(serving.terminate().success());
}

#[test]
fn model_directory_that_is_not_there_is_named() {
    let folder = Folder::new("absent-directory");
    let absent = folder.0.join("absent").display().to_string();
    for command in [
        &["serve", "--port", "0"][..],
        &["list"],
        &["run", "A"],
        &["show", "one"],
    ] {
        let output = millrace(&[command, &["--models-dir", &absent]].concat());
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && why.contains(&absent) && why.contains("no such directory"),
            "{command:?}: {why}"
        );
    }
    let vars = [("MILLRACE_MODELS_DIRECTORIES", absent.as_str())];
    let listed = crate::support::millrace_with(&["list"], &vars);
    let said = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(listed.status.success() && said.contains(&absent), "{said}");
}

#[test]
fn links_that_are_not_followed_are_named() {
    use std::os::unix::fs::symlink;
    let folder = directory("links");
    let models = folder.0.join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::copy(folder.0.join("two.gguf"), models.join("two.gguf")).unwrap();
    symlink(folder.0.join("one.gguf"), models.join("outside.gguf")).unwrap();
    symlink(&folder.0, models.join("folder")).unwrap();
    symlink(models.join("gone.gguf"), models.join("broken.gguf")).unwrap();
    symlink(models.join("two.gguf"), models.join("alias.gguf")).unwrap();
    symlink(models.join("two.gguf"), models.join("notes.txt")).unwrap();
    let directory = models.display().to_string();
    let wanted = [
        "models/outside.gguf is skipped: a link out of the directory",
        "models/folder is skipped: a link to a folder",
        "models/broken.gguf is skipped: the link's file does not exist",
    ];
    let listed = millrace(&["list", "--models-dir", &directory]);
    let names = stdout(&listed);
    assert!(
        names.contains("\nalias "),
        "a link within is a name: {names}"
    );
    assert!(
        !names.contains("outside") && !names.contains("folder"),
        "{names}"
    );
    let said = String::from_utf8_lossy(&listed.stderr).into_owned();
    for words in wanted {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("is skipped").count(), 3, "{said}");
    assert!(said.contains("--models-dir"), "{said}");
    let report = stdout(&millrace(&[
        "doctor",
        "two",
        "--port",
        "0",
        "--models-dir",
        &directory,
    ]));
    assert!(
        report.contains("is skipped: ") && report.contains("and 2 more (`millrace list`)"),
        "{report}"
    );
    let log = folder.0.join("log");
    let serve = ["serve", "two", "--port", "0", "--models-dir", &directory];
    let serving = Serving::start_with(&serve, &[], std::fs::File::create(&log).unwrap());
    assert!(serving.terminate().success());
    let log = std::fs::read_to_string(log).unwrap();
    for words in wanted {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn model_name_on_the_command_line() {
    let folder = directory("named");
    let directories = json!([folder.0]).to_string();
    let vars = [("MILLRACE_MODELS_DIRECTORIES", directories.as_str())];
    let args = ["run", "--model", "two", "A", "-n", "2"];
    stdout(&crate::support::millrace_with(&args, &vars));
    let refused = crate::support::millrace_with(&["run", "--model", "three", "A"], &vars);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("three"), "{why}");
}

#[test]
fn defaults_of_named_models_apply_to_requests() {
    let folder = directory("named");
    let named = json!({
        "short": {"from": "one", "parameters": {"num_predict": 2, "min_tokens": 2}},
        "millrace-mini": {"parameters": {"num_predict": 3, "min_tokens": 3}},
    });
    let serving = serving(&folder, &[("MILLRACE_MODELS_NAMED", &named.to_string())]);
    for (model, own_limit, want) in [
        (Some("short"), None, 2),
        (Some("millrace-mini"), None, 3),
        (None, None, 3),
        (Some("short"), Some(4), 4),
        (Some("one"), Some(5), 5),
    ] {
        let ask = json!({
            "model": model, "prompt": "A", "max_tokens": own_limit, "min_tokens": own_limit, "temperature": 0,
        });
        let told = body(&serving.post("/v1/completions", &ask.to_string()));
        assert_eq!(
            told["usage"]["completion_tokens"], want,
            "{model:?}: {told}"
        );
    }
    let listed = body(&serving.get("/v1/models"));
    let ids = listed["data"].as_array().unwrap().iter();
    assert_eq!(
        ids.filter(|model| model["id"] == "short").count(),
        1,
        "{listed}"
    );
}
