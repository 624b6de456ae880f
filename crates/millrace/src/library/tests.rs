//! A library in a temporary folder: the names that lead to models, and the names that must not.
//!
//! Promise (Models): no name reaches a path outside the directories: dots, absolute paths, percent-encodings, links,
//! hand-written records, paths named by a hub.
//! Also held by `millrace/src/model_store/name.rs`, `millrace/tests/it/models.rs`, `millrace/tests/it/pull/mod.rs`,
//! `millrace/tests/it/pull`.
//!
//! Promise (Models): a name of `models.named` has its own defaults, the weights are loaded once with the name's
//! settings, and deleting such a name deletes no file; each problem is named with model and field.
//! Also held by `millrace/src/config/named_models.rs`, `millrace/tests/it/models.rs`.

use super::*;
use crate::model_files::ModelSource;
use server::Library as _;
use std::fs;
use std::path::PathBuf;

struct Shelves {
    root: PathBuf,
}

impl Shelves {
    /// `models/`, the directory, beside `outside.gguf`.
    fn new(label: &str) -> Self {
        let name = format!("millrace-{}-library-{label}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // With names, so that more of them are not in the data of the user who runs the tests.
        fs::create_dir_all(root.join("models/names")).unwrap();
        let shelves = Self { root };
        shelves.model("outside.gguf");
        shelves
    }

    fn model(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = crate::commands::synth::in_memory("tiny-llama", "Q8_0").unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn library(&self) -> Library {
        self.started(ModelSource::built_in())
    }

    fn started(&self, place: ModelSource) -> Library {
        self.with_named(place, serde_json::json!({}))
    }

    /// A library with `models.named`.
    fn with_named(&self, place: ModelSource, named: serde_json::Value) -> Library {
        let mut settings = Settings::default();
        settings.models.named = serde_json::from_value(named).unwrap();
        settings.models.directories = vec![self.root.join("models")];
        settings.models.caches.clear();
        Library::new(settings, Some(place.into()))
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn names(library: &Library) -> Vec<String> {
    library.all().into_iter().map(|local| local.name).collect()
}

#[test]
fn files_are_models_named_by_path() {
    let shelves = Shelves::new("files");
    shelves.model("models/tiny.gguf");
    shelves.model("models/org/repo/deep.gguf");
    fs::write(shelves.root.join("models/broken.gguf"), b"GGUF").unwrap();
    fs::write(shelves.root.join("models/notes.txt"), b"no model").unwrap();
    let library = shelves.library();
    assert_eq!(names(&library), ["millrace-mini", "org/repo/deep", "tiny"]);
    for (typed, name) in [
        ("tiny", Some("tiny")),
        ("tiny:latest", Some("tiny")),
        ("org/repo/deep", Some("org/repo/deep")),
        ("deep", Some("org/repo/deep")),
        ("millrace-mini", Some("millrace-mini")),
        ("broken", None),
        ("tiny.gguf", None),
        ("notes", None),
        ("tin", None),
    ] {
        let found = library.find(typed).map(|local| local.name);
        assert_eq!(found.as_deref(), name, "{typed}");
    }
    let tiny = library.find("tiny").unwrap();
    assert_eq!(tiny.facts.family, "llama");
    assert!(tiny.facts.file_bytes > 0 && tiny.facts.parameters > 0);
}

#[test]
fn name_outside_the_directories_is_not_found() {
    let shelves = Shelves::new("outside");
    shelves.model("models/tiny.gguf");
    let outside = shelves.root.join("outside.gguf");
    let models = shelves.root.join("models");
    std::os::unix::fs::symlink(&outside, models.join("linked.gguf")).unwrap();
    std::os::unix::fs::symlink(&shelves.root, models.join("up")).unwrap();
    std::os::unix::fs::symlink(models.join("tiny.gguf"), models.join("alias.gguf")).unwrap();
    // Records that were edited by hand.
    for (i, file) in [
        "../outside.gguf",
        "up/outside.gguf",
        "linked.gguf",
        "/etc/passwd",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let record = serde_json::json!({ "file": file }).to_string();
        fs::write(models.join(format!("names/sly{i}.json")), record).unwrap();
    }
    let library = shelves.library();
    let absolute = outside.with_extension("").display().to_string();
    let with_ending = outside.display().to_string();
    for typed in [
        "linked",
        "up/outside",
        "outside",
        "../outside",
        "../outside.gguf",
        "models/../../outside",
        "./tiny",
        "names/../tiny",
        "%2e%2e/outside",
        "..%2foutside",
        "..%2Foutside",
        "tiny/../../outside",
        "sly0",
        "sly1",
        "sly2",
        "sly3",
        "sly4",
        "tiny\0",
        &absolute,
        &with_ending,
    ] {
        assert!(library.find(typed).is_none(), "{typed:?}");
        assert!(library.copy(typed, "mine").is_err(), "{typed:?}");
        assert!(library.delete(typed).is_err(), "{typed:?}");
    }
    for name in ["../x", "/x", "a/../../x", "..", "a%2f..", "a b", ""] {
        assert!(library.copy("tiny", name).is_err(), "{name:?}");
    }
    assert!(outside.exists(), "and nothing was taken away");
    // A link that stays inside is as good as a file.
    assert_eq!(
        library.find("alias").unwrap().weights,
        library.find("tiny").unwrap().weights
    );
}

#[test]
fn names_are_copied_derived_and_deleted() {
    let shelves = Shelves::new("names");
    let file = shelves.model("models/tiny.gguf");
    let library = shelves.library();
    library.copy("tiny", "team/short:v1").unwrap();
    let made = |parent: &str, system: &str| DerivedModel {
        parent: parent.to_owned(),
        system: Some(system.to_owned()),
        ..DerivedModel::default()
    };
    library
        .make("brief", made("team/short:v1", "Be brief."))
        .unwrap();
    library.make("brisk", made("brief", "Be quick.")).unwrap();
    // The file itself goes by the copy's name now.
    assert_eq!(
        names(&library),
        ["millrace-mini", "brief", "brisk", "team/short:v1"]
    );
    let brisk = library.find("brisk:latest").unwrap();
    assert_eq!(
        brisk.weights.as_deref(),
        file.canonicalize().unwrap().to_str()
    );
    let made_of = brisk.made.unwrap();
    assert_eq!(
        (made_of.parent.as_str(), made_of.system.as_deref()),
        ("brief", Some("Be quick."))
    );
    assert!(matches!(
        library.copy("nobody", "x"),
        Err(LibraryError::Unknown(_))
    ));
    for taken in ["millrace-mini", "with space"] {
        assert!(matches!(
            library.copy("tiny", taken),
            Err(LibraryError::Invalid(_))
        ));
    }
    assert!(matches!(
        library.delete("millrace-mini"),
        Err(LibraryError::Invalid(_))
    ));
    library.delete("team/short:v1").unwrap();
    library.delete("brief").unwrap();
    assert!(file.exists(), "one name is left");
    library.delete("brisk").unwrap();
    assert!(!file.exists(), "and then none");
    assert_eq!(names(&library), ["millrace-mini"]);
}

#[test]
fn model_of_the_start_is_listed() {
    let shelves = Shelves::new("started");
    let file = shelves.model("models/tiny.gguf");
    let library = shelves.started(ModelSource::of_file("served".to_owned(), file.clone()));
    assert_eq!(names(&library), ["served", "millrace-mini"]);
    for name in ["served", "served:latest", "tiny"] {
        assert_eq!(
            library.find(name).unwrap().weights,
            None,
            "{name}: loaded once"
        );
    }
    assert!(library.find("millrace-mini").unwrap().weights.is_some());
    assert!(library.delete("served").is_err());
    library.copy("served", "other").unwrap();
    library.delete("other").unwrap();
    assert!(file.exists(), "what runs keeps its file");
    let needed = library.bytes_needed(None).unwrap();
    assert!(needed > library.find("served").unwrap().facts.file_bytes);
}

#[test]
fn names_of_the_settings_have_defaults_of_their_own() {
    let shelves = Shelves::new("named");
    let file = shelves.model("models/org/tiny.gguf");
    let library = shelves.with_named(
        ModelSource::built_in(),
        serde_json::json!({
            "brief": {"from": "tiny", "system": "Be brief.", "parameters": {"top_k": 3}},
            "org/tiny": {"context": 64, "parameters": {"top_k": 5}},
            "nobody": {"from": "no-such-model"},
            "millrace-mini": {"parameters": {"temperature": 0}},
        }),
    );
    assert_eq!(names(&library), ["millrace-mini", "org/tiny", "brief"]);
    for (typed, name, top_k) in [
        ("brief", "brief", 3),
        ("brief:latest", "brief", 3),
        ("org/tiny", "org/tiny", 5),
        ("tiny", "org/tiny", 5),
    ] {
        let found = library.find(typed).unwrap();
        assert_eq!(found.name, name, "{typed}");
        assert_eq!(found.made.unwrap().options["top_k"], top_k, "{typed}");
    }
    assert!(library.find("nobody").is_none());
    let started = library.started_defaults().unwrap();
    assert_eq!(started.options["temperature"], 0);
    // Both names are one file, which is loaded with the settings of the name without `from`.
    let (brief, tiny) = (
        library.find("brief").unwrap(),
        library.find("tiny").unwrap(),
    );
    assert_eq!(brief.weights, tiny.weights);
    let loaded = library
        .load(brief.weights.as_deref(), &mut |_| {})
        .ok()
        .unwrap();
    assert_eq!(loaded.model.handle.context_max, 64);
    (loaded.close)();
    for name in ["brief", "brief:latest"] {
        let why = library.delete(name).unwrap_err().to_string();
        assert!(why.contains("models.named"), "{why}");
    }
    assert!(file.exists(), "a name in the settings is no file");
    library.delete("org/tiny").unwrap();
    assert!(!file.exists());
}

#[test]
fn chat_template_of_the_settings_replaces_the_model_s() {
    let shelves = Shelves::new("template");
    shelves.model("models/tiny.gguf");
    let path = shelves.root.join("own.jinja");
    let load = |text: &str| {
        fs::write(&path, text).unwrap();
        let named = serde_json::json!({"tiny": {"chat_template": path}});
        let library = shelves.with_named(ModelSource::built_in(), named);
        let weights = library.find("tiny").unwrap().weights;
        library.load(weights.as_deref(), &mut |_| {})
    };
    let loaded = load("{{ messages[0].content }}!").ok().unwrap();
    let template = loaded.model.facts.template.clone();
    assert_eq!(template.as_deref(), Some("{{ messages[0].content }}!"));
    (loaded.close)();
    for (broken, why_of) in [("{% if %}", "no valid chat template"), ("\n ", "blank")] {
        let Err(LoadError::Failed(why)) = load(broken) else {
            panic!("a broken template: {broken:?}");
        };
        assert!(why.contains("own.jinja") && why.contains(why_of), "{why}");
    }
}

#[test]
fn start_model_is_one_model_before_and_after_it_was_chosen() {
    let shelves = Shelves::new("start-model");
    let library = shelves.library();
    let same = |one, other| library.is_same_model(one, other);
    assert!(same(Some("a"), Some("a")) && same(None, None));
    assert!(!same(Some("a"), None) && !same(Some("a"), Some("b")));
    library.start_weights.set(Some("a".to_owned())).unwrap();
    assert!(same(Some("a"), None) && same(None, Some("a")) && same(Some("a"), Some("a")));
    assert!(!same(Some("b"), None) && !same(Some("b"), Some("a")) && same(Some("b"), Some("b")));
}
