//! Settings of images on other servers (`vision.remote`).

use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::RemoteHost;

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
    /// The hosts.
    ///
    /// # Errors
    /// An entry is no host.
    pub(super) fn parsed_hosts(&self) -> Result<Vec<RemoteHost>, String> {
        self.hosts
            .iter()
            .map(|host| RemoteHost::parse(host))
            .collect()
    }
}
