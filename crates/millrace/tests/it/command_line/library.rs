//! `list`, `ps`, `stop`, `show`, `cp`, `rm`, and pulls by `run`: the models of this machine and of a running server.
//!
//! Promise (Models): `millrace rm` removes what `pull` downloaded, a file with its last name, and no other file.

use super::refusal;
use crate::support::hub::{Hub, Manners};
use crate::support::{Folder, Serving, millrace, millrace_with, stdout};
use serde_json::json;
use std::path::Path;
use std::process::Output;
use testing::wait::wait_until;

/// A directory of models, and a hub with one more.
struct Rig {
    folder: Folder,
    _hub: Hub,
    vars: Vec<(&'static str, String)>,
}

impl Rig {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let mine = folder.0.join("mine.gguf");
        stdout(&millrace(&["synth", &mine.display().to_string()]));
        let files = vec![("Tiny-Q8_0.gguf", std::fs::read(mine).unwrap())];
        let hub = Hub::start(files, Manners::default());
        let vars = vec![
            ("HF_ENDPOINT", hub.url()),
            ("MILLRACE_MODELS_DIRECTORIES", json!([folder.0]).to_string()),
        ];
        let rig = Self {
            folder,
            _hub: hub,
            vars,
        };
        stdout(&rig.millrace(&["pull", "org/repo:Q8_0"]));
        rig
    }

    fn millrace(&self, args: &[&str]) -> Output {
        let vars: Vec<_> = self
            .vars
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        millrace_with(args, &vars)
    }

    fn names(&self) -> Vec<String> {
        let list = stdout(&self.millrace(&["ls"]));
        let words = |line: &str| {
            line.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        list.lines().skip(1).map(words).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.folder.0.join(path).exists()
    }
}

#[test]
fn list_has_name_size_quantization_and_age() {
    let rig = Rig::start("listed");
    let list = stdout(&rig.millrace(&["list"]));
    let names = |list: &str| -> Vec<String> {
        let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        list.lines().map(first).collect()
    };
    assert_eq!(names(&list), names(&stdout(&rig.millrace(&["models"]))));
    let mut lines = list.lines();
    let head: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "SIZE", "QUANTIZATION", "FAMILY", "MODIFIED"]);
    let pulled = lines
        .find(|line| line.starts_with("org/repo:Q8_0 "))
        .unwrap();
    assert!(
        pulled.contains("iB  Q8_0 ") && pulled.ends_with(" ago"),
        "{pulled}"
    );
    assert_eq!(rig.names(), ["millrace-mini", "org/repo:Q8_0", "mine"]);
}

#[test]
fn model_is_shown_by_its_name() {
    let rig = Rig::start("shown");
    for name in ["mine", "org/repo:Q8_0"] {
        let shown = stdout(&rig.millrace(&["show", name]));
        assert!(
            shown.starts_with("GGUF v3") && shown.contains("runs here: llama"),
            "{shown}"
        );
    }
    let mini = stdout(&millrace(&["show", "millrace-mini"]));
    assert!(mini.contains("general.architecture"), "{mini}");
}

#[test]
fn rm_removes_pulled_files_only() {
    let rig = Rig::start("removed");
    for (name, why) in [
        ("mine", "mine was not pulled: remove its file yourself"),
        ("millrace-mini", "is built in"),
        ("../mine.gguf", "no such file, and no model"),
        ("nobody", "no such file, and no model"),
    ] {
        let said = refusal(&rig.millrace(&["rm", name]));
        assert!(said.contains(why), "{name}: {said}");
    }
    assert!(rig.has("mine.gguf") && rig.has("org/repo/Tiny-Q8_0.gguf"));
    let removed = stdout(&rig.millrace(&["rm", "org/repo:Q8_0"]));
    assert_eq!(removed, "removed org/repo:Q8_0\n");
    assert!(
        !rig.has("org") && rig.has("mine.gguf"),
        "with its empty folders"
    );
    assert_eq!(rig.names(), ["millrace-mini", "mine"]);
}

#[test]
fn pulled_file_is_removed_with_its_last_name() {
    let rig = Rig::start("names");
    let vars: Vec<_> = rig
        .vars
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let serving = Serving::start_with(
        &["serve", "millrace-mini", "--port", "0"],
        &vars,
        std::process::Stdio::null(),
    );
    for (from, to) in [("org/repo:Q8_0", "copy"), ("mine", "alias")] {
        let body = json!({"source": from, "destination": to}).to_string();
        let reply = serving.post("/api/copy", &body);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    assert!(serving.terminate().success());
    let file = "org/repo/Tiny-Q8_0.gguf";
    let rows = [
        ("alias", "`pull` did not fetch its file, which stays", true),
        ("org/repo:Q8_0", "copy has the same file", true),
        ("copy", "removed copy\n", false),
    ];
    for (name, words, stays) in rows {
        let said = stdout(&rig.millrace(&["rm", name]));
        assert!(said.contains(words), "{said}");
        assert_eq!(rig.has(file), stays, "{name}");
    }
    assert!(rig.has("mine.gguf"));
}

#[test]
fn name_without_its_file_is_removable() {
    let rig = Rig::start("stale");
    std::fs::remove_dir_all(rig.folder.0.join("org")).unwrap();
    stdout(&rig.millrace(&["rm", "org/repo:Q8_0"]));
    let records = std::fs::read_dir(Path::new(&rig.folder.0).join("names")).unwrap();
    assert_eq!(records.count(), 0);
}

#[test]
fn ps_lists_loaded_models_of_a_running_server() {
    let serving = Serving::start(&["serve", "--port", "0"]);
    let url = serving.url();
    let authority = url.trim_start_matches("http://").to_owned();
    let port = authority.rsplit(':').next().unwrap().to_owned();
    for spelled in [&url, &authority, &port] {
        let shown = stdout(&millrace(&["ps", "--url", spelled]));
        let line = shown.lines().nth(1).unwrap();
        assert!(
            line.starts_with("millrace-mini:latest ") && line.ends_with("never"),
            "{shown}"
        );
    }
    let bind = [("MILLRACE_SERVER_BIND", authority.as_str())];
    assert!(stdout(&millrace_with(&["ps"], &bind)).contains("millrace-mini"));
    assert!(serving.terminate().success());
    let said = refusal(&millrace(&["ps", "--url", &url]));
    assert!(
        said.contains("no server answers at") && said.contains("`millrace serve`"),
        "{said}"
    );
}

#[test]
fn stopped_model_is_loaded_no_longer() {
    let serving = Serving::start(&["serve", "--port", "0"]);
    let url = serving.url();
    let stopped = stdout(&millrace(&["stop", "millrace-mini", "--url", &url]));
    assert!(stopped.starts_with("millrace-mini"), "{stopped}");
    wait_until("it is unloaded", || {
        stdout(&millrace(&["ps", "--url", &url])).lines().count() == 1
    });
    let said = refusal(&millrace(&["stop", "nobody", "--url", &url]));
    assert!(said.contains("404") && said.contains("nobody"), "{said}");
    assert!(serving.terminate().success());
}

#[test]
fn copied_name_has_the_same_file() {
    let rig = Rig::start("copied");
    assert_eq!(
        stdout(&rig.millrace(&["cp", "mine", "other:v1"])),
        "other:v1 is mine\n"
    );
    assert_eq!(
        rig.names(),
        ["millrace-mini", "org/repo:Q8_0", "other:v1"],
        "a file with a name is listed by that name"
    );
    for (from, to, why) in [
        ("nobody", "x", "no such file, and no model"),
        ("mine", "../x", "a model's name has"),
        ("mine", "millrace-mini", "is built in"),
    ] {
        let said = refusal(&rig.millrace(&["cp", from, to]));
        assert!(said.contains(why), "{from} {to}: {said}");
    }
}

#[test]
fn absent_model_is_pulled_by_run() {
    let rig = Rig::start("run-pulls");
    stdout(&rig.millrace(&["rm", "org/repo:Q8_0"]));
    let name = "hf.co/org/repo:Q8_0";
    let run = |args: &[&str]| rig.millrace(&[args, &["-n", "2", "--temp", "0"]].concat());
    let first = run(&["run", name, "Hello"]);
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(
        said.contains("is not on this machine: pulling it"),
        "{said}"
    );
    let answer = stdout(&first);
    assert!(rig.names().contains(&name.to_owned()));
    let second = run(&["run", "-m", name, "Hello"]);
    assert!(second.stderr.is_empty(), "it is there already");
    assert_eq!(stdout(&second), answer);
    let said = refusal(&run(&["run", "hf.co/org/other:Q8_0", "Hello"]));
    assert!(said.contains("pulling it failed"), "{said}");
}
