//! Every setting and every preset as Markdown, for `docs/settings.md`.

use super::catalog::{SETTINGS, Setting};
use super::{Preset, Settings, tree};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The tables of settings and presets.
pub(crate) fn table() -> String {
    let defaults = tree::of(&Settings::default());
    let mut out = String::from(
        "## Every setting\n\n\
         | key | default | bound | on SIGHUP | meaning | why this default |\n|---|---|---|---|---|---|\n",
    );
    for setting in SETTINGS.iter() {
        let Setting { key, field, .. } = setting;
        let default = shown_value(tree::get(&defaults, key));
        let word = |name: &str| field[name].as_str().unwrap_or_default();
        let (takes, meaning, why) = (word("x-reload"), word("description"), word("x-reason"));
        let bound = shown_bound(setting);
        put_line(
            &mut out,
            format_args!("| `{key}` | {default} | {bound} | {takes} | {meaning} | {why} |"),
        );
    }
    preset_table(&mut out, &defaults);
    out
}

fn preset_table(out: &mut String, defaults: &Map<String, Value>) {
    let layers = Preset::ALL.map(|preset| preset.layer().unwrap_or_default());
    out.push_str("\n## What each preset sets\n\n| key | default |");
    for preset in Preset::ALL {
        out.push_str(&format!(" `{}` |", preset.name()));
    }
    put_line(
        out,
        format_args!("\n|---|---|{}", "---|".repeat(layers.len())),
    );
    for Setting { key, .. } in SETTINGS.iter() {
        let values: Vec<_> = layers.iter().map(|layer| tree::get(layer, key)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let cells: Vec<_> = values
            .iter()
            .map(|value| value.map_or_else(String::new, |value| shown_value(Some(value))))
            .collect();
        let default = shown_value(tree::get(defaults, key));
        put_line(
            out,
            format_args!("| `{key}` | {default} | {} |", cells.join(" | ")),
        );
    }
}

fn put_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{line}");
}

fn shown_value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "–".to_owned(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
    }
}

/// A range, or the possible values.
fn shown_bound(setting: &Setting) -> String {
    if let Some((min, max)) = setting.range {
        return format!("{min} … {max}");
    }
    let mut words = Vec::new();
    words_of(&setting.field, &mut words);
    match words.as_slice() {
        [] => "–".to_owned(),
        words => words.join(", "),
    }
}

/// Constants of an enumeration at any depth of the schema.
fn words_of(field: &Value, words: &mut Vec<String>) {
    if let Some(word) = field["const"].as_str() {
        words.push(format!("`{word}`"));
    }
    for list in ["oneOf", "anyOf"] {
        let inner = field[list].as_array();
        inner
            .into_iter()
            .flatten()
            .for_each(|inner| words_of(inner, words));
    }
}
