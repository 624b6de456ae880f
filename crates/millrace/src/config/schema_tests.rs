//! Promise (Settings and operation): the JSON Schema and the loader agree on every range, on the defaults and on
//! every preset.
//!
//! Promise (Settings and operation): `deploy/settings.schema.json` and the tables of `docs/settings.md` are those of
//! the code.
//!
//! Promise (Settings and operation): every default has its reason in the table of `docs/settings.md`.

use super::super::catalog::{SETTINGS, Setting};
use super::super::{Config, ConfigError, Layers, Preset, table};
use super::*;
use std::path::PathBuf;

/// A file of the project, from its root.
fn project(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The loader and the schema, to be compared on one file.
struct Twins {
    schema: jsonschema::Validator,
    folder: PathBuf,
}

impl Twins {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            schema: jsonschema::validator_for(&schema()).unwrap(),
            folder,
        }
    }

    fn load(&self, file: &Value) -> Result<Config, ConfigError> {
        let path = self.folder.join("settings.yaml");
        std::fs::write(&path, serde_saphyr::to_string(file).unwrap()).unwrap();
        Layers::defaults().file(&path).finish()
    }

    /// Checks that loader and schema agree; returns the error of the loader.
    fn agree(&self, label: &str, file: &Value) -> Option<String> {
        let refused = self.load(file).err().map(|error| error.to_string());
        let accepts = self.schema.is_valid(file);
        assert_eq!(accepts, refused.is_none(), "{label}: {file} {refused:?}");
        refused
    }
}

impl Drop for Twins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn file(key: &str, value: &Value) -> Value {
    match key.split_once('.') {
        Some((section, name)) => json!({ section: file(name, value) }),
        None => json!({ key: value }),
    }
}

#[test]
fn each_setting_is_described_completely() {
    let defaults = tree::leaves(&tree::of(&Settings::default()));
    let keys: Vec<_> = SETTINGS
        .iter()
        .map(|setting| setting.key.as_str())
        .collect();
    let known: Vec<_> = defaults.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, known);
    for Setting { key, field, .. } in SETTINGS.iter() {
        let word = |name: &str| field[name].as_str().unwrap_or_default();
        let reason = word("x-reason");
        assert!(!word("description").is_empty(), "{key}: {field}");
        assert!(["live", "restart"].contains(&word("x-reload")), "{key}");
        assert!(
            !reason.is_empty() && !reason.contains('|'),
            "{key}: {reason}"
        );
    }
    for Setting {
        key, range, field, ..
    } in SETTINGS.iter()
    {
        let is_number = field["type"].to_string().contains("integer");
        assert_eq!(
            is_number,
            range.is_some(),
            "{key}: a number has both bounds"
        );
    }
}

#[test]
fn defaults_and_presets_are_accepted_by_both() {
    let twins = Twins::new("accepted");
    let defaults = Value::Object(tree::of(&Settings::default()));
    assert_eq!(twins.agree("defaults", &defaults), None);
    for preset in Preset::ALL {
        let layer = Value::Object(preset.layer().unwrap());
        assert_eq!(twins.agree(preset.name(), &layer), None);
        let named = twins.load(&json!({ "preset": preset.name() })).unwrap();
        let itself = twins.load(&layer).unwrap();
        assert_eq!(named.settings.preset, Some(preset));
        for Setting { key, .. } in SETTINGS.iter().filter(|setting| setting.key != "preset") {
            let of = |config: &Config| tree::get(&tree::of(&config.settings), key).cloned();
            assert_eq!(of(&named), of(&itself), "{}: {key}", preset.name());
        }
    }
}

#[test]
fn value_out_of_bounds_is_rejected_by_both_and_named() {
    let twins = Twins::new("bounds");
    for setting in SETTINGS.iter() {
        let Some((min, max)) = setting.range else {
            continue;
        };
        let key = setting.key.as_str();
        for value in [Some(max + 1), min.checked_sub(1)].into_iter().flatten() {
            let why = twins.agree(key, &file(key, &json!(value)));
            let why = why.unwrap_or_else(|| panic!("{key}: {value} was taken"));
            assert!(
                why.contains(key) && why.contains(&format!("must be {min} to {max}")),
                "{why}"
            );
        }
        for value in [json!(-1), json!("many"), json!(1.5), json!([1])] {
            let why = twins.agree(key, &file(key, &value)).unwrap_or_default();
            assert!(why.contains(key), "{key}: {value}: {why}");
        }
        // At the ends themselves only what other settings say can stand in the way.
        for value in [min, max] {
            let field = file(key, &json!(value));
            assert!(twins.schema.is_valid(&field), "{key}: {value}");
            let why = twins.load(&field).err().map(|error| error.to_string());
            assert!(!why.unwrap_or_default().contains("..="), "{key}: {value}");
        }
    }
}

#[test]
fn invalid_number_is_rejected_by_both() {
    let twins = Twins::new("others");
    let rows = [
        ("no section", json!({"sever": {"bind": "127.0.0.1:1"}})),
        ("no key", json!({"server": {"bnid": "127.0.0.1:1"}})),
        ("section is no map", json!({"server": 3})),
        ("preset", file("preset", &json!("fast"))),
        ("preset is a section", json!({"preset": {"chat": true}})),
        ("bind", file("server.bind", &json!("somewhere"))),
        ("bind with a letter", file("server.bind", &json!("80a"))),
        ("bind beyond ports", file("server.bind", &json!(65536))),
        ("bind to a list", file("server.bind", &json!(["::1"]))),
        ("hosts", file("server.hosts", &json!("gpu.lan"))),
        ("no_auth", file("server.no_auth", &json!("yes"))),
        ("enabled", file("adaptive_limits.enabled", &json!(1))),
        ("policy", file("backpressure.policy", &json!("drop"))),
        ("path", file("model.path", &json!(["a"]))),
        ("filter", file("log.filter", &json!(3))),
    ];
    for (label, file) in rows {
        assert!(twins.agree(label, &file).is_some(), "{label}");
    }
}

#[test]
fn address_in_each_spelling_is_accepted_by_both() {
    let twins = Twins::new("addresses");
    let rows = [
        json!(8605),
        json!("8605"),
        json!(":8605"),
        json!("localhost"),
        json!("localhost:8605"),
        json!("127.0.0.1"),
        json!("[::1]:8605"),
        json!("::1"),
    ];
    for value in rows {
        assert_eq!(twins.agree("bind", &file("server.bind", &value)), None);
    }
}

/// `millrace config schema > deploy/settings.schema.json`
#[test]
fn published_schema_equals_the_generated_schema() {
    let kept: Value = serde_json::from_str(&project("deploy/settings.schema.json")).unwrap();
    assert_eq!(
        kept,
        schema(),
        "millrace config schema > deploy/settings.schema.json"
    );
}

/// `millrace config table` prints the end of the file.
#[test]
fn documentation_lists_each_setting_and_preset() {
    let (docs, table) = (project("docs/settings.md"), table());
    assert!(
        docs.ends_with(&table),
        "docs/settings.md should end with:\n{table}"
    );
}
