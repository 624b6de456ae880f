//! Why a command failed: an error of the user or a bug.

use crate::config::ConfigError;
use std::fmt;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error that the user can correct.
    #[error("{0}")]
    User(String),
    /// A device has no memory for a model: it may when another model is unloaded.
    #[error("{0}")]
    #[cfg_attr(
        not(feature = "gpu"),
        expect(dead_code, reason = "this program opens no device")
    )]
    DeviceMemory(String),
    /// The reader of standard output is gone: no error is printed.
    #[error("the output was closed by its reader")]
    BrokenPipe,
    /// A bug of this program.
    #[error("this is a bug in millrace: {0}")]
    Bug(String),
}

impl Failure {
    /// An error that the user can correct; `why` names the cause.
    pub(crate) fn user(why: impl fmt::Display) -> Self {
        Self::User(why.to_string())
    }

    /// The system cannot start the thread `name`.
    pub(crate) fn no_thread(name: &str, why: &std::io::Error) -> Self {
        Self::user(format!(
            "no thread {name:?}: {why} (the limit is that of processes, ulimit -u, or pids.max of the control group)"
        ))
    }

    /// A bug of this program.
    pub(crate) fn bug(why: impl fmt::Display) -> Self {
        Self::Bug(why.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::user(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            std::io::ErrorKind::StorageFull => {
                Self::user(format!("cannot write the output: {error}"))
            }
            _ => Self::user(error),
        }
    }
}
