//! Settings of the model that describes images for models that read text only (`vision.proxy`).

use super::Settings;
use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use super::upstream::read_key;
use generate::images::ImageBounds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{VisionProxy, VisionServer};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the prompt.
const PROMPT_BYTES_MAX: usize = 8192;
/// Bytes of a model's name.
const NAME_BYTES_MAX: usize = 256;
/// The name of no model.
const OFF: &str = "off";

const PROMPT: &str = "Describe this image for someone who cannot see it and will answer questions about it. Say what kind of image it is and how it is laid out. \
    Copy all text in it word for word. Give numbers, colors, positions and relations. Say what you are not sure of. Answer with the description alone.";

/// A model that describes images for models that read text only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VisionProxySettings {
    /// Name of the model, which has a tower; `models.named.NAME.vision_proxy` is for single models. A model with a tower of its own has no use for it.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "an image is never described without the operator's knowledge: that costs time, and details are lost"))]
    pub(crate) model: Option<String>,
    /// Server with OpenAI's chat completions that has the model, such as `http://10.0.0.2:8000`. Default: this server has it.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the model is one of this server's"))]
    pub(crate) address: Option<String>,
    /// File with the API key of that server.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a secret is no setting"))]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Text that goes with an image. `{question}` stands for the user's text next to the image; descriptions are then made for each question.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "one description for all questions of a conversation"))]
    pub(crate) prompt: String,
    /// Maximum number of tokens of a description.
    #[schemars(
        range(min = 1, max = 8192),
        extend("x-reload" = "restart", "x-reason" = "a page of text, or a picture in detail")
    )]
    pub(crate) max_tokens: usize,
    /// Temperature of descriptions, 0 to 2; 0 = greedy.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the likeliest reading, the same each time"))]
    pub(crate) temperature: f64,
    /// Time for one description, with loading the model and waiting for a slot.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "512 tokens at ten a second, and the image before them")
    )]
    pub(crate) timeout_ms: u64,
    /// Maximum number of images in a request that are described.
    #[schemars(
        range(min = 1, max = 256),
        extend("x-reload" = "restart", "x-reason" = "each takes as long as an answer")
    )]
    pub(crate) images_max: usize,
    /// Images of one request that are described at one time.
    #[schemars(
        range(min = 1, max = 16),
        extend("x-reload" = "restart", "x-reason" = "two at one time are no faster on few processors")
    )]
    pub(crate) concurrency: usize,
    /// Maximum number of descriptions that are kept in memory, of at most 32 KiB each; 0 = none.
    #[schemars(
        range(min = 0, max = 65_536),
        extend("x-reload" = "restart", "x-reason" = "clients send the images of a conversation again with each turn; some KiB each")
    )]
    pub(crate) cache_entries: usize,
    /// What becomes of a request whose image could not be described.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "an answer must not look as if the image had been seen"))]
    pub(crate) on_failure: OnFailure,
}

/// What becomes of a request whose image could not be described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    /// It ends with an error.
    #[default]
    Error,
    /// The prompt has a note in place of the description.
    Note,
}

impl Default for VisionProxySettings {
    fn default() -> Self {
        Self {
            model: None,
            address: None,
            api_key_file: None,
            prompt: PROMPT.to_owned(),
            max_tokens: 512,
            temperature: 0.0,
            timeout_ms: 60_000,
            images_max: 4,
            concurrency: 1,
            cache_entries: 1024,
            on_failure: OnFailure::Error,
        }
    }
}

impl VisionProxySettings {
    /// Name of the model; `None`: there is none.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref().filter(|name| *name != OFF)
    }

    fn server(&self) -> Result<Option<VisionServer>, String> {
        let Some(address) = &self.address else {
            return Ok(None);
        };
        let key = self.api_key_file.as_deref();
        let key = key.map(|path| read_key("vision.proxy.api_key_file", path));
        let server = VisionServer::new(address, key.transpose()?.as_deref());
        server
            .map(Some)
            .map_err(|why| format!("vision.proxy.address: {why}"))
    }
}

impl Settings {
    /// The proxy of a model that reads text only.
    ///
    /// # Errors
    /// The file with the key cannot be used.
    pub(crate) fn vision_proxy(&self) -> Result<Option<VisionProxy>, String> {
        let proxy = &self.vision.proxy;
        let Some(model) = proxy.model() else {
            return Ok(None);
        };
        Ok(Some(VisionProxy {
            model: model.to_owned(),
            server: proxy.server()?,
            prompt: proxy.prompt.clone(),
            max_tokens: proxy.max_tokens,
            #[expect(clippy::cast_possible_truncation, reason = "0 to 2")]
            temperature: proxy.temperature as f32,
            timeout: Duration::from_millis(proxy.timeout_ms),
            concurrency: proxy.concurrency,
            cache_entries: proxy.cache_entries,
            on_failure: match proxy.on_failure {
                OnFailure::Error => server::OnFailure::Error,
                OnFailure::Note => server::OnFailure::Note,
            },
            bounds: ImageBounds {
                images_max: proxy.images_max,
                limits: self.vision.limits(),
            },
        }))
    }

    /// The models that describe images for others, each with the setting that names it.
    pub(crate) fn vision_proxy_models(&self) -> Vec<(String, &str)> {
        let own = self.vision.proxy.model();
        let own = own.map(|model| ("vision.proxy.model".to_owned(), model));
        let named = self.models.named.iter().filter_map(|(name, named)| {
            let model = named
                .vision_proxy
                .as_deref()
                .filter(|model| *model != OFF)?;
            Some((format!("models.named.{name}.vision_proxy"), model))
        });
        own.into_iter().chain(named).collect()
    }
}

/// All problems of the section beside bounds of numbers.
pub(super) fn problems(settings: &Settings) -> Vec<(&'static str, String)> {
    let proxy = &settings.vision.proxy;
    let mut found = Vec::new();
    let mut expect = |is_fine: bool, key, why: &dyn Fn() -> String| {
        if !is_fine {
            found.push((key, why()));
        }
    };
    let is_named = !settings.vision_proxy_models().is_empty();
    expect(
        proxy.address.is_none() || is_named,
        "vision.proxy.address",
        &|| "set, but no vision.proxy.model".to_owned(),
    );
    let has_address = proxy.address.is_some();
    expect(
        proxy.api_key_file.is_none() || has_address,
        "vision.proxy.api_key_file",
        &|| "set, but vision.proxy.address is not".to_owned(),
    );
    let address = proxy.address.as_deref();
    let address = address.and_then(|address| VisionServer::new(address, None).err());
    expect(address.is_none(), "vision.proxy.address", &|| {
        address.map_or_else(String::new, |why| why.to_string())
    });
    let name_bytes = proxy.model.as_ref().map_or(0, String::len);
    expect(name_bytes <= NAME_BYTES_MAX, "vision.proxy.model", &|| {
        format!("{name_bytes} bytes; at most {NAME_BYTES_MAX}")
    });
    let bytes = proxy.prompt.len();
    expect(bytes <= PROMPT_BYTES_MAX, "vision.proxy.prompt", &|| {
        format!("{bytes} bytes; at most {PROMPT_BYTES_MAX}")
    });
    let temperature = proxy.temperature;
    expect(
        (0.0..=2.0).contains(&temperature),
        "vision.proxy.temperature",
        &|| format!("must be 0 to 2, not {temperature}"),
    );
    found
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;
    use crate::config::layers::problem;
    use serde_json::json;

    #[test]
    fn contradictions_are_named() {
        let model = ("vision.proxy.model", json!("seer"));
        let address = ("vision.proxy.address", json!("http://a:1"));
        assert_eq!(problem(&[model.clone(), address.clone()]), None);
        for (key, value) in [
            ("vision.proxy.address", json!("a:8000")),
            ("vision.proxy.api_key_file", json!("key")),
            ("vision.proxy.prompt", json!("x".repeat(8193))),
            ("vision.proxy.temperature", json!(2.5)),
            ("vision.proxy.max_tokens", json!(0)),
            ("vision.proxy.on_failure", json!("ignore")),
            ("vision.proxy.modell", json!("seer")),
        ] {
            let why = problem(&[model.clone(), (key, value.clone())]).unwrap_or_default();
            assert!(why.contains(key), "{key}: {value}: {why}");
        }
        assert!(
            problem(&[address])
                .unwrap()
                .contains("vision.proxy.address")
        );
    }

    #[test]
    fn proxy_of_a_model_is_that_of_its_name() {
        let named = json!({"a": {"vision_proxy": "off"}, "b": {"vision_proxy": "other"}});
        let tree = json!({"vision": {"proxy": {"model": "seer", "images_max": 2}}, "models": {"named": named}});
        let settings: Settings = serde_json::from_value(tree).unwrap();
        let of = |name: &str| {
            let proxy = settings.of_model(name).vision_proxy().unwrap();
            proxy.map(|proxy| (proxy.model, proxy.bounds.images_max))
        };
        assert_eq!(of("a"), None);
        assert_eq!(of("b"), Some(("other".to_owned(), 2)));
        assert_eq!(of("c"), Some(("seer".to_owned(), 2)));
        let models = settings.vision_proxy_models();
        let models: Vec<_> = models
            .iter()
            .map(|(key, name)| (key.as_str(), *name))
            .collect();
        let want = [
            ("vision.proxy.model", "seer"),
            ("models.named.b.vision_proxy", "other"),
        ];
        assert_eq!(models, want);
    }
}
