//! The settings file as a JSON Schema, for editors and for programs that write such files.
//!
//! Names, types, bounds and descriptions are those of the typed settings, which the loader checks, too. Conditions on several
//! settings together are only in the descriptions.

use super::{Settings, environment, tree};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of a settings file.
pub(crate) fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<Settings>();
    let mut schema = Value::from(schema);
    schema["title"] = json!("Settings of a millrace server");
    schema["description"] = json!(
        "Everything is optional. x-reload: \"live\" = read again on SIGHUP; \"restart\" = at the start only. x-reason: why the default is what it is."
    );
    let defaults = tree::of(&Settings::default());
    for (name, section) in schema_properties(&mut schema) {
        refine(section, name, defaults.get(name));
    }
    schema
}

/// Refines a setting, or all settings of a section.
fn refine(schema: &mut Value, key: &str, default: Option<&Value>) {
    let Some(defaults) = default.filter(|default| tree::is_section(default)) else {
        return refine_field(schema, key);
    };
    if let Some(section) = schema.as_object_mut() {
        section.remove("default");
    }
    for (name, field) in schema_properties(schema) {
        refine(field, &format!("{key}.{name}"), defaults.get(name));
    }
}

/// Each key with its schema, in the order of the file's sections.
pub(super) fn fields(schema: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    for (name, section) in properties(schema) {
        if section.get("x-reload").is_some() {
            all.push((name.clone(), section));
            continue;
        }
        let inner = fields(section).into_iter();
        all.extend(inner.map(|(key, field)| (format!("{name}.{key}"), field)));
    }
    all
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten()
}

fn schema_properties(schema: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten()
}

/// Adds the variable of a key, and removes keywords that are useless in YAML.
fn refine_field(field: &mut Value, key: &str) {
    let Some(field) = field.as_object_mut() else {
        return;
    };
    field.remove("format");
    field.insert(
        "x-environment".to_owned(),
        json!(environment::variable(key)),
    );
    one_line(field);
}

/// Removes line breaks of the source from a description.
fn one_line(field: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = field.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
