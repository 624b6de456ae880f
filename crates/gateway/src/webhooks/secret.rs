//! Signatures of deliveries, as specified by Standard Webhooks: HMAC-SHA256 over id, time and body.

use crate::keys::KeyHash;
use crate::keys::caller::ANONYMOUS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use stream::Owner;

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
        let mut table = self
            .by_owner
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *table = by_owner.collect();
    }

    /// The secrets of an owner of streams.
    pub(crate) fn of_owner(&self, owner: Owner) -> Option<Arc<[WebhookSecret]>> {
        let table = self.by_owner.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&owner).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";

    #[test]
    fn signature_equals_the_reference() {
        let secret = WebhookSecret::parse(SECRET).expect("a secret");
        let signature = secret.signature(ID, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_sign_twice() {
        let other = WebhookSecret::to_text(&[7; 32]);
        let secrets = [SECRET, &other].map(|text| WebhookSecret::parse(text).expect("a secret"));
        let both = signatures(&secrets, ID, 5, "{}");
        let each: Vec<_> = both.split(' ').collect();
        assert_eq!(each.len(), 2);
        for (secret, signature) in secrets.iter().zip(each) {
            assert_eq!(secret.signature(ID, 5, "{}"), signature);
        }
    }

    #[test]
    fn text_that_is_no_secret_is_rejected_without_being_repeated() {
        for text in [
            "",
            "whsec_",
            "whsec_AAAA",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS?",
            &WebhookSecret::to_text(&[1; 65]),
        ] {
            let why = WebhookSecret::parse(text).expect_err(text);
            assert!(!why.contains("MfKQ"), "{why}");
        }
    }

    #[test]
    fn owner_without_a_secret_has_none() {
        let secrets = WebhookSecrets::default();
        let key = KeyHash::of(b"a key");
        let secret = || vec![WebhookSecret::parse(SECRET).expect("a secret")];
        secrets.replace([(Some(key), secret()), (None, Vec::new())]);
        assert!(secrets.of_owner(key.stream_owner()).is_some());
        assert!(secrets.of_owner(ANONYMOUS).is_none());
        secrets.replace([(None, secret())]);
        assert!(secrets.of_owner(key.stream_owner()).is_none());
        assert!(secrets.of_owner(ANONYMOUS).is_some());
    }
}
