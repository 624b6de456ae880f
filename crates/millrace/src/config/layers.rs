//! Layers of partial settings, merged.
//!
//! A layer is a tree of JSON objects with only the keys that the layer sets. The known keys are those of the defaults: any
//! other key is an error. The typed settings are read from the merged tree once.

use super::problem_words::{did_you_mean, plain_words};
use super::{
    Origin, Preset, SecretTexts, Settings, api_keys, bind, check, environment, file, tree, webhooks,
};
use crate::logging;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The setting that decides the form of errors, too, those of other settings included.
const JSON_LOG: &str = "log.json";

/// The setting whose empty text means that there is none.
const EMPTY_IS_OFF: &str = "journal.directory";

/// All problems of a configuration, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

/// Checked settings and the origin of each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// By dotted key, such as `server.bind`.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// From the environment: there they are, and not in the settings, because those are shown.
    pub(crate) api_keys: Vec<server::Key>,
    /// Secrets of events for webhooks, of the environment.
    pub(crate) webhook_secrets: SecretTexts,
    /// Variables of the environment that Kubernetes made for services, and that are no settings.
    pub(super) service_links: usize,
}

impl Config {
    /// One line about the variables that are ignored, if there are some.
    pub(crate) fn ignored(&self) -> Option<String> {
        let links = self.service_links;
        (links > 0).then(|| {
            format!(
                "{links} MILLRACE_* variables are ignored: Kubernetes made them for services of this namespace \
                 (a pod with `enableServiceLinks: false` does not get them)"
            )
        })
    }
}

/// The layers so far.
pub(crate) struct Layers {
    /// All keys with their defaults.
    known: Map<String, Value>,
    /// The lowest first.
    laid: Vec<LayeredValue>,
    api_keys: Vec<server::Key>,
    webhook_secrets: SecretTexts,
    service_links: usize,
    problems: Vec<String>,
    /// Problems that prevent only a server.
    server_problems: Vec<String>,
}

/// One value of one layer.
struct LayeredValue {
    key: String,
    value: Value,
    origin: Origin,
}

impl Layers {
    /// The lowest layer.
    pub(crate) fn defaults() -> Self {
        Self {
            known: tree::of(&Settings::default()),
            laid: Vec::new(),
            api_keys: Vec::new(),
            webhook_secrets: SecretTexts::default(),
            service_links: 0,
            problems: Vec::new(),
            server_problems: Vec::new(),
        }
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
        let known = tree::leaves(&self.known);
        for (name, text) in vars {
            if environment::is_service_link(&name, &text) {
                self.service_links += 1;
                continue;
            }
            if text.contains(char::REPLACEMENT_CHARACTER) {
                self.problems.push(format!("{name}: must be UTF-8"));
                continue;
            }
            if name == api_keys::VARIABLE {
                match api_keys::parse(&text) {
                    Ok(keys) => self.api_keys = keys,
                    Err(why) => self.server_problems.push(why),
                }
            }
            if name == webhooks::VARIABLE && !text.is_empty() {
                match SecretTexts::parse(&text) {
                    Ok(secrets) => self.webhook_secrets = secrets,
                    Err(why) => self.server_problems.push(why),
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

    /// Adds a flag as the highest layer, if the flag was given.
    pub(crate) fn flag<T: serde::Serialize>(mut self, key: &str, value: Option<&T>) -> Self {
        let Some(value) = value else { return self };
        match serde_json::to_value(value) {
            Ok(value) => self.set(key, value, &Origin::Flag),
            // The only text that has no JSON.
            Err(_) => self.problems.push(format!("{key} (flag): must be UTF-8")),
        }
        self
    }

    /// Adds `--host` and `--port` as the highest layer: each replaces its part of the address below.
    pub(crate) fn address(self, host: Option<IpAddr>, port: Option<u16>) -> Self {
        const KEY: &str = "server.bind";
        if host.is_none() && port.is_none() {
            return self;
        }
        let laid = self.laid.iter().rev().find(|laid| laid.key == KEY);
        let below = laid
            .map(|laid| &laid.value)
            .or_else(|| tree::get(&self.known, KEY));
        match bind::of_value(below.unwrap_or(&Value::Null)) {
            Ok(below) => {
                let (host, port) = (host.unwrap_or(below.ip()), port.unwrap_or(below.port()));
                self.flag(KEY, Some(&SocketAddr::new(host, port)))
            }
            // The typed settings reject it.
            Err(_) => self,
        }
    }

    /// Adds the keys of `--api-key` to those of the environment.
    pub(crate) fn api_keys(mut self, keys: &[String]) -> Self {
        match api_keys::of_flag(keys) {
            Ok(keys) => self.api_keys.extend(keys),
            Err(why) => self.server_problems.push(why),
        }
        self
    }

    /// Reads and checks the settings of a server; all problems at once.
    ///
    /// # Errors
    /// Unknown keys, wrong types, values out of bounds and contradictions, each with key and origin.
    pub(crate) fn finish(mut self) -> Result<Config, ConfigError> {
        let config = self.read();
        if let Ok(config) = &config {
            let settings = &config.settings;
            let keyed = settings.keys.file.is_some() || !config.api_keys.is_empty();
            let found = check::server_problems(settings, keyed);
            self.report(&config.origins, found.into_iter());
        }
        self.problems.append(&mut self.server_problems);
        self.unless_problems(config)
    }

    /// Reads and checks the settings of a command that is no server: an address without API keys, for instance, prevents
    /// neither an answer on the terminal nor a look at a running server.
    ///
    /// # Errors
    /// Unknown keys, wrong types and values out of bounds, each with key and origin.
    pub(crate) fn finish_without_server(mut self) -> Result<Config, ConfigError> {
        let config = self.read();
        self.unless_problems(config)
    }

    /// The settings, checked as far as all commands use them. What was found is in `problems`; `Err`: the settings
    /// have no types.
    fn read(&mut self) -> Result<Config, String> {
        self.lay_preset();
        let (tree, origins) = self.merged();
        logging::use_json(tree::get(&tree, JSON_LOG) == Some(&Value::Bool(true)));
        let read = serde_path_to_error::deserialize::<_, Settings>(Value::Object(tree));
        let settings = read.map_err(|why| {
            let key = why.path().to_string();
            let is_inside = |known: &str| {
                let rest = key.strip_prefix(known);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            let origin = origins.iter().find(|(known, _)| is_inside(known));
            let origin = origin.map(|(_, origin)| format!(" ({origin})"));
            let why = plain_words(&why.inner().to_string());
            format!("{key}{}: {why}", origin.unwrap_or_default())
        })?;
        self.report(&origins, check::problems(&settings).into_iter());
        Ok(Config {
            settings,
            origins,
            api_keys: std::mem::take(&mut self.api_keys),
            webhook_secrets: std::mem::take(&mut self.webhook_secrets),
            service_links: self.service_links,
        })
    }

    fn report(
        &mut self,
        origins: &BTreeMap<String, Origin>,
        found: impl Iterator<Item = (&'static str, String)>,
    ) {
        self.problems.extend(found.map(|(key, why)| {
            let origin = origins.get(key).unwrap_or(&Origin::Default);
            format!("{key} ({origin}): {why}")
        }));
    }

    fn unless_problems(mut self, config: Result<Config, String>) -> Result<Config, ConfigError> {
        match config {
            Ok(config) if self.problems.is_empty() => Ok(config),
            Ok(_) => Err(ConfigError(self.problems)),
            Err(why) => {
                self.problems.push(why);
                Err(ConfigError(self.problems))
            }
        }
    }

    /// Adds the preset that the highest layer names below all other layers. An unknown name is an error of the typed
    /// settings.
    fn lay_preset(&mut self) {
        let named = self.laid.iter().rev().find(|laid| laid.key == "preset");
        let preset = named.map(|laid| Preset::deserialize(&laid.value));
        let Some(Ok(preset)) = preset else { return };
        let above = std::mem::take(&mut self.laid);
        match preset.layer() {
            Ok(tree) => self.lay(&tree, &Origin::Preset(preset.name())),
            Err(why) => self.problems.push(why),
        }
        self.laid.extend(above);
    }

    fn merged(&mut self) -> (Map<String, Value>, BTreeMap<String, Origin>) {
        let mut tree = std::mem::take(&mut self.known);
        let by_default = |(key, _)| (key, Origin::Default);
        let mut origins: BTreeMap<_, _> = tree::leaves(&tree).into_iter().map(by_default).collect();
        for LayeredValue { key, value, origin } in self.laid.drain(..) {
            if let Some(place) = tree::place(&mut tree, &key) {
                *place = value;
                origins.insert(key, origin);
            }
        }
        (tree, origins)
    }

    fn lay(&mut self, layer: &Map<String, Value>, origin: &Origin) {
        for (name, value) in layer {
            if let Some(keys) = value.as_object() {
                self.lay_section(name, keys, origin);
            } else if tree::get(&self.known, name).is_some() {
                self.set(name, value.clone(), origin);
            } else {
                let hint = self.nearest(name);
                self.problems.push(format!(
                    "{name} ({origin}): must be a section of settings{hint}"
                ));
            }
        }
    }

    fn lay_section(&mut self, section: &str, keys: &Map<String, Value>, origin: &Origin) {
        for (key, value) in keys {
            let key = format!("{section}.{key}");
            let known = tree::get(&self.known, &key);
            match value.as_object() {
                Some(keys) if known.is_some_and(tree::is_section) => {
                    self.lay_section(&key, keys, origin);
                }
                _ => self.set(&key, value.clone(), origin),
            }
        }
    }

    /// A hint at the known key that was probably meant.
    fn nearest(&self, key: &str) -> String {
        let known = tree::leaves(&self.known).into_iter();
        did_you_mean(key, known.map(|(key, _)| key))
    }

    fn set(&mut self, key: &str, value: Value, origin: &Origin) {
        if tree::get(&self.known, key).is_none() {
            let hint = self.nearest(key);
            self.problems
                .push(format!("{key} ({origin}): there is no such setting{hint}"));
            return;
        }
        if let Some(why) = empty_text(key, &value, tree::get(&self.known, key)) {
            // `VAR=` of a file of variables stands for one that is not set.
            if !matches!(origin, Origin::Environment(_)) {
                self.problems.push(format!("{key} ({origin}): {why}"));
            }
            return;
        }
        self.laid.push(LayeredValue {
            key: key.to_owned(),
            value,
            origin: origin.clone(),
        });
    }
}

/// Why a text without characters is no value of a setting; `None`: it is one.
fn empty_text(key: &str, value: &Value, default: Option<&Value>) -> Option<&'static str> {
    let is_empty = |value: &Value| value.as_str() == Some("");
    let may_be_empty = EMPTY_IS_OFF == key || default.is_some_and(is_empty);
    match value {
        Value::String(text) if text.is_empty() && !may_be_empty => Some("must not be empty"),
        Value::Array(values) if values.iter().any(is_empty) => Some("must have no empty entries"),
        _ => None,
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

/// Why these values over the defaults are rejected; `None`: they are accepted.
#[cfg(test)]
pub(super) fn problem(values: &[(&str, serde_json::Value)]) -> Option<String> {
    let lay =
        |layers: Layers, (key, value): &(&str, serde_json::Value)| layers.flag(key, Some(value));
    let layers = values.iter().fold(Layers::defaults(), lay);
    layers.finish().err().map(|why| why.to_string())
}

#[cfg(test)]
mod tests;
