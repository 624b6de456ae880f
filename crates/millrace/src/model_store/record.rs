//! Records: names given to models, each in a small file beside the models of the first model directory.

use super::names::ModelName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use server::DerivedModel;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Folder of the records in the first model directory.
const FOLDER: &str = "names";
/// Bytes of a record, which bounds a derived model's texts.
pub(super) const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Records that are read; further ones are ignored.
pub(super) const RECORDS_MAX: usize = 4096;

/// The model that a name stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Path of the file relative to the model directory; `None`: the built-in model.
    pub(crate) file: Option<String>,
    /// SHA-256 of the file's content, if `pull` downloaded the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// Defaults of a derived model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<MadeRecord>,
    /// Whether `pull` downloaded the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) pulled: bool,
}

impl Record {
    /// Whether `pull` downloaded the file. Only a downloaded file has a `sha256`, also in records without `pulled`.
    pub(super) fn is_pulled(&self) -> bool {
        self.pulled || self.sha256.is_some()
    }
}

/// Base model and defaults of a derived model.
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

impl From<DerivedModel> for MadeRecord {
    fn from(made: DerivedModel) -> Self {
        Self {
            parent: made.parent,
            system: made.system,
            template: made.template,
            options: made.options,
        }
    }
}

impl From<MadeRecord> for DerivedModel {
    fn from(made: MadeRecord) -> Self {
        Self {
            parent: made.parent,
            system: made.system,
            template: made.template,
            options: made.options,
            adapter: None,
        }
    }
}

/// The records of one model directory.
pub(super) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            folder: directory.join(FOLDER),
        }
    }

    /// The record of a name; `None` also if the record cannot be read.
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

    /// All records, by name.
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

    /// Stores a name's record atomically: a reader sees all of the record or none.
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

    /// Removes a name's record.
    pub(super) fn remove(&self, name: &ModelName) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(name.file_name()))
    }
}
