//! Settings of how connections are accepted, beside the address.

use super::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::TlsCertificate;
use std::path::PathBuf;

/// Encryption, and a Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Listener {
    /// Unix socket to listen on beside `server.bind`. Who may connect is decided by the file's permissions, after the process's umask; API keys are required as at the address.
    pub(crate) unix_socket: Option<PathBuf>,
    /// File with a chain of certificates in PEM: connections to `server.bind` are encrypted by TLS. Needs `tls_key`.
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of the first certificate, in PEM.
    pub(crate) tls_key: Option<PathBuf>,
}

impl Listener {
    /// The scheme of the server's URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls_cert {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The certificate, read from its files; `None` where connections are in the clear.
    ///
    /// # Errors
    /// A file cannot be read, or the key is not the certificate's.
    pub(crate) fn certificate(&self) -> Result<Option<TlsCertificate>, String> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        TlsCertificate::read(certificate, key)
            .map(Some)
            .map_err(|why| format!("listener.tls_cert and listener.tls_key: {why}"))
    }
}

/// Settings that contradict each other.
pub(super) fn problem(settings: &Settings) -> Option<(&'static str, String)> {
    let listener = &settings.listener;
    let is_encrypted = listener.tls_cert.is_some();
    if is_encrypted != listener.tls_key.is_some() {
        let (set, other) = match is_encrypted {
            true => ("listener.tls_cert", "listener.tls_key"),
            false => ("listener.tls_key", "listener.tls_cert"),
        };
        return Some((set, format!("needs {other}, too")));
    }
    (is_encrypted && !settings.cluster.servers.is_empty()).then(|| {
        let why = "the instances of a cluster ask each other over HTTP in the clear: encrypt in a proxy, as deploy/nginx.conf";
        ("listener.tls_cert", why.to_owned())
    })
}
