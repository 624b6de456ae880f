//! The keys of a running server, from all the places they come from.

use crate::config::Config;
use crate::key_file::KeyFile;
use server::{Key, KeyProblem, Keys};
use std::path::PathBuf;
use std::sync::Arc;

/// Where keys come from, and the server's view of them.
pub(crate) struct Keyring {
    file: Option<PathBuf>,
    from_environment: Vec<Key>,
    pub(crate) keys: Arc<Keys>,
}

impl Keyring {
    /// Reads all keys. Without a file and without keys in the environment, none are asked for.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let mut ring = Self {
            file: config.settings.keys.file.clone(),
            from_environment: config.api_keys.clone(),
            keys: Arc::new(Keys::anonymous()),
        };
        if ring.file.is_some() || !ring.from_environment.is_empty() {
            ring.keys = Arc::new(Keys::new(&ring.read()?).map_err(|problems| told(&problems))?);
        }
        Ok(ring)
    }

    /// Whether there is a file to read again.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// From now on keys come from this file.
    pub(crate) fn follow(&mut self, file: Option<PathBuf>) {
        self.file = file;
    }

    /// Reads the file again: how many keys there are now, or why they stay as they were.
    pub(crate) fn reload(&self) -> Result<usize, String> {
        let keys = self.read()?;
        self.keys
            .replace(&keys)
            .map_err(|problems| told(&problems))?;
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

fn told(problems: &[KeyProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(KeyProblem::to_string).collect();
    lines.join("; ")
}
