//! Settings of single models, by name (`models.named`): defaults of their requests, and how they are loaded.

use super::adapters::parse_adapters;
use super::{DeviceChoice, KvType, MmprojChoice, Settings};
use crate::model_store::ModelName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use server::DerivedModel;
use std::collections::BTreeMap;
use std::path::PathBuf;

const KEY: &str = "models.named";
/// Models with settings of their own.
const NAMED_MAX: usize = 256;
/// Bytes of a system message.
const SYSTEM_BYTES_MAX: usize = 64 << 10;
/// Bytes of the name of another model.
const NAME_BYTES_MAX: usize = 256;
/// Tokens of a context.
const CONTEXT_MAX: usize = 1 << 24;
/// MiB of a KV cache.
const KV_MIB_MAX: usize = 1 << 24;

/// The models with settings of their own.
pub(crate) type NamedModels = BTreeMap<String, NamedModel>;

/// Settings of one model. What is not given is as for all models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NamedModel {
    /// Local model whose weights the name stands for; default: the model of this name. With `from`, only `system` and `parameters` can be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// System message of conversations that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<String>,
    /// Defaults of requests, under the names of `/api/create`: `temperature`, `top_k`, `num_predict`, `stop` and so on.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) parameters: Map<String, Value>,
    /// As `model.context`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) context: Option<usize>,
    /// As `model.kv_mib`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) kv_mib: Option<usize>,
    /// As `model.kv_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_type: Option<KvType>,
    /// As `model.device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceChoice>,
    /// As `model.adapters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adapters: Option<Vec<String>>,
    /// As `model.mmproj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mmproj: Option<MmprojChoice>,
    /// As `vision.proxy.model`; `off` = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vision_proxy: Option<String>,
    /// As `model.chat_template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chat_template: Option<PathBuf>,
}

impl NamedModel {
    /// Whether the model is loaded otherwise than others.
    pub(crate) fn changes_load(&self) -> bool {
        self.loading_field().is_some()
    }

    /// Puts the given values into the settings of a model that is about to be loaded.
    pub(crate) fn apply_to(&self, settings: &mut Settings) {
        if let Some(proxy) = &self.vision_proxy {
            settings.vision.proxy.model = Some(proxy.clone());
        }
        let model = &mut settings.model;
        model.context = self.context.or(model.context);
        model.kv_mib = self.kv_mib.or(model.kv_mib);
        model.kv_type = self.kv_type.unwrap_or(model.kv_type);
        model.device = self.device.unwrap_or(model.device);
        if let Some(adapters) = &self.adapters {
            model.adapters.clone_from(adapters);
        }
        if let Some(mmproj) = &self.mmproj {
            model.mmproj.clone_from(mmproj);
        }
        if let Some(template) = &self.chat_template {
            model.chat_template = Some(template.clone());
        }
    }

    /// Defaults of requests; `None`: there are none.
    pub(crate) fn defaults(&self) -> Option<DerivedModel> {
        (self.system.is_some() || !self.parameters.is_empty()).then(|| DerivedModel {
            system: self.system.clone(),
            options: self.parameters.clone(),
            ..DerivedModel::default()
        })
    }

    /// The name of a given field about loading.
    fn loading_field(&self) -> Option<&'static str> {
        let given = [
            ("context", self.context.is_some()),
            ("kv_mib", self.kv_mib.is_some()),
            ("kv_type", self.kv_type.is_some()),
            ("device", self.device.is_some()),
            ("adapters", self.adapters.is_some()),
            ("mmproj", self.mmproj.is_some()),
            ("vision_proxy", self.vision_proxy.is_some()),
            ("chat_template", self.chat_template.is_some()),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|row| row.0)
    }

    /// The first invalid field, and why.
    fn problem(&self) -> Option<String> {
        if let (Some(from), Some(field)) = (&self.from, self.loading_field()) {
            return Some(format!(
                "{field}: weights are loaded once, so set it in {KEY}.{from}, without `from`"
            ));
        }
        if let Some(bytes) = self.system.as_ref().map(String::len)
            && bytes > SYSTEM_BYTES_MAX
        {
            return Some(format!("system: {bytes} bytes; at most {SYSTEM_BYTES_MAX}"));
        }
        for (field, value, most) in [
            ("context", self.context, CONTEXT_MAX),
            ("kv_mib", self.kv_mib, KV_MIB_MAX),
        ] {
            if let Some(value) = value.filter(|value| !(1..=most).contains(value)) {
                return Some(format!("{field}: must be 1 to {most}, not {value}"));
            }
        }
        if let Some(name) = &self.vision_proxy
            && (name.is_empty() || name.len() > NAME_BYTES_MAX)
        {
            return Some(format!(
                "vision_proxy: must have 1 to {NAME_BYTES_MAX} bytes"
            ));
        }
        if let Some(Err(why)) = self.adapters.as_deref().map(parse_adapters) {
            return Some(format!("adapters: {why}"));
        }
        let problems = self.defaults()?.option_problems();
        let problem = problems.first()?;
        Some(format!(
            "parameters.{}: {}",
            problem.field, problem.constraint
        ))
    }
}

impl Settings {
    /// The settings of the model of this name, where only names are known.
    pub(crate) fn of_model(&self, name: &str) -> Self {
        let mut settings = self.clone();
        if let Some(named) = self.models.named.get(name) {
            named.apply_to(&mut settings);
        }
        settings
    }
}

/// The first invalid entry among models that have settings of their own: the setting's name, and why.
pub(super) fn problem(settings: &Settings) -> Option<(&'static str, String)> {
    let named = &settings.models.named;
    if named.len() > NAMED_MAX {
        return Some((KEY, format!("{} models; at most {NAMED_MAX}", named.len())));
    }
    named.iter().find_map(|(name, model)| {
        let why = match ModelName::parse(name) {
            None => ModelName::rule(),
            Some(_) => model.problem()?,
        };
        Some((KEY, format!("{name}: {why}")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::layers::problem;
    use serde_json::{Value, json};

    #[test]
    fn problem_names_model_and_field() {
        let many: Value = (0..=super::NAMED_MAX)
            .map(|i| (format!("m{i}"), json!({})))
            .collect();
        let long = "x".repeat(super::SYSTEM_BYTES_MAX + 1);
        for (named, want) in [
            (json!({"a b": {}}), "a b: a model's name has"),
            (
                json!({"m": {"context": 0}}),
                "m: context: must be 1 to 16777216, not 0",
            ),
            (
                json!({"m": {"kv_mib": 1 << 25}}),
                "m: kv_mib: must be 1 to 16777216, not 33554432",
            ),
            (
                json!({"m": {"kv_type": "q4"}}),
                "must be f16, q8_0 or q4_0, not q4",
            ),
            (json!({"m": {"contxt": 1}}), "there is no `contxt`"),
            (
                json!({"m": {"system": long}}),
                "m: system: 65537 bytes; at most 65536",
            ),
            (
                json!({"m": {"adapters": ["a:NaN"]}}),
                "m: adapters: \"a:NaN\": the scale is NaN",
            ),
            (
                json!({"m": {"parameters": {"temperature": -1}}}),
                "m: parameters.temperature: must be",
            ),
            (
                json!({"m": {"parameters": {"num_ctx": 5}}}),
                "m: parameters.num_ctx: is no default",
            ),
            (
                json!({"m": {"from": "n", "context": 5}}),
                "set it in models.named.n",
            ),
            (many, "257 models; at most 256"),
        ] {
            let why = problem(&[("models.named", named)]).expect(want);
            assert!(why.contains("models.named") && why.contains(want), "{why}");
        }
        let fine = json!({"m:7b": {"context": 9, "parameters": {"temperature": 0.5, "stop": ["x"], "dry_multiplier": 0.8}}});
        assert_eq!(problem(&[("models.named", fine)]), None);
    }
}
