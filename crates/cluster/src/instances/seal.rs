//! The seal of a heartbeat: a code over the whole message, by the secret of the gateways, in a header field of the message.

use crate::secret::ClusterSecret;
use async_nats::HeaderMap;

/// Header field of the code.
const FIELD: &str = "Millrace-Seal";
/// Purpose of the code.
const PURPOSE: &str = "heartbeat";

/// What the seal says of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// This instance has no secret.
    NotChecked,
    /// An instance with the secret of this one has sent the message, at any time.
    Valid,
    /// There is none, or one by another secret.
    Missing,
}

/// The header with the seal of a message.
pub(super) fn header(secret: &ClusterSecret, subject: &str, message: &[u8]) -> HeaderMap {
    let mut header = HeaderMap::new();
    let code = secret.mac(PURPOSE, &[subject.as_bytes(), message]);
    header.insert(FIELD, code.to_hex());
    header
}

/// What the header of a message says.
pub(super) fn check(
    secret: Option<&ClusterSecret>,
    header: Option<&HeaderMap>,
    subject: &str,
    message: &[u8],
) -> Seal {
    let Some(secret) = secret else {
        return Seal::NotChecked;
    };
    let code = secret.mac(PURPOSE, &[subject.as_bytes(), message]);
    let told = header.and_then(|header| header.get(FIELD));
    if told.is_some_and(|told| code.is(told.as_str())) {
        Seal::Valid
    } else {
        Seal::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_is_valid_for_its_message_subject_and_secret_only() {
        let (secret, other) = (ClusterSecret::of("a"), ClusterSecret::of("b"));
        let sealed = header(&secret, "mr.c.hb", b"{}");
        let check = |secret, subject, message| check(secret, Some(&sealed), subject, message);
        assert_eq!(check(Some(&secret), "mr.c.hb", b"{}"), Seal::Valid);
        assert_eq!(check(Some(&secret), "mr.d.hb", b"{}"), Seal::Missing);
        assert_eq!(check(Some(&secret), "mr.c.hb", b"{} "), Seal::Missing);
        assert_eq!(check(Some(&other), "mr.c.hb", b"{}"), Seal::Missing);
        assert_eq!(check(None, "mr.c.hb", b"{}"), Seal::NotChecked);
        let none = super::check(Some(&secret), None, "mr.c.hb", b"{}");
        assert_eq!(none, Seal::Missing);
    }
}
