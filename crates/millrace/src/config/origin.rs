//! The origin of a setting's value.

use std::fmt;

/// The layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Built in.
    Default,
    /// The preset of this name.
    Preset(&'static str),
    /// The configuration file with this path.
    File(String),
    /// This environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}
