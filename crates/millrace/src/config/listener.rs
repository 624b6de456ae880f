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
    /// Unix socket to listen on beside `server.bind`. Who may connect is decided by the file's permissions; API keys are required as at the address.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "programs of the same machine reach the address, too"))]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket's file in octal, such as `"660"` for the process's user and group. Empty: what the process's umask leaves.
    #[schemars(regex(pattern = r"^(0?[0-7]{3})?$"))]
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the umask is the administrator's word on who may reach what a process makes"))]
    pub(crate) unix_socket_mode: String,
    /// File with a chain of certificates in PEM: connections to `server.bind` are encrypted by TLS. Needs `tls_key`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "there is no certificate by default; on loopback no one listens in"))]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of the first certificate, in PEM.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
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

    /// The permissions of the Unix socket's file; `None`: what the umask leaves.
    ///
    /// # Errors
    /// The setting is no mode.
    pub(crate) fn mode(&self) -> Result<Option<u32>, String> {
        let text = self.unix_socket_mode.as_str();
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match u32::from_str_radix(text, 8) {
            _ if text.is_empty() => Ok(None),
            Ok(mode) if is_octal && mode <= 0o777 => Ok(Some(mode)),
            _ => Err(format!(
                "`{}` is no mode: three octal digits, such as 660, in quotes",
                text.chars()
                    .take(16)
                    .flat_map(char::escape_debug)
                    .collect::<String>()
            )),
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
    if let Err(why) = listener.mode() {
        return Some(("listener.unix_socket_mode", why));
    }
    let is_encrypted = listener.tls_cert.is_some();
    if is_encrypted != listener.tls_key.is_some() {
        let (set, other) = if is_encrypted {
            ("listener.tls_cert", "listener.tls_key")
        } else {
            ("listener.tls_key", "listener.tls_cert")
        };
        return Some((set, format!("needs {other}, too")));
    }
    (is_encrypted && !settings.cluster.servers.is_empty()).then(|| {
        let why = "the instances of a cluster ask each other over HTTP in the clear: encrypt in a proxy, as deploy/nginx.conf";
        ("listener.tls_cert", why.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::Listener;

    #[test]
    fn socket_mode_is_three_octal_digits() {
        let rows = [
            ("", Some(None)),
            ("660", Some(Some(0o660))),
            ("0600", Some(Some(0o600))),
            ("777", Some(Some(0o777))),
            ("4755", None),
            ("66", None),
            ("888", None),
            ("+66", None),
            ("rw-", None),
        ];
        for (text, want) in rows {
            let listener = Listener {
                unix_socket_mode: text.to_owned(),
                ..Listener::default()
            };
            assert_eq!(listener.mode().ok(), want, "{text:?}");
        }
    }
}
