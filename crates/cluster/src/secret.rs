//! The secret that the gateways of a cluster share: what they say about themselves, and in the name of a caller, is
//! authenticated with it. Engines do not have it.

use crate::nats::read_secret;
use std::fmt;
use std::path::Path;

/// Characters of the text in the file, which is to be random.
const CHARS_MIN: usize = 32;
/// Context of the key that is derived from the text.
const KEY_CONTEXT: &str = "millrace 2026-11 secret of the gateways of a cluster";

/// A secret; its text is not kept.
#[derive(Clone)]
pub struct ClusterSecret([u8; 32]);

impl ClusterSecret {
    /// The secret in the first line of a file that is no comment.
    ///
    /// # Errors
    /// The file cannot be read, or the text is too short to be a secret.
    pub fn read(path: &Path) -> Result<Self, String> {
        const SETTING: &str = "cluster.secret_file";
        let text = read_secret(SETTING, path).map_err(|why| why.to_string())?;
        match text.len() {
            CHARS_MIN.. => Ok(Self::of(&text)),
            length => Err(format!(
                "{SETTING}: {} has {length} characters; at least {CHARS_MIN} random ones (`openssl rand -hex 32`)",
                path.display()
            )),
        }
    }

    /// The secret of a text.
    pub fn of(text: &str) -> Self {
        Self(blake3::derive_key(KEY_CONTEXT, text.as_bytes()))
    }

    /// The code of these parts, in this order, for this purpose.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            // With its length, so that no two lists of parts are the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Mac(hasher.finalize())
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// A message authentication code.
pub struct Mac(blake3::Hash);

impl Mac {
    /// 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.to_hex().to_string()
    }

    /// Whether these are the digits of this code; takes equally long for all codes.
    pub fn is(&self, hex: &str) -> bool {
        blake3::Hash::from_hex(hex).is_ok_and(|other| other == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::folder::Folder;

    #[test]
    fn codes_differ_by_secret_purpose_and_parts() {
        let (a, b) = (ClusterSecret::of("a"), ClusterSecret::of("b"));
        let code = a.mac("p", &[b"xy", b"z"]);
        assert!(code.is(&a.mac("p", &[b"xy", b"z"]).to_hex()));
        for other in [
            b.mac("p", &[b"xy", b"z"]),
            a.mac("q", &[b"xy", b"z"]),
            a.mac("p", &[b"x", b"yz"]),
            a.mac("p", &[b"xyz"]),
            a.mac("pxy", &[b"z"]),
        ] {
            assert!(!code.is(&other.to_hex()));
        }
        assert!(!code.is("") && !code.is("zz") && !code.is(&code.to_hex()[..62]));
        assert_eq!(format!("{a:?}"), "ClusterSecret(..)");
    }

    #[test]
    fn file_with_a_short_secret_is_rejected() {
        let folder = Folder::new("cluster-secret");
        let path = folder.0.join("secret");
        std::fs::write(&path, format!("# gateways\n{}\n", "a".repeat(32))).unwrap();
        assert!(ClusterSecret::read(&path).is_ok());
        std::fs::write(&path, "hunter2\n").unwrap();
        let why = ClusterSecret::read(&path).unwrap_err();
        assert!(why.contains("cluster.secret_file") && why.contains("7 characters; at least 32"));
        assert!(!why.contains("hunter2"));
        let missing = ClusterSecret::read(&folder.0.join("missing")).unwrap_err();
        assert!(missing.starts_with("cluster.secret_file: "), "{missing}");
    }
}
