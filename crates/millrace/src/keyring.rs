//! The API keys of a running server, from flags, environment and key file.

use crate::config::{Config, SecretTexts};
use crate::key_file::KeyFile;
use server::{Key, KeyHash, KeyProblem, Keys, WebhookSecret, WebhookSecrets};
use std::path::PathBuf;
use std::sync::Arc;

/// The sources of keys, and the server's view of them.
pub(crate) struct Keyring {
    file: Option<PathBuf>,
    from_environment: Vec<Key>,
    secrets_of_environment: SecretTexts,
    pub(crate) keys: Arc<Keys>,
    pub(crate) webhook_secrets: Arc<WebhookSecrets>,
}

impl Keyring {
    /// Reads all keys. Without a key file and keys in the environment the server needs no authentication.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let mut ring = Self {
            file: config.settings.keys.file.clone(),
            from_environment: config.api_keys.clone(),
            secrets_of_environment: config.webhook_secrets.clone(),
            keys: Arc::new(Keys::anonymous()),
            webhook_secrets: Arc::default(),
        };
        let (keys, secrets) = ring.read()?;
        if ring.file.is_some() || !ring.from_environment.is_empty() {
            ring.keys = Arc::new(Keys::new(&keys).map_err(|problems| problem_lines(&problems))?);
        }
        ring.webhook_secrets.replace(secrets);
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
        let (keys, secrets) = self.read()?;
        self.keys
            .replace(&keys)
            .map_err(|problems| problem_lines(&problems))?;
        self.webhook_secrets.replace(secrets);
        Ok(keys.len())
    }

    /// The keys and their secrets. Those of the environment share a secret, which is also that of a server without keys.
    fn read(&self) -> Result<(Vec<Key>, OwnedSecrets), String> {
        let mut keys = self.from_environment.clone();
        let hashes = keys.iter().map(|key| Some(key.hash)).chain([None]);
        let own = self.secrets_of_environment.secrets()?;
        let mut secrets: OwnedSecrets = hashes.map(|hash| (hash, own.clone())).collect();
        if let Some(path) = &self.file {
            let file = KeyFile::read(path)?;
            file.check()
                .map_err(|why| format!("{}: {why}", path.display()))?;
            keys.extend(file.keys()?);
            let of_file = file.webhook_secrets()?.into_iter();
            secrets.extend(of_file.map(|(hash, secrets)| (Some(hash), secrets)));
        }
        Ok((keys, secrets))
    }
}

/// Secrets by key; those of the key `None` are of a server without keys.
type OwnedSecrets = Vec<(Option<KeyHash>, Vec<WebhookSecret>)>;

fn problem_lines(problems: &[KeyProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(KeyProblem::to_string).collect();
    lines.join("; ")
}
