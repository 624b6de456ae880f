//! Settings of images on other servers (`vision.remote`).

use super::Settings;
use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{RemoteHost, RemoteImages};
use std::time::Duration;

/// Hosts that may be asked.
const HOSTS_MAX: usize = 256;

/// Images on other servers, which requests name by their addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VisionRemote {
    /// Fetch images from the hosts of `vision.remote.hosts`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "requests must not make the server send to other hosts"))]
    pub(crate) enabled: bool,
    /// Hosts that may be asked by https, at public addresses: `images.example.com`, `*.example.com` (subdomains) or `*`, with `:PORT` or `:*` where the port is another one. With `http://` before it, a host is asked by http, at any address.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the operator knows which hosts have images"))]
    pub(crate) hosts: Vec<String>,
    /// Time to fetch one image, with redirects.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "20 MiB at 16 Mbit/s")
    )]
    pub(crate) timeout_ms: u64,
}

impl Default for VisionRemote {
    fn default() -> Self {
        Self {
            enabled: false,
            hosts: Vec::new(),
            timeout_ms: 10_000,
        }
    }
}

impl VisionRemote {
    fn parsed_hosts(&self) -> Result<Vec<RemoteHost>, String> {
        self.hosts
            .iter()
            .map(|host| RemoteHost::parse(host))
            .collect()
    }
}

impl Settings {
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

/// The first problem of the section beside bounds of numbers.
pub(super) fn problem(settings: &Settings) -> Option<(&'static str, String)> {
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
    use crate::config::layers::problem;
    use serde_json::json;

    #[test]
    fn contradictions_are_named() {
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
