//! Settings as a tree of JSON values, by dotted keys: sections and a name, or a name alone.

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
        Some((section, name)) => within(tree.get(section)?, name),
        None => tree.get(key).filter(|value| !value.is_object()),
    }
}

fn within<'a>(section: &'a Value, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((inner, name)) => within(section.get(inner)?, name),
        None => section.get(key),
    }
}

/// A mutable reference to a key's value.
pub(crate) fn place<'a>(tree: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Value> {
    match key.split_once('.') {
        Some((section, name)) => {
            let mut section = tree.get_mut(section)?;
            let mut name = name;
            while let Some((inner, rest)) = name.split_once('.') {
                (section, name) = (section.get_mut(inner)?, rest);
            }
            section.get_mut(name)
        }
        None => tree.get_mut(key).filter(|value| !value.is_object()),
    }
}

/// Whether a value of the defaults is a section, and no setting: the default of a map is an empty one.
pub(crate) fn is_section(value: &Value) -> bool {
    value.as_object().is_some_and(|section| !section.is_empty())
}

/// All keys of the defaults with their values.
pub(crate) fn leaves(defaults: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut leaves = Vec::new();
    for (name, value) in defaults {
        match value.as_object().filter(|_| is_section(value)) {
            Some(section) => {
                let inner = self::leaves(section).into_iter();
                leaves.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            None => leaves.push((name.clone(), value.clone())),
        }
    }
    leaves
}
