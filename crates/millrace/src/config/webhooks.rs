//! Settings of webhooks, and the secret that the environment gives.

use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{HostPattern, SECRETS_MAX, WebhookSecret, WebhookSettings};
use std::fmt;
use std::time::Duration;

/// The variable with the secret of the operator's own requests.
pub(super) const VARIABLE: &str = "MILLRACE_WEBHOOK_SECRET";

/// Events about the ends of background responses and jobs, sent to URLs that requests name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Webhooks {
    /// Hosts that may receive events: `hooks.example.com`, `*.example.com` (subdomains) or `*`, with `:PORT` or `:*`
    /// where the port is not the default one of the scheme. Empty: a request with a webhook is rejected.
    #[schemars(extend("x-reload" = "live", "x-reason" = "requests must not make the server send to hosts that the operator does not know"))]
    pub(crate) allowed_hosts: Vec<String>,
    /// Allow `http://` URLs.
    #[schemars(extend("x-reload" = "live", "x-reason" = "events and signatures are not readable on the way"))]
    pub(crate) allow_http: bool,
    /// Allow hosts with private, loopback or link-local addresses.
    #[schemars(extend("x-reload" = "live", "x-reason" = "requests must not reach services inside of the operator's network"))]
    pub(crate) allow_private_addresses: bool,
    /// Maximum number of attempts of one delivery.
    #[schemars(
        range(min = 1, max = 1000),
        extend("x-reload" = "live", "x-reason" = "half a minute, minutes, then hourly: about seven hours")
    )]
    pub(crate) attempts_max: u32,
    /// Delay after the first failed attempt; each further delay is four times as long, up to an hour.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "a receiver that restarts is back within seconds")
    )]
    pub(crate) retry_ms: u64,
}

impl Default for Webhooks {
    fn default() -> Self {
        let settings = WebhookSettings::default();
        Self {
            allowed_hosts: Vec::new(),
            allow_http: settings.allow_http,
            allow_private_addresses: settings.allow_private,
            attempts_max: settings.attempts_max,
            retry_ms: settings.retry.as_millis() as u64,
        }
    }
}

impl Webhooks {
    /// The settings as the server knows them.
    pub(crate) fn settings(&self) -> WebhookSettings {
        WebhookSettings {
            // Invalid hosts were rejected when the settings were read.
            allowed_hosts: self.hosts().unwrap_or_default(),
            allow_http: self.allow_http,
            allow_private: self.allow_private_addresses,
            attempts_max: self.attempts_max,
            retry: Duration::from_millis(self.retry_ms),
            ..WebhookSettings::default()
        }
    }

    /// The allowed hosts.
    ///
    /// # Errors
    /// An entry is no host.
    pub(super) fn hosts(&self) -> Result<Vec<HostPattern>, String> {
        let hosts = self.allowed_hosts.iter();
        hosts.map(|host| HostPattern::parse(host)).collect()
    }
}

/// Secrets as text: of keys that are not in a key file, and of the callers of a server without keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretTexts(Vec<String>);

impl SecretTexts {
    /// Reads one secret, or two with a comma between them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let texts: Vec<String> = text.split(',').map(|text| text.trim().to_owned()).collect();
        let secrets = Self(texts);
        secrets
            .secrets()
            .map_err(|why| format!("{VARIABLE}: {why}"))?;
        Ok(secrets)
    }

    /// The secrets.
    pub(crate) fn secrets(&self) -> Result<Vec<WebhookSecret>, String> {
        parse_secrets(&self.0)
    }
}

impl fmt::Debug for SecretTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretTexts({})", self.0.len())
    }
}

/// Reads the secrets of one key.
pub(crate) fn parse_secrets(texts: &[String]) -> Result<Vec<WebhookSecret>, String> {
    if texts.len() > SECRETS_MAX {
        return Err(format!("a key has at most {SECRETS_MAX} webhook secrets"));
    }
    let secrets = texts.iter().map(|text| WebhookSecret::parse(text));
    secrets.collect::<Result<_, _>>().map_err(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_checked_and_never_shown() {
        let good = WebhookSecret::to_text(&[7; 32]);
        let two = SecretTexts::parse(&format!("{good}, {good}")).expect("two secrets");
        assert_eq!(two.secrets().expect("good").len(), 2);
        assert_eq!(format!("{two:?}"), "SecretTexts(2)");
        for bad in [
            "sesame",
            &format!("{good},{good},{good}"),
            &format!("{good},sesame"),
        ] {
            let why = SecretTexts::parse(bad).expect_err(bad);
            assert!(why.contains(VARIABLE) && !why.contains("sesame"), "{why}");
        }
    }
}
