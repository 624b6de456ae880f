//! Models that Ollama and Hugging Face's libraries have downloaded.
//!
//! Promise (Models): models in the caches of other programs are listed and served in place, and never changed.

use super::refusal;
use crate::support::{Folder, millrace, millrace_with, stdout};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

/// Both caches in a folder, each with models.
struct Rig {
    folder: Folder,
    vars: Vec<(&'static str, String)>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let path = |name: &str| folder.0.join(name).display().to_string();
        let model = path("model.gguf");
        stdout(&millrace(&["synth", &model]));
        let bytes = std::fs::read(&model).unwrap();
        let vars = vec![
            ("OLLAMA_MODELS", path("ollama")),
            ("HF_HUB_CACHE", path("hub")),
            (
                "MILLRACE_MODELS_DIRECTORIES",
                json!([path("own")]).to_string(),
            ),
        ];
        std::fs::create_dir_all(path("own")).unwrap();
        fill_ollama(&folder.0.join("ollama"), &bytes);
        fill_hub(&folder.0.join("hub"), &bytes);
        Self { folder, vars }
    }

    fn millrace(&self, args: &[&str]) -> Output {
        let vars = self.vars.iter().map(|(name, value)| (*name, &**value));
        millrace_with(args, &vars.collect::<Vec<_>>())
    }

    fn names(&self) -> Vec<String> {
        let list = stdout(&self.millrace(&["ls", "--log", "error"]));
        let first = |line: &str| {
            line.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        list.lines().skip(1).map(first).collect()
    }
}

fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn fill_ollama(root: &Path, bytes: &[u8]) {
    let digest = |digit: char| digit.to_string().repeat(64);
    put(&root.join(format!("blobs/sha256-{}", digest('a'))), bytes);
    put(
        &root.join(format!("blobs/sha256-{}", digest('b'))),
        b"no model",
    );
    put(
        &root.join(format!("blobs/sha256-{}", digest('c'))),
        br#"{"stop": ["<|im_end|>"], "temperature": 0.3, "top_k": 20, "top_p": 7}"#,
    );
    put(&root.join("outside.gguf"), bytes);
    let parameters = "application/vnd.ollama.image.params";
    let set = format!("sha256:{}", digest('c'));
    let model = "application/vnd.ollama.image.model";
    let adapter = "application/vnd.ollama.image.adapter";
    let (good, bad) = (
        format!("sha256:{}", digest('a')),
        format!("sha256:{}", digest('b')),
    );
    let rows = [
        (
            "registry.ollama.ai/library/tiny/1b",
            vec![(model, good.as_str()), (parameters, &set)],
        ),
        (
            "registry.ollama.ai/someone/tiny/latest",
            vec![("application/json", "x"), (model, &good)],
        ),
        ("hf.co/org/repo/Q8_0", vec![(model, &good)]),
        (
            "registry.ollama.ai/library/adapted/1b",
            vec![(model, &good), (adapter, &good)],
        ),
        ("registry.ollama.ai/library/broken/1b", vec![(model, &bad)]),
        (
            "registry.ollama.ai/library/absent/1b",
            vec![(model, "sha256:../../outside.gguf")],
        ),
    ];
    for (path, layers) in rows {
        let layer = |(kind, digest)| json!({"mediaType": kind, "digest": digest, "size": 1});
        let layers: Vec<_> = layers.into_iter().map(layer).collect();
        let manifest = json!({"schemaVersion": 2, "layers": layers}).to_string();
        put(&root.join("manifests").join(path), manifest.as_bytes());
    }
    put(
        &root.join("manifests/registry.ollama.ai/library/odd/1b"),
        b"{",
    );
}

fn fill_hub(root: &Path, bytes: &[u8]) {
    let repository = root.join("models--org--repo-GGUF");
    put(&repository.join("blobs/1234"), bytes);
    put(&repository.join("refs/main"), b"c0ffee\n");
    for commit in ["c0ffee", "0ld"] {
        let snapshot = repository.join("snapshots").join(commit);
        std::fs::create_dir_all(&snapshot).unwrap();
        symlink("../../blobs/1234", snapshot.join(format!("{commit}.gguf"))).unwrap();
    }
    let outside = root.join("models--org--outside/snapshots/1");
    put(&root.join("elsewhere.gguf"), bytes);
    std::fs::create_dir_all(&outside).unwrap();
    symlink(root.join("elsewhere.gguf"), outside.join("x.gguf")).unwrap();
    put(&root.join("datasets--org--x/snapshots/1/x.gguf"), bytes);
}

#[test]
fn caches_are_listed_and_read_in_place() {
    let rig = Rig::new("caches");
    let want = [
        "millrace-mini",
        "hf.co/org/repo:Q8_0",
        "org/repo-GGUF/c0ffee",
        "someone/tiny:latest",
        "tiny:1b",
    ];
    assert_eq!(
        rig.names(),
        want,
        "others are damaged, adapted, old, or links out of the cache"
    );
    for name in ["tiny:1b", "someone/tiny", "hf.co/org/repo:Q8_0", "c0ffee"] {
        let shown = stdout(&rig.millrace(&["show", name]));
        assert!(shown.contains("runs here: llama"), "{name}: {shown}");
    }
    for (name, want) in [
        (
            "tiny:1b",
            "temperature 0.3 (the model's), top_k 20 (the model's), top_p 0.95 (llama.cpp's), min_p 0.05 (llama.cpp's)",
        ),
        ("someone/tiny", "temperature 0.8 (llama.cpp's), top_k 40"),
    ] {
        let shown = stdout(&rig.millrace(&["show", name]));
        let want = format!("sampling defaults: {want}");
        assert!(shown.contains(&want), "{name}: {shown}");
    }
    let answer = ["run", "-m", "tiny:1b", "-n", "2", "--temp", "0", "Hello"];
    stdout(&rig.millrace(&answer));
    let mut off = rig.vars.clone();
    off.push(("MILLRACE_MODELS_CACHES", String::new()));
    let off: Vec<_> = off.iter().map(|(name, value)| (*name, &**value)).collect();
    let list = stdout(&millrace_with(&["ls"], &off));
    assert_eq!(list.lines().count(), 2, "{list}");
}

#[test]
fn caches_are_never_changed() {
    let rig = Rig::new("caches-stay");
    let vars: Vec<_> = rig
        .vars
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let serving = crate::support::Serving::start_with(
        &["serve", "tiny:1b", "--port", "0"],
        &vars,
        std::process::Stdio::null(),
    );
    let tags = serving.get("/api/tags");
    assert_eq!(
        tags.matches("\"tiny:1b\"").count(),
        2,
        "once, as name and as model: {tags}"
    );
    let props = serving.get("/props");
    for part in ["\"temperature\":0.3", "\"top_k\":20", "\"min_p\":0.05"] {
        assert!(
            props.contains(part),
            "{part} of Ollama's parameters: {props}"
        );
    }
    let shown = |name: &str| {
        let body = json!({"model": name}).to_string();
        serving.send("POST", "/api/show", "", &body)
    };
    assert!(shown("tiny:1b").contains("\\ntemperature 0.3\\ntop_k 20\\n"));
    assert!(shown("someone/tiny").contains("temperature 0.8\\ntop_k 40\\n"));
    let body = json!({"model": "c0ffee"}).to_string();
    let reply = serving.send("DELETE", "/api/delete", "", &body);
    assert!(
        reply.starts_with("HTTP/1.1 400") && reply.contains("another program"),
        "{reply}"
    );
    assert!(serving.terminate().success());
    let said = refusal(&rig.millrace(&["rm", "c0ffee"]));
    assert!(said.contains("another program"), "{said}");
    assert!(
        rig.folder
            .0
            .join("hub/models--org--repo-GGUF/blobs/1234")
            .is_file()
    );
}
