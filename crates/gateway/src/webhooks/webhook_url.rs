//! A client's URL in normal form.

use super::WebhookSettings;
use crate::keys::KeyHash;
use crate::keys::caller::ANONYMOUS;
use crate::locks::{read, write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generate::request::WEBHOOK_URL_BYTES_MAX;
use http_client::is_public;
use ring::hmac;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};
use stream::Owner;
use url::{Host, Url};

/// The URL in normal form, as it is recorded and requested: hosts are in lower case and in ASCII, and every notation of
/// an address is the usual one.
///
/// # Errors
/// Why the URL is not accepted; the sentence follows the field's name.
pub(crate) fn accepted_url(text: &str, settings: &WebhookSettings) -> Result<String, String> {
    let not_a_url = || "is not a URL".to_owned();
    if !settings.is_on() {
        return Err("webhooks are off (the operator sets webhooks.allowed_hosts)".to_owned());
    }
    let url = Url::parse(text).map_err(|_| not_a_url())?;
    match url.scheme() {
        "https" => {}
        "http" if settings.allow_http => {}
        _ => return Err("must be an https URL".to_owned()),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("must not contain a user, a password or a fragment".to_owned());
    }
    let (host, port) = url
        .host()
        .zip(url.port_or_known_default())
        .ok_or_else(not_a_url)?;
    let shown = host.to_string();
    let is_default = url.port().is_none();
    let is_allowed = settings
        .allowed_hosts
        .iter()
        .any(|pattern| pattern.permits(&shown, port, is_default));
    if !is_allowed {
        return Err(format!(
            "{shown} at port {port} is not among the allowed hosts (webhooks.allowed_hosts)"
        ));
    }
    let address = match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
    };
    if address.is_some_and(|address| !settings.allow_private && !is_public(address)) {
        return Err("must not name an address that is not public".to_owned());
    }
    let normal = url.to_string();
    if normal.len() > WEBHOOK_URL_BYTES_MAX {
        return Err(format!("has more than {WEBHOOK_URL_BYTES_MAX} bytes"));
    }
    Ok(normal)
}

/// Prefix of secrets.
pub const SECRET_PREFIX: &str = "whsec_";
/// Secrets of one key: a new one, and the one before while receivers change.
pub const SECRETS_MAX: usize = 2;
/// Bytes of a secret, as the specification recommends.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that signs deliveries.
#[derive(Clone)]
pub struct WebhookSecret(hmac::Key);

impl WebhookSecret {
    /// Reads `whsec_` and 24 to 64 bytes in base64.
    ///
    /// # Errors
    /// The message never repeats the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WHY: &str = "a webhook secret is whsec_ and 24 to 64 bytes in base64";
        let encoded = text.trim().strip_prefix(SECRET_PREFIX).ok_or(WHY)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| WHY)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(WHY);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The text of a secret with these bytes.
    pub fn to_text(bytes: &[u8]) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes))
    }

    /// `v1,` and the signature in base64.
    fn signature(&self, id: &str, unix_s: i64, body: &str) -> String {
        let signed = format!("{id}.{unix_s}.{body}");
        let tag = hmac::sign(&self.0, signed.as_bytes());
        format!("v1,{}", STANDARD.encode(tag.as_ref()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

/// The header `webhook-signature`: a signature with each secret.
pub(crate) fn signatures(secrets: &[WebhookSecret], id: &str, unix_s: i64, body: &str) -> String {
    let each = secrets
        .iter()
        .map(|secret| secret.signature(id, unix_s, body));
    each.collect::<Vec<_>>().join(" ")
}

/// The secrets of all keys, replaced while the server runs.
#[derive(Debug, Default)]
pub struct WebhookSecrets {
    /// At most as many as there are keys, each with [`SECRETS_MAX`].
    by_owner: RwLock<HashMap<Owner, Arc<[WebhookSecret]>>>,
}

impl WebhookSecrets {
    /// Replaces all secrets; the key `None` is the caller of a server without keys.
    pub fn replace(
        &self,
        secrets: impl IntoIterator<Item = (Option<KeyHash>, Vec<WebhookSecret>)>,
    ) {
        let owned = secrets
            .into_iter()
            .filter(|(_, secrets)| !secrets.is_empty());
        let by_owner = owned.map(|(key, secrets)| {
            let owner = key.map_or(ANONYMOUS, KeyHash::stream_owner);
            (owner, secrets.into())
        });
        let mut table = write(&self.by_owner);
        *table = by_owner.collect();
    }

    /// The secrets of an owner of streams.
    pub(crate) fn of_owner(&self, owner: Owner) -> Option<Arc<[WebhookSecret]>> {
        let table = read(&self.by_owner);
        table.get(&owner).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::HostPattern;
    use super::*;

    fn allowing(hosts: &[&str]) -> WebhookSettings {
        let patterns = hosts.iter().map(|host| HostPattern::parse(host));
        WebhookSettings {
            allowed_hosts: patterns.collect::<Result<_, _>>().expect("patterns"),
            ..WebhookSettings::default()
        }
    }

    #[test]
    fn allowed_url_is_normalized() {
        let settings = allowing(&["hooks.example.com", "*.test:8443"]);
        for (text, want) in [
            (
                "https://hooks.example.com/a?b=c",
                "https://hooks.example.com/a?b=c",
            ),
            (
                "HTTPS://HOOKS.example.com:443",
                "https://hooks.example.com/",
            ),
            ("https://a.test:8443/x", "https://a.test:8443/x"),
        ] {
            assert_eq!(accepted_url(text, &settings).as_deref(), Ok(want));
        }
    }

    #[test]
    fn url_that_is_not_allowed_is_rejected() {
        let settings = allowing(&["*", "*:8080"]);
        for text in [
            "",
            "hooks",
            "/path",
            "ftp://a.test/",
            "file:///etc/passwd",
            "http://a.test/",
            "https://user@a.test/",
            "https://user:password@a.test/",
            "https://a.test/#fragment",
            "https://a.test:444/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://%31%32%37.0.0.1/",
            "https://\u{ff11}27.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://10.0.0.1:8080/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://[fd00:ec2::254]/",
        ] {
            assert!(accepted_url(text, &settings).is_err(), "{text}");
        }
        assert!(
            accepted_url("https://a.test/", &WebhookSettings::default()).is_err(),
            "off"
        );
        let long = format!(
            "https://a.test/{}",
            "%C3%A4".repeat(WEBHOOK_URL_BYTES_MAX / 6)
        );
        assert!(accepted_url(&long, &settings).is_err());
    }

    #[test]
    fn private_address_and_http_are_accepted_where_allowed() {
        let settings = WebhookSettings {
            allow_http: true,
            allow_private: true,
            ..allowing(&["127.0.0.1:*"])
        };
        assert!(accepted_url("http://127.0.0.1:9/", &settings).is_ok());
        assert!(accepted_url("http://2130706433:9/", &settings).is_ok());
        assert!(accepted_url("http://127.0.0.2:9/", &settings).is_err());
    }
}
