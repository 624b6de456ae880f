//! Settings of servers of others that compute the tokens, and what of them contradicts other settings.

use super::Settings;
use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use upstream::{UPSTREAMS_MAX, UpstreamAddress, UpstreamApi, UpstreamConfig};

/// The setting with the file of the key.
const KEY_FILE: &str = "upstream.api_key_file";
/// Bytes of the file with the key.
const KEY_BYTES_MAX: u64 = 4096;

/// Servers of others that compute the tokens: vLLM, llama.cpp's server, another Millrace (docs/upstreams.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Upstream {
    /// Servers such as `http://10.0.0.2:8000`, at most 32. With one, this process loads no weights: it reads the tokenizer and the chat template of the model's files.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the model computes here"))]
    pub(crate) addresses: Vec<String>,
    /// How the servers are asked for tokens.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "servers say what they are"))]
    pub(crate) api: Api,
    /// Name of the model at the servers. Default: the only one that a server lists.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "most servers have one model"))]
    pub(crate) model: Option<String>,
    /// File with the API key of the servers.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a secret is no setting"))]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Time to the head of a response. Some servers send it with the first token.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "long prompts, and queues")
    )]
    pub(crate) response_timeout_ms: u64,
    /// Time without a byte of a response after which the server counts as dead.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "long prompts between tokens of other answers")
    )]
    pub(crate) silence_timeout_ms: u64,
}

/// How the servers are asked for tokens.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Api {
    /// By `owned_by` in a server's list of models: Millrace and llama.cpp's server are known, all others are `openai`.
    #[default]
    Auto,
    /// `/v1/completions` with token ids (`return_token_ids`), as of vLLM.
    Openai,
    /// `/v1/completions` of servers that return text only. A stream that is cut ends with an error.
    OpenaiText,
    /// `/completion` of llama.cpp's server, with token ids.
    LlamaCpp,
}

impl Default for Upstream {
    fn default() -> Self {
        let config = UpstreamConfig::new(Vec::new());
        Self {
            addresses: Vec::new(),
            api: Api::Auto,
            model: None,
            api_key_file: None,
            response_timeout_ms: millis(config.head_max),
            silence_timeout_ms: millis(config.silence_max),
        }
    }
}

impl Upstream {
    /// Whether servers of others compute the tokens.
    pub(crate) fn is_used(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The settings as the relay knows them.
    ///
    /// # Errors
    /// An address is invalid, or the file with the key cannot be used.
    pub(crate) fn config(&self) -> Result<UpstreamConfig, String> {
        let key = self.api_key_file.as_deref();
        Ok(UpstreamConfig {
            api: match self.api {
                Api::Auto => UpstreamApi::Auto,
                Api::Openai => UpstreamApi::OpenAi,
                Api::OpenaiText => UpstreamApi::OpenAiText,
                Api::LlamaCpp => UpstreamApi::LlamaCpp,
            },
            model: self.model.clone(),
            api_key: key.map(|path| read_key(KEY_FILE, path)).transpose()?,
            head_max: Duration::from_millis(self.response_timeout_ms),
            silence_max: Duration::from_millis(self.silence_timeout_ms),
            ..UpstreamConfig::new(self.parsed_addresses()?)
        })
    }

    fn parsed_addresses(&self) -> Result<Vec<UpstreamAddress>, String> {
        let parse = |text: &String| {
            let parsed = text.parse::<UpstreamAddress>();
            parsed.map_err(|why| format!("{text:?} {why}"))
        };
        self.addresses.iter().map(parse).collect()
    }
}

/// The key in the file of this setting: its only word.
pub(super) fn read_key(setting: &str, path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{setting} {}: {why}", path.display());
    let size = std::fs::metadata(path).map_err(|why| failed(&why))?.len();
    if size > KEY_BYTES_MAX {
        return Err(failed(&format!(
            "has {size} bytes; at most {KEY_BYTES_MAX}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|why| failed(&why))?;
    let key = text.trim();
    if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(key.to_owned())
    } else {
        Err(failed(
            &"must have one word of printable characters: the key",
        ))
    }
}

/// All problems of the section beside bounds of numbers.
pub(super) fn problems(settings: &Settings) -> Vec<(&'static str, String)> {
    let upstream = &settings.upstream;
    let count = upstream.addresses.len();
    let addresses = match upstream.parsed_addresses() {
        Err(why) => Some(why),
        Ok(_) if count > UPSTREAMS_MAX => {
            Some(format!("{count} addresses; at most {UPSTREAMS_MAX}"))
        }
        Ok(_) if count > 0 && settings.cluster.is_joined() => Some(
            "set together with cluster.servers: the tokens of a process are computed by the engines of a cluster or by servers of others"
                .to_owned(),
        ),
        Ok(_) => None,
    };
    let unused = [
        ("upstream.model", upstream.model.is_some()),
        ("upstream.api_key_file", upstream.api_key_file.is_some()),
        ("upstream.api", upstream.api != Api::Auto),
    ];
    let unused = unused
        .into_iter()
        .filter(|(_, is_set)| *is_set && count == 0);
    let unused = unused.map(|(key, _)| (key, "set, but upstream.addresses is not".to_owned()));
    let addresses = addresses.map(|why| ("upstream.addresses", why));
    addresses.into_iter().chain(unused).collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::config::layers::problem;
    use serde_json::json;

    #[test]
    fn contradictions_are_named() {
        let good = ("upstream.addresses", json!(["http://a:1", "http://b"]));
        assert_eq!(problem(std::slice::from_ref(&good)), None);
        for (key, value) in [
            ("upstream.addresses", json!(["a:8000"])),
            ("upstream.addresses", json!(["https://a"])),
            ("upstream.addresses", json!(vec!["http://a"; 33])),
            ("upstream.model", json!("m")),
            ("upstream.api_key_file", json!("key")),
            ("upstream.api", json!("openai_text")),
        ] {
            let why = problem(&[(key, value.clone())]).unwrap_or_default();
            assert!(why.contains(key), "{key}: {value}: {why}");
        }
        let servers = ("cluster.servers", json!(["nats://127.0.0.1:4222"]));
        for role in ["all", "gateway", "engine"] {
            let role = ("cluster.role", json!(role));
            let why = problem(&[good.clone(), servers.clone(), role]).unwrap();
            assert!(
                why.contains("upstream.addresses") && why.contains("cluster.servers"),
                "{why}"
            );
        }
    }

    #[test]
    fn key_file_has_one_word() {
        let folder = testing::folder::Folder::new("upstream-key");
        let path = folder.0.join("key");
        std::fs::write(&path, "sk-1\n").unwrap();
        let read_key = |path: &std::path::Path| super::read_key(super::KEY_FILE, path);
        assert_eq!(read_key(&path).as_deref(), Ok("sk-1"));
        for text in ["", "two words", "x".repeat(5000).as_str()] {
            std::fs::write(&path, text).unwrap();
            assert!(
                read_key(&path)
                    .unwrap_err()
                    .contains("upstream.api_key_file")
            );
        }
        assert!(read_key(&folder.0.join("none")).is_err());
    }
}
