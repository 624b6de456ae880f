//! Checksums of a hub's files: the SHA-256 of large files, and git's object id of the others, which is the SHA-1 of
//! `blob`, the length and the content.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// An expected checksum in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// 64 digits.
    Sha256(String),
    /// 40 digits.
    Git(String),
}

/// A checksum in computation.
pub(super) enum Summing {
    Sha256(Sha256),
    Git(Sha1),
}

impl Sum {
    /// The checksum, if the digits are valid.
    pub(super) fn sha256(digits: &str) -> Option<Self> {
        parse_digits(digits, 64).map(Self::Sha256)
    }

    /// The checksum, if the digits are valid.
    pub(super) fn git(digits: &str) -> Option<Self> {
        parse_digits(digits, 40).map(Self::Git)
    }

    pub(super) fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Git(digits) => digits,
        }
    }

    /// Name of the hash function.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "SHA-256",
            Self::Git(_) => "git sum (SHA-1)",
        }
    }

    /// The digits with a prefix for the kind.
    pub(super) fn digest(&self) -> String {
        let kind = match self {
            Self::Sha256(_) => "sha256",
            Self::Git(_) => "git",
        };
        format!("{kind}:{}", self.digits())
    }

    /// Begins a checksum of this kind for a file of `bytes` bytes.
    pub(super) fn begin(&self, bytes: u64) -> Summing {
        match self {
            Self::Sha256(_) => Summing::Sha256(Sha256::new()),
            Self::Git(_) => {
                let mut sum = Sha1::new();
                sum.update(format!("blob {bytes}\0"));
                Summing::Git(sum)
            }
        }
    }
}

impl Summing {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Git(sum) => sum.update(bytes),
        }
    }

    /// Hexadecimal digits of the finished checksum.
    pub(super) fn finish(self) -> String {
        match self {
            Self::Sha256(sum) => hex_digits(&sum.finalize()),
            Self::Git(sum) => hex_digits(&sum.finalize()),
        }
    }
}

fn parse_digits(digits: &str, count: usize) -> Option<String> {
    let right = digits.len() == count && digits.bytes().all(|b| b.is_ascii_hexdigit());
    right.then(|| digits.to_ascii_lowercase())
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_git_and_of_sha256() {
        // `printf 'hello\n' | git hash-object --stdin`, `printf 'hello\n' | sha256sum`
        let rows = [
            Sum::git("CE013625030BA8DBA906F756967F9E9CA394464A").unwrap(),
            Sum::sha256("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
                .unwrap(),
        ];
        for sum in rows {
            let mut summing = sum.begin(6);
            summing.update(b"hel");
            summing.update(b"lo\n");
            assert_eq!(summing.finish(), sum.digits());
        }
        assert_eq!(Sum::git("0"), None);
        assert_eq!(Sum::sha256(&"g".repeat(64)), None);
    }
}
