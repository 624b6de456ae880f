//! A text that no log shows.

use std::fmt;

/// A text that no log shows.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The first of several texts, separated by commas: the variable of a server's keys is also that of a client's key.
    pub(crate) fn first(&self) -> Self {
        let (first, _) = self.0.split_once(',').unwrap_or((&self.0, ""));
        Self(first.trim().to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
