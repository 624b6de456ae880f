//! Names that were given to models: a small file each, beside the models of the first directory.

use super::name::ModelName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use server::Made;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Where records are, under the first directory.
const FOLDER: &str = "names";
/// Bytes of a record: what a made model may say.
pub(super) const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Records that are read; more are as if they were not there.
pub(super) const RECORDS_MAX: usize = 4096;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Path of the file relative to the model directory; `None`: the built-in model.
    pub(crate) file: Option<String>,
    /// The sum of that file's content, where it was pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// How it is asked, where it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<MadeRecord>,
    /// Whether `pull` fetched its file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pulled: bool,
}

impl Record {
    /// Whether `pull` fetched its file. Only what was fetched has a sum of its content.
    pub(super) fn is_pulled(&self) -> bool {
        self.pulled || self.sha256.is_some()
    }
}

/// How a made model is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MadeRecord {
    parent: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    options: Map<String, Value>,
}

impl From<Made> for MadeRecord {
    fn from(made: Made) -> Self {
        Self {
            parent: made.parent,
            system: made.system,
            template: made.template,
            options: made.options,
        }
    }
}

impl From<MadeRecord> for Made {
    fn from(made: MadeRecord) -> Self {
        Self {
            parent: made.parent,
            system: made.system,
            template: made.template,
            options: made.options,
        }
    }
}

/// The records of a directory.
pub(super) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            folder: directory.join(FOLDER),
        }
    }

    /// What a name stands for; `None` also where its record cannot be read.
    pub(super) fn get(&self, name: &ModelName) -> Option<Record> {
        let path = self.folder.join(name.file_name());
        let file = std::fs::File::open(&path).ok()?;
        let mut text = String::new();
        file.take(RECORD_BYTES_MAX).read_to_string(&mut text).ok()?;
        let record = serde_json::from_str(&text);
        if let Err(why) = &record {
            tracing::warn!("{}: not a model record: {why}", path.display());
        }
        record.ok()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<(ModelName, Record)> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let names = entries
            .take(RECORDS_MAX)
            .filter_map(|entry| ModelName::of_file_name(entry.ok()?.file_name().to_str()?));
        let mut all: Vec<_> = names
            .filter_map(|name| self.get(&name).map(|record| (name, record)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Has a name stand for something: whoever looks sees all of the record or none.
    pub(super) fn put(&self, name: &ModelName, record: &Record) -> io::Result<()> {
        let text = serde_json::to_string_pretty(record)?;
        if text.len() as u64 >= RECORD_BYTES_MAX {
            let words = format!("a model record may have at most {RECORD_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(name.file_name());
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let mut file = std::fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    }

    /// Takes a name away.
    pub(super) fn remove(&self, name: &ModelName) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(name.file_name()))
    }
}
