//! Settings of the journal.

use super::ranges::{HOUR_MS, JOURNAL_BYTES_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most memory for the streams of an earlier process.
const RECOVERY_BYTES_MAX: u64 = 1 << 30;

/// The journal of durable streams, which continue after a restart of the server (docs/journal.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Journal {
    /// Directory of the journal, used by one process at a time; an empty text = no journal. Default: `millrace/journal/PORT` with the port of `server.bind`, in the user's directory for state (`$XDG_STATE_HOME` or `~/.local/state`, on macOS `~/Library/Application Support`); no journal with port 0.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "resumable streams outlive the process without configuration; a restart on the same port finds the streams"))]
    pub(crate) directory: Option<PathBuf>,
    /// Interval of syncs to the disk: a power loss loses at most that much, a killed process nothing. 0 = clients receive only what is synced.
    #[schemars(
        range(min = 0, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "ten syncs a second do not slow a disk, and a power loss is rarer than a crash")
    )]
    pub(crate) sync_ms: u64,
    /// Maximum bytes of the journal on the disk.
    #[schemars(
        range(min = JOURNAL_BYTES_MIN, max = 1_u64 << 40),
        extend("x-reload" = "restart", "x-reason" = "thirty million tokens of live streams, and as many again while these are rewritten")
    )]
    pub(crate) bytes_max: u64,
    /// Whether a journal that cannot be opened is an error at the start; if false, the server starts without one and logs the reason. Default: true where `journal.directory` is set.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a directory that was chosen must work; without a choice a read-only home must not prevent the start"))]
    pub(crate) required: Option<bool>,
}

impl Default for Journal {
    fn default() -> Self {
        let config = journal::JournalConfig::default();
        Self {
            directory: None,
            sync_ms: config.sync_interval.as_millis() as u64,
            bytes_max: config.bytes_max,
            required: None,
        }
    }
}

/// Where the journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalPlace {
    /// In this directory.
    Directory(PathBuf),
    /// The settings switch the journal off.
    Off,
    /// There is no default directory, for this reason.
    NoDefault(&'static str),
}

impl Journal {
    /// The directory, from the setting or from the environment.
    pub(crate) fn place(&self, bind: SocketAddr) -> JournalPlace {
        match &self.directory {
            Some(directory) if directory.as_os_str().is_empty() => JournalPlace::Off,
            Some(directory) => JournalPlace::Directory(directory.clone()),
            None => default_place(bind, |name| std::env::var_os(name).map(PathBuf::from)),
        }
    }

    /// Whether a journal that cannot be opened ends the start.
    pub(crate) fn is_required(&self) -> bool {
        self.required.unwrap_or(self.directory.is_some())
    }

    /// Sizes and times.
    pub(crate) fn config(&self) -> journal::JournalConfig {
        let recovery_bytes_max = self.bytes_max.min(RECOVERY_BYTES_MAX);
        journal::JournalConfig {
            bytes_max: self.bytes_max,
            sync_interval: Duration::from_millis(self.sync_ms),
            recovery_bytes_max: usize::try_from(recovery_bytes_max).unwrap_or(usize::MAX),
            ..journal::JournalConfig::default()
        }
    }
}

/// The user's directory for state, with a directory for each port: so two servers of one user have two journals, and a
/// restarted server has the journal of the process before.
fn default_place(bind: SocketAddr, variable: impl Fn(&str) -> Option<PathBuf>) -> JournalPlace {
    if bind.port() == 0 {
        return JournalPlace::NoDefault("server.bind has port 0");
    }
    // The base directory specification ignores relative paths.
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let of_home = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".local/state"
    };
    let home = || Some(absolute("HOME")?.join(Path::new(of_home)));
    match absolute("XDG_STATE_HOME").or_else(home) {
        Some(state) => {
            let port = bind.port().to_string();
            JournalPlace::Directory(state.join("millrace/journal").join(port))
        }
        None => JournalPlace::NoDefault("neither XDG_STATE_HOME nor HOME names a directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bind;
    use super::*;

    fn journal(directory: Option<&str>, required: Option<bool>) -> Journal {
        Journal {
            directory: directory.map(PathBuf::from),
            required,
            ..Journal::default()
        }
    }

    #[test]
    fn default_directory_has_the_port() {
        let rows = [
            (8420, Some("/s"), Some("/h"), "/s/millrace/journal/8420"),
            (80, None, Some("/h"), "/h/.local/state/millrace/journal/80"),
            (
                80,
                Some("s"),
                Some("/h"),
                "/h/.local/state/millrace/journal/80",
            ),
            (80, Some(""), None, ""),
            (80, None, Some("h"), ""),
            (0, Some("/s"), Some("/h"), ""),
        ];
        for (port, state, home, expected) in rows {
            let variable = |name: &str| {
                let value = if name == "HOME" { home } else { state };
                value.map(PathBuf::from)
            };
            let bind = SocketAddr::new(bind::default().ip(), port);
            let place = default_place(bind, variable);
            match expected {
                "" => assert!(matches!(place, JournalPlace::NoDefault(_)), "{place:?}"),
                // Another directory below the home.
                _ if cfg!(target_os = "macos") && state != Some("/s") => {}
                path => assert_eq!(place, JournalPlace::Directory(path.into())),
            }
        }
    }

    #[test]
    fn chosen_directory_is_required_unless_the_setting_denies() {
        let rows = [
            (None, None, false),
            (None, Some(true), true),
            (Some("/j"), None, true),
            (Some("/j"), Some(false), false),
        ];
        for (directory, required, expected) in rows {
            let journal = journal(directory, required);
            assert_eq!(
                journal.is_required(),
                expected,
                "{directory:?} {required:?}"
            );
        }
        let bind = bind::default();
        assert_eq!(journal(Some(""), None).place(bind), JournalPlace::Off);
        let place = journal(Some("/j"), None).place(bind);
        assert_eq!(place, JournalPlace::Directory("/j".into()));
    }
}
