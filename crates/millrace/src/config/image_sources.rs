//! Which images a server takes that a model cannot see, or that are elsewhere: the models that describe them, the hosts that are
//! asked for them, and what of that contradicts other settings.

use super::Settings;
use super::upstream::read_key;
use super::vision_proxy::{OFF, OnFailure, VisionProxySettings};
use generate::images::ImageBounds;
use server::{RemoteImages, VisionProxy, VisionServer};
use std::time::Duration;

/// Bytes of the prompt.
const PROMPT_BYTES_MAX: usize = 8192;
/// Bytes of a model's name.
const NAME_BYTES_MAX: usize = 256;
/// Hosts that may be asked.
const HOSTS_MAX: usize = 256;

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
            server: server_of(proxy)?,
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
                fetched_max: self.vision.images_max.max(proxy.images_max),
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

    /// The fetching of images; `None`: it is off.
    pub(crate) fn remote_images(&self) -> Option<RemoteImages> {
        let remote = &self.vision.remote;
        // Invalid hosts were rejected when the settings were read.
        let hosts = remote.parsed_hosts().unwrap_or_default();
        let timeout = Duration::from_millis(remote.timeout_ms);
        let bytes_max = usize::try_from(self.vision.image_bytes_max).unwrap_or(usize::MAX);
        remote
            .enabled
            .then(|| RemoteImages::new(hosts, timeout, bytes_max))
    }
}

fn server_of(proxy: &VisionProxySettings) -> Result<Option<VisionServer>, String> {
    let Some(address) = &proxy.address else {
        return Ok(None);
    };
    let key = proxy.api_key_file.as_deref();
    let key = key.map(|path| read_key("vision.proxy.api_key_file", path));
    let server = VisionServer::new(address, key.transpose()?.as_deref());
    server
        .map(Some)
        .map_err(|why| format!("vision.proxy.address: {why}"))
}

/// All problems of the settings of images but for bounds of numbers.
pub(super) fn problems(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut found = proxy_problems(settings);
    found.extend(remote_problem(settings));
    found
}

/// All problems of `vision.proxy`.
fn proxy_problems(settings: &Settings) -> Vec<(&'static str, String)> {
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

/// The first problem of `vision.remote`.
fn remote_problem(settings: &Settings) -> Option<(&'static str, String)> {
    const HOSTS: &str = "vision.remote.hosts";
    let remote = &settings.vision.remote;
    let count = remote.hosts.len();
    match remote.parsed_hosts() {
        Err(why) => Some((HOSTS, why)),
        Ok(_) if count > HOSTS_MAX => Some((HOSTS, format!("{count} hosts; at most {HOSTS_MAX}"))),
        Ok(_) if remote.enabled && count == 0 => {
            Some((HOSTS, "none, but vision.remote.enabled is true".to_owned()))
        }
        Ok(_) => None,
    }
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

    #[test]
    fn contradictions_of_hosts_are_named() {
        let enabled = ("vision.remote.enabled", json!(true));
        let hosts = |hosts| ("vision.remote.hosts", hosts);
        let good = hosts(json!(["*.example.com", "http://127.0.0.1:8080"]));
        assert_eq!(problem(&[enabled.clone(), good]), None);
        for bad in [
            json!([]),
            json!(["https://a.test"]),
            json!(["a b"]),
            json!(vec!["a"; 257]),
        ] {
            let why = problem(&[enabled.clone(), hosts(bad.clone())]).unwrap_or_default();
            assert!(why.contains("vision.remote.hosts"), "{bad}: {why}");
        }
    }
}
