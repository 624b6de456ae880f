//! Upstreams of a model: addresses, bounds and time limits.

use engine::remote::RemoteInbox;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use text::Tokenizer;

/// Upstreams of one model.
pub const UPSTREAMS_MAX: usize = 32;
/// Bytes of one event of a response.
pub(crate) const EVENT_BYTES_MAX: usize = 1 << 20;
/// Token ids in one event.
pub(crate) const EVENT_TOKENS_MAX: usize = 4096;
/// Bytes of an error response that are read, for the log.
pub(crate) const ERROR_BYTES_MAX: usize = 4096;
/// Bytes of a response about an upstream itself, such as its list of models.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 1 << 20;
/// Reports of calls that wait for the relay.
pub(crate) const REPORTS_MAX: usize = 256;

/// How upstreams are asked for tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamApi {
    /// By what an upstream says of itself: Millrace and llama.cpp's server are known, all others are `OpenAi`.
    #[default]
    Auto,
    /// OpenAI's completions with vLLM's `return_token_ids`.
    OpenAi,
    /// OpenAI's completions, whose text is covered by ids of the vocabulary here.
    OpenAiText,
    /// llama.cpp's own route `/completion`.
    LlamaCpp,
}

/// Upstreams of one model, and how they are used.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// At least one, at most [`UPSTREAMS_MAX`].
    pub addresses: Vec<UpstreamAddress>,
    /// How they are asked.
    pub api: UpstreamApi,
    /// Name of the model in requests; `None`: the only one that an upstream lists.
    pub model: Option<String>,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// Time to connect; also for the whole of a response about the upstream itself.
    pub connect_max: Duration,
    /// Time to the head of the response, which vLLM sends with the first token.
    pub head_max: Duration,
    /// Time without a byte of the body, after which the upstream counts as dead.
    pub silence_max: Duration,
    /// Time that a choice without an upstream waits for one.
    pub unplaced_max: Duration,
    /// As `unplaced_max`, of a choice without any tokens, while no upstream can be used at all.
    pub unreachable_max: Duration,
    /// Pause between two questions for the models of an upstream.
    pub probe_interval: Duration,
    /// Pause after a failed call; doubled with each further one, up to ten times.
    pub retry: Duration,
    /// Accepted calls without a token in between that may be cut before the choice fails: a request may be the reason.
    pub crashes_max: u32,
}

impl UpstreamConfig {
    /// These upstreams without a key.
    pub fn new(addresses: Vec<UpstreamAddress>) -> Self {
        Self {
            addresses,
            api: UpstreamApi::Auto,
            model: None,
            api_key: None,
            connect_max: Duration::from_secs(5),
            head_max: Duration::from_secs(600),
            silence_max: Duration::from_secs(120),
            unplaced_max: Duration::from_secs(60),
            unreachable_max: Duration::from_secs(5),
            probe_interval: Duration::from_secs(1),
            retry: Duration::from_millis(200),
            crashes_max: 3,
        }
    }
}

/// A model whose requests upstreams compute.
pub struct UpstreamModel {
    /// Ids that end an answer.
    pub eos: Arc<[u32]>,
    /// The vocabulary of the model.
    pub tokenizer: Arc<Tokenizer>,
    /// Requests of the model's handle.
    pub inbox: RemoteInbox,
}

/// `http://host:port`, with a path in front of `/v1` or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAddress {
    /// Host and port, as in the header field `Host`.
    authority: String,
    /// Begins with a slash, or is empty; does not end with one.
    prefix: String,
}

/// Why a text is no address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAddress(String);

impl UpstreamAddress {
    /// The URL of a route that begins with a slash.
    pub(crate) fn url_of(&self, route: &str) -> String {
        format!("{self}{route}")
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for UpstreamAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |why: &str| InvalidAddress(format!("{why}, such as http://10.0.0.2:8000"));
        let uri: http::Uri = text.parse().map_err(|_| invalid("must be a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid(
                "must begin with http:// (TLS to an upstream is not supported)",
            ));
        }
        let authority = uri.authority().ok_or_else(|| invalid("must have a host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("must not contain a user: the key is a setting"));
        }
        if uri.query().is_some() {
            return Err(invalid("must not have a query"));
        }
        let port = authority.port_u16().unwrap_or(80);
        let prefix = uri.path().trim_end_matches('/');
        Ok(Self {
            authority: format!("{}:{port}", authority.host()),
            prefix: prefix.trim_end_matches("/v1").to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_host_a_port_and_a_prefix() {
        for (text, base) in [
            ("http://a:8000", "http://a:8000"),
            ("http://a", "http://a:80"),
            ("http://a:1/", "http://a:1"),
            ("http://a:1/v1", "http://a:1"),
            ("http://[::1]:9/x/v1/", "http://[::1]:9/x"),
        ] {
            let address: UpstreamAddress = text.parse().unwrap();
            let url = format!("{base}/v1/completions");
            assert_eq!(address.url_of("/v1/completions"), url, "{text}");
        }
    }

    #[test]
    fn address_of_another_kind_is_rejected() {
        for text in [
            "",
            "a:8000",
            "https://a",
            "http://k@a",
            "http://a?x=1",
            "/v1",
        ] {
            assert!(text.parse::<UpstreamAddress>().is_err(), "{text}");
        }
    }
}
