//! The file with earlier inputs: `millrace/chat-history` in `$XDG_STATE_HOME` or `~/.local/state`.

use std::path::{Path, PathBuf};

/// Inputs that are kept.
pub(super) const ENTRIES_MAX: usize = 1000;
/// Bytes of the longest input that is kept.
pub(super) const ENTRY_BYTES_MAX: usize = 16 << 10;

/// The path of the history file, in a folder that exists. `None`: there is no such folder, or something else than a file is
/// there, which would block; inputs are kept for this conversation only.
pub(super) fn history_path() -> Option<PathBuf> {
    let path = state_path(|name| std::env::var_os(name).map(PathBuf::from))?;
    std::fs::create_dir_all(path.parent()?).ok()?;
    is_file_or_free(&path).then_some(path)
}

fn is_file_or_free(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

fn state_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The base directory specification ignores relative paths.
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(Path::new(".local/state")));
    let state = absolute("XDG_STATE_HOME").or_else(home)?;
    Some(state.join("millrace/chat-history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_no_history() {
        let folder = testing::folder::Folder::new("chat-history");
        let socket = folder.0.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let file = folder.0.join("file");
        std::fs::write(&file, "hi").unwrap();
        let free = folder.0.join("free");
        for (path, want) in [
            (&folder.0, false),
            (&socket, false),
            (&file, true),
            (&free, true),
        ] {
            assert_eq!(is_file_or_free(path), want, "{path:?}");
        }
    }

    #[test]
    fn history_file_is_in_the_state_folder() {
        let rows = [
            (Some("/s"), Some("/h"), Some("/s/millrace/chat-history")),
            (
                None,
                Some("/h"),
                Some("/h/.local/state/millrace/chat-history"),
            ),
            (
                Some("s"),
                Some("/h"),
                Some("/h/.local/state/millrace/chat-history"),
            ),
            (None, None, None),
        ];
        for (state, home, want) in rows {
            let path = state_path(|name| {
                let value = if name == "HOME" { home } else { state };
                value.map(PathBuf::from)
            });
            assert_eq!(path, want.map(PathBuf::from), "{state:?} {home:?}");
        }
    }
}
