//! Laying partial settings over each other.
//!
//! A layer is a tree of JSON objects that holds only what it sets. All known keys are those of the
//! defaults, so a layer with a key that the defaults lack is refused by name; the typed settings
//! are read from the merged tree once.

use super::{Origin, Settings, api_keys, check, environment, file};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Everything that is wrong with a configuration, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

/// Checked settings and where each came from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// By dotted key, such as `server.bind`.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// From the environment: there they are, and not in the settings, because those are shown.
    pub(crate) api_keys: Vec<server::Key>,
}

/// Settings in the making: the layers laid so far.
pub(crate) struct Layers {
    tree: Map<String, Value>,
    origins: BTreeMap<String, Origin>,
    api_keys: Vec<server::Key>,
    problems: Vec<String>,
}

impl Layers {
    /// The lowest layer.
    pub(crate) fn defaults() -> Self {
        let tree = match serde_json::to_value(Settings::default()) {
            Ok(Value::Object(tree)) => tree,
            _ => Map::new(),
        };
        let mut layers = Self {
            tree,
            origins: BTreeMap::new(),
            api_keys: Vec::new(),
            problems: Vec::new(),
        };
        for (key, _) in layers.leaves() {
            layers.origins.insert(key, Origin::Default);
        }
        layers
    }

    /// Lays a YAML (or JSON) file on top.
    pub(crate) fn file(mut self, path: &Path) -> Self {
        match file::read(path) {
            Ok(tree) => self.lay(&tree, &Origin::File(path.display().to_string())),
            Err(why) => self.problems.push(why),
        }
        self
    }

    /// Lays the environment's `MILLRACE_*` variables on top.
    pub(crate) fn environment(mut self, vars: impl Iterator<Item = (String, String)>) -> Self {
        let known = self.leaves();
        for (name, text) in vars {
            if name == api_keys::VARIABLE {
                match api_keys::parse(&text) {
                    Ok(keys) => self.api_keys = keys,
                    Err(why) => self.problems.push(why),
                }
            }
            if !environment::is_setting(&name) {
                continue;
            }
            match environment::setting(&known, &name, &text) {
                Ok((key, value)) => self.set(&key, value, &Origin::Environment(name)),
                Err(why) => self.problems.push(why),
            }
        }
        self
    }

    /// Lays one flag on top, if it was given.
    pub(crate) fn flag<T: serde::Serialize>(mut self, key: &str, value: Option<&T>) -> Self {
        let Some(value) = value else { return self };
        match serde_json::to_value(value) {
            Ok(value) => self.set(key, value, &Origin::Flag),
            Err(why) => self.problems.push(format!("{key}: {why}")),
        }
        self
    }

    /// Reads and checks the settings; all problems at once.
    ///
    /// # Errors
    /// Unknown keys, wrong types and values out of bounds, each with its key and its origin.
    pub(crate) fn finish(mut self) -> Result<Config, ConfigError> {
        let tree = Value::Object(self.tree);
        let settings = match serde_path_to_error::deserialize::<_, Settings>(tree) {
            Ok(settings) => settings,
            Err(why) => {
                let key = why.path().to_string();
                let origin = self
                    .origins
                    .get(&key)
                    .map(|o| format!(" ({o})"))
                    .unwrap_or_default();
                self.problems
                    .push(format!("{key}{origin}: {}", why.inner()));
                return Err(ConfigError(self.problems));
            }
        };
        let keyed = settings.keys.file.is_some() || !self.api_keys.is_empty();
        for (key, why) in check::problems(&settings, keyed) {
            let origin = self.origins.get(key).unwrap_or(&Origin::Default);
            self.problems.push(format!("{key} ({origin}): {why}"));
        }
        if self.problems.is_empty() {
            Ok(Config {
                settings,
                origins: self.origins,
                api_keys: self.api_keys,
            })
        } else {
            Err(ConfigError(self.problems))
        }
    }

    /// Every known key with its present value.
    fn leaves(&self) -> Vec<(String, Value)> {
        let mut leaves = Vec::new();
        for (section, keys) in &self.tree {
            for (key, value) in keys.as_object().into_iter().flatten() {
                leaves.push((format!("{section}.{key}"), value.clone()));
            }
        }
        leaves
    }

    fn lay(&mut self, layer: &Map<String, Value>, origin: &Origin) {
        for (section, keys) in layer {
            let Some(keys) = keys.as_object() else {
                self.problems.push(format!(
                    "{section} ({origin}): must be a section of settings"
                ));
                continue;
            };
            for (key, value) in keys {
                self.set(&format!("{section}.{key}"), value.clone(), origin);
            }
        }
    }

    fn set(&mut self, key: &str, value: Value, origin: &Origin) {
        let place = key
            .split_once('.')
            .and_then(|(section, key)| self.tree.get_mut(section)?.get_mut(key));
        match place {
            Some(place) => {
                *place = value;
                self.origins.insert(key.to_owned(), origin.clone());
            }
            None => self
                .problems
                .push(format!("{key} ({origin}): there is no such setting")),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration has problems:")?;
        self.0
            .iter()
            .try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
