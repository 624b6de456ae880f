//! Settings as a tree of JSON values, by dotted keys: a section and a name, or a name alone.

use super::Settings;
use serde_json::{Map, Value};

/// All settings as a tree.
pub(crate) fn of(settings: &Settings) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(tree)) => tree,
        _ => Map::new(),
    }
}

/// The value of a key; `None`: there is no such setting.
pub(crate) fn get<'a>(tree: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, name)) => tree.get(section)?.get(name),
        None => tree.get(key).filter(|value| !value.is_object()),
    }
}

/// A mutable reference to a key's value.
pub(crate) fn place<'a>(tree: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Value> {
    match key.split_once('.') {
        Some((section, name)) => tree.get_mut(section)?.get_mut(name),
        None => tree.get_mut(key).filter(|value| !value.is_object()),
    }
}

/// All keys with their values.
pub(crate) fn leaves(tree: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut leaves = Vec::new();
    for (name, value) in tree {
        match value.as_object() {
            Some(section) => {
                let key =
                    |(key, value): (&String, &Value)| (format!("{name}.{key}"), value.clone());
                leaves.extend(section.iter().map(key));
            }
            None => leaves.push((name.clone(), value.clone())),
        }
    }
    leaves
}
