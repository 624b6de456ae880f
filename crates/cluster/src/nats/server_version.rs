//! Versions of NATS servers, and which of them are used.

use std::fmt;

/// Version of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion(pub u32, pub u32, pub u32);

/// Oldest server that is used: that of Debian 12, with which the tests run.
pub const VERSION_FLOOR: ServerVersion = ServerVersion(2, 9, 10);

/// Oldest server without a notice. Older ones were seen to lose whole streams of JetStream when a server is killed
/// (up to 2.10.22), or when files are damaged (up to 2.12.2).
pub const RECOMMENDED: ServerVersion = ServerVersion(2, 12, 3);

impl ServerVersion {
    /// Reads `2.12.8`, `v2.12.8` and `2.13.0-RC.1`. `None`: no version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let release = text.split(['-', '+']).next()?;
        let mut parts = release.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        let parse = |text| ServerVersion::parse(text).unwrap();
        assert!(parse("2.9.9") < VERSION_FLOOR);
        assert!(parse("2.10.0") > VERSION_FLOOR);
        assert_eq!(parse("v2.12.3-RC.1"), RECOMMENDED);
        assert_eq!(parse("2.9.10").to_string(), "2.9.10");
        for bad in ["", "2", "2.9", "2.9.x", "2.9.10.1", "new"] {
            assert_eq!(ServerVersion::parse(bad), None, "{bad}");
        }
    }
}
