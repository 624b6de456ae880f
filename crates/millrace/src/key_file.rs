//! The file that holds the server's keys: names and hashes, never a key; and the secrets that sign events.

use crate::config::parse_secrets;
use crate::{file_owner, settings_file};
use serde::{Deserialize, Serialize};
use server::{Key, KeyHash, KeyLimits, Scope, WebhookSecret};
use std::num::NonZeroU32;
use std::path::Path;

mod edit;

pub(crate) use edit::Edit;

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
        let (text, metadata) = settings_file::read(path, FILE_BYTES_MAX)?;
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
    settings_file::parse_yaml(text)
}

/// Rejects a file that other users can write: write permission lets them add keys.
fn refuse_writable(metadata: &std::fs::Metadata) -> Result<(), String> {
    if file_owner::is_writable_by_all(metadata) {
        Err("this file is writable by all users: chmod o-w".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
