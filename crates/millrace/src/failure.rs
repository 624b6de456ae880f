//! Why a command failed, and who can act on it.

use crate::config::ConfigError;
use std::fmt;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the user asked for cannot be done as it was asked.
    User(String),
    /// The reader of our output is gone: nothing is left to be said, and nobody to say it to.
    BrokenPipe,
    /// Nobody's fault but ours.
    Bug(String),
}

impl Failure {
    /// The user can act: the words say on what.
    pub(crate) fn user(why: impl fmt::Display) -> Self {
        Self::User(why.to_string())
    }

    /// The system has no thread of this name to give.
    pub(crate) fn no_thread(name: &str, why: &std::io::Error) -> Self {
        Self::user(format!(
            "no thread {name:?}: {why} (the limit is that of processes, ulimit -u, or pids.max of the control group)"
        ))
    }

    /// Nobody but us can act.
    pub(crate) fn bug(why: impl fmt::Display) -> Self {
        Self::Bug(why.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(why) => f.write_str(why),
            Self::BrokenPipe => f.write_str("the output was closed by its reader"),
            Self::Bug(why) => write!(f, "this is a bug in millrace: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::user(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::user(error),
        }
    }
}
