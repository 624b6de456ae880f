//! The settings file as a JSON Schema, for editors and for programs that write such files.
//!
//! Names, types and descriptions are those of the typed settings; bounds are the catalog's, which the
//! loader checks too. Conditions on several settings together are only in the descriptions.

use super::catalog::{self, Setting, Takes};
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
        "Everything is optional. x-reload: \"live\" = read again on SIGHUP; \"restart\" = at the start only."
    );
    let defaults = tree::of(&Settings::default());
    for (name, section) in schema_properties(&mut schema) {
        if !defaults.get(name).is_some_and(Value::is_object) {
            refine_field(section, name);
            continue;
        }
        if let Some(section) = section.as_object_mut() {
            section.remove("default");
        }
        for (key, field) in schema_properties(section) {
            refine_field(field, &format!("{name}.{key}"));
        }
    }
    schema
}

/// The schema of one key.
pub(super) fn field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let of = |schema: &'a Value, name: &str| schema.get("properties")?.get(name);
    match key.split_once('.') {
        Some((section, name)) => of(of(schema, section)?, name),
        None => of(schema, key),
    }
}

fn schema_properties(schema: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten()
}

/// Adds the catalog's bounds, and removes keywords that are useless in YAML.
fn refine_field(field: &mut Value, key: &str) {
    let (Some(field), Some(Setting { range, takes, .. })) =
        (field.as_object_mut(), catalog::of(key))
    else {
        return;
    };
    field.remove("format");
    if let Some((min, max)) = range {
        field.insert("minimum".to_owned(), json!(min));
        field.insert("maximum".to_owned(), json!(max));
    }
    let takes = match takes {
        Takes::Live => "live",
        Takes::Restart => "restart",
    };
    field.insert("x-reload".to_owned(), json!(takes));
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
