//! The file that holds the server's keys (names and hashes, never a key) and the secrets that sign events; its atomic
//! changes, one at a time; and the API keys of a running server, from flags, environment and key file.

#[cfg(test)]
mod tests;

use crate::config::{Config, SecretTexts, parse_secrets};
use crate::operator_file;
use serde::{Deserialize, Serialize};
use server::{Key, KeyHash, KeyLimits, KeyProblem, Keys, Scope, WebhookSecret, WebhookSecrets};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a key file: 1024 keys of a thousand bytes each.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a key file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyFile {
    pub(crate) keys: Vec<Entry>,
}

/// One key of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// BLAKE3 of the key's text, in hexadecimal.
    pub(crate) hash: String,
    pub(crate) scopes: Vec<String>,
    #[serde(default)]
    pub(crate) limits: Limits,
    #[serde(default = "one")]
    pub(crate) weight: u32,
    /// Secrets that sign events for webhooks, the newest first: at most two, the second while receivers change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) webhook_secrets: Vec<String>,
    /// Time of creation (RFC 3339), for people.
    #[serde(default)]
    pub(crate) created: String,
}

/// Limits of a key; a missing one is no limit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrent_streams: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_per_min: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_min: Option<NonZeroU32>,
}

fn one() -> u32 {
    1
}

impl KeyFile {
    /// Reads a file. An empty file has no keys.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let (text, metadata) = operator_file::read(path, FILE_BYTES_MAX)?;
        refuse_writable(&metadata).map_err(|why| format!("{shown}: {why}"))?;
        parse_keys(&text).map_err(|why| format!("{shown}: {why}"))
    }

    /// The keys as the server knows them.
    pub(crate) fn keys(&self) -> Result<Vec<Key>, String> {
        self.keys.iter().map(Entry::key).collect()
    }

    /// The secrets of events for webhooks, by key.
    pub(crate) fn webhook_secrets(&self) -> Result<Vec<(KeyHash, Vec<WebhookSecret>)>, String> {
        self.keys.iter().map(Entry::secrets).collect()
    }

    /// The first reason for which no server would accept these keys.
    pub(crate) fn check(&self) -> Result<(), String> {
        server::Keys::new(&self.keys()?).map_err(|problems| problems[0].to_string())?;
        self.webhook_secrets().map(drop)
    }

    fn to_yaml(&self) -> Result<String, String> {
        let yaml = serde_saphyr::to_string(self).map_err(|why| why.to_string())?;
        Ok(format!("{HEADING}{}\n", yaml.trim_end()))
    }
}

/// The first lines of a key file that `millrace keys` wrote.
const HEADING: &str = "\
# Keys of a millrace server, kept by `millrace keys`. Each hash is BLAKE3 of a key; the keys
# themselves are nowhere, but the secrets of webhooks are here. A running server reads this again on SIGHUP.
";

impl Entry {
    fn key_hash(&self) -> Result<KeyHash, String> {
        KeyHash::from_hex(&self.hash)
            .ok_or_else(|| format!("key {:?}: a hash has 64 hexadecimal digits", self.name))
    }

    fn secrets(&self) -> Result<(KeyHash, Vec<WebhookSecret>), String> {
        let secrets = parse_secrets(&self.webhook_secrets);
        let secrets = secrets.map_err(|why| format!("key {:?}: {why}", self.name))?;
        Ok((self.key_hash()?, secrets))
    }

    fn key(&self) -> Result<Key, String> {
        let scope = |name: &String| {
            Scope::from_name(name).ok_or_else(|| {
                let names = Scope::ALL.map(Scope::name).join(", ");
                format!("key {:?}: no scope {name:?}; there are {names}", self.name)
            })
        };
        let hash = self.key_hash()?;
        Ok(Key {
            name: self.name.clone(),
            hash,
            scopes: self.scopes.iter().map(scope).collect::<Result<_, _>>()?,
            limits: KeyLimits {
                concurrent_streams: self.limits.concurrent_streams,
                requests_per_min: self.limits.requests_per_min,
                tokens_per_min: self.limits.tokens_per_min,
            },
            weight: self.weight,
        })
    }
}

fn parse_keys(text: &str) -> Result<KeyFile, String> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Ok(KeyFile::default());
    }
    operator_file::parse_yaml(text)
}

/// Rejects a file that other users can write: write permission lets them add keys.
fn refuse_writable(metadata: &std::fs::Metadata) -> Result<(), String> {
    if operator_file::is_writable_by_all(metadata) {
        Err("this file is writable by all users: chmod o-w".to_owned())
    } else {
        Ok(())
    }
}

/// A change in progress. The new file is next to the old one under a name that only one process can create, which makes
/// the new file the lock, too; dropping the edit without [`Edit::commit`] leaves the old file unchanged.
#[derive(Debug)]
pub(crate) struct Edit {
    path: PathBuf,
    /// Path of the new file; `None` after the rename.
    beside: Option<PathBuf>,
    new: File,
    pub(crate) file: KeyFile,
}

impl Edit {
    /// Begins to change the file at `path`, which may not exist yet.
    pub(crate) fn begin(path: &Path) -> Result<Self, String> {
        // Links are followed: the rename shall replace the file, not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut beside = path.clone().into_os_string();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let new = private_files::create_new(&beside).map_err(|why| match why.kind() {
            ErrorKind::AlreadyExists => format!(
                "{}: another process is changing the keys (if it was interrupted, remove this file)",
                beside.display()
            ),
            ErrorKind::NotFound => format!("{}: its folder does not exist", path.display()),
            _ => format!("{}: {why}", beside.display()),
        })?;
        // From here on the drop removes the new file.
        let mut edit = Self {
            path,
            beside: Some(beside),
            new,
            file: KeyFile::default(),
        };
        if edit.path.exists() {
            edit.file = KeyFile::read(&edit.path)?;
        }
        Ok(edit)
    }

    /// Puts the changed file in the old one's place.
    pub(crate) fn commit(mut self) -> Result<(), String> {
        self.file.check()?;
        let yaml = self.file.to_yaml()?;
        self.replace_file(&yaml)
            .map_err(|why| format!("{}: {why}", self.path.display()))
    }

    fn replace_file(&mut self, yaml: &str) -> std::io::Result<()> {
        let folder = self.path.parent().filter(|f| !f.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        match std::fs::metadata(&self.path) {
            Ok(old) => operator_file::keep_owner(&old, &self.new)?,
            Err(_) => operator_file::give_to_folder(&folder, &self.new)?,
        }
        self.new.write_all(yaml.as_bytes())?;
        self.new.sync_all()?;
        if let Some(beside) = &self.beside {
            std::fs::rename(beside, &self.path)?;
        }
        // The name is free for the next edit, whose file this drop must not remove.
        self.beside = None;
        private_files::sync_directory(&folder)
    }
}

impl Drop for Edit {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}

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
