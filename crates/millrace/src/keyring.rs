//! The API keys of a running server, from flags, environment and key file.

use crate::config::Config;
use crate::key_file::KeyFile;
use server::{Key, KeyProblem, Keys};
use std::path::PathBuf;
use std::sync::Arc;

/// The sources of keys, and the server's view of them.
pub(crate) struct Keyring {
    file: Option<PathBuf>,
    from_environment: Vec<Key>,
    pub(crate) keys: Arc<Keys>,
}

impl Keyring {
    /// Reads all keys. Without a key file and keys in the environment the server needs no authentication.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let mut ring = Self {
            file: config.settings.keys.file.clone(),
            from_environment: config.api_keys.clone(),
            keys: Arc::new(Keys::anonymous()),
        };
        if ring.file.is_some() || !ring.from_environment.is_empty() {
            ring.keys =
                Arc::new(Keys::new(&ring.read()?).map_err(|problems| problem_lines(&problems))?);
        }
        Ok(ring)
    }

    /// Whether there is a file to read again.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Sets the key file for the next reload.
    pub(crate) fn set_file(&mut self, file: Option<PathBuf>) {
        self.file = file;
    }

    /// Reads the key file again: the number of keys now, or the reason for keeping the old keys.
    pub(crate) fn reload(&self) -> Result<usize, String> {
        let keys = self.read()?;
        self.keys
            .replace(&keys)
            .map_err(|problems| problem_lines(&problems))?;
        Ok(keys.len())
    }

    fn read(&self) -> Result<Vec<Key>, String> {
        let mut keys = self.from_environment.clone();
        if let Some(path) = &self.file {
            keys.extend(KeyFile::read(path)?.keys()?);
        }
        Ok(keys)
    }
}

fn problem_lines(problems: &[KeyProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(KeyProblem::to_string).collect();
    lines.join("; ")
}
