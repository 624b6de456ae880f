//! The records of names: each in a small file, next to the models of the first model directory or in the user's data.

use super::name::ModelName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use server::DerivedModel;
use std::collections::BTreeSet;
use std::io;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Folder of the records in a model directory.
const FOLDER: &str = "names";
/// Bytes of a record, which bounds a derived model's texts.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Records that are read; further ones are ignored.
const RECORDS_MAX: usize = 4096;

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

/// The records of one model directory. A pulled model has its record in `names/` in that directory. Other names are recorded there
/// too if the folder is there already; otherwise in the user's data, since a directory that only has models may be a checkout, or
/// be shared.
pub(super) struct Records {
    /// `names/` in the model directory.
    in_models: PathBuf,
    /// The folder in the user's data; `None`: all records are in the model directory.
    apart: Option<PathBuf>,
}

impl Records {
    pub(super) fn of(directory: &Path, apart: Option<PathBuf>) -> Self {
        Self {
            in_models: directory.join(FOLDER),
            apart,
        }
    }

    /// The folders with records. Where both have a name, the first has the newer record: the second could not be written.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let apart = self.apart.as_deref().into_iter();
        apart.chain([self.in_models.as_path()])
    }

    /// The record of a name; `None` also if the record cannot be read.
    pub(super) fn get(&self, name: &ModelName) -> Option<Record> {
        let mut paths = self.folders().map(|folder| folder.join(name.file_name()));
        paths.find_map(|path| read_record(&path))
    }

    /// All records, by name.
    pub(super) fn all(&self) -> Vec<(ModelName, Record)> {
        let entries = self
            .folders()
            .filter_map(|folder| std::fs::read_dir(folder).ok());
        let names: BTreeSet<ModelName> = entries
            .flat_map(|entries| entries.take(RECORDS_MAX))
            .filter_map(|entry| ModelName::of_file_name(entry.ok()?.file_name().to_str()?))
            .collect();
        let records = names.into_iter().filter_map(|name| {
            let record = self.get(&name)?;
            Some((name, record))
        });
        records.collect()
    }

    /// Stores a name's record atomically: a reader sees all of the record or none. Where the folder for the record cannot be
    /// written, the other one has it.
    pub(super) fn put(&self, name: &ModelName, record: &Record) -> io::Result<()> {
        let text = serde_json::to_string_pretty(record)?;
        if text.len() as u64 >= RECORD_BYTES_MAX {
            let words = format!("a model record may have at most {RECORD_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        let Some(apart) = &self.apart else {
            return write_record(&self.in_models, name, &text);
        };
        let is_in_models = record.is_pulled() || self.in_models.is_dir();
        if !is_in_models && write_record(apart, name, &text).is_ok() {
            return Ok(());
        }
        match write_record(&self.in_models, name, &text) {
            // An earlier record there would hide this one.
            Ok(()) => remove_file(&apart.join(name.file_name())).map(|_| ()),
            Err(_) if is_in_models && write_record(apart, name, &text).is_ok() => Ok(()),
            failed => failed,
        }
    }

    /// Removes a name's record.
    pub(super) fn remove(&self, name: &ModelName) -> io::Result<()> {
        let mut is_removed = false;
        for folder in self.folders() {
            is_removed |= remove_file(&folder.join(name.file_name()))?;
        }
        let absent = || Err(io::ErrorKind::NotFound.into());
        if is_removed { Ok(()) } else { absent() }
    }
}

fn read_record(path: &Path) -> Option<Record> {
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    file.take(RECORD_BYTES_MAX).read_to_string(&mut text).ok()?;
    let record = serde_json::from_str(&text);
    if let Err(why) = &record {
        tracing::warn!("{}: not a model record: {why}", path.display());
    }
    record.ok()
}

fn write_record(folder: &Path, name: &ModelName, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(name.file_name());
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, &path)
}

/// Removes a file; false: there is none, as in a folder that this user may not enter.
fn remove_file(path: &Path) -> io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    std::fs::remove_file(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::folder::Folder;

    fn record(file: &str, pulled: bool) -> Record {
        Record {
            file: Some(file.to_owned()),
            sha256: None,
            made: None,
            pulled,
        }
    }

    /// Promise (Models): a name that is copied or derived is not written into a folder that only has models; names that are
    /// there already are read and changed there.
    #[test]
    fn names_are_in_the_users_data_unless_the_models_have_names_already() {
        let folder = Folder::new("records");
        let (models, apart) = (folder.0.join("models"), folder.0.join("data/names"));
        let records = Records::of(&models, Some(apart.clone()));
        let [tiny, old, pulled] =
            ["tiny", "team/old:v1", "pulled"].map(|name| ModelName::parse(name).unwrap());
        let names = |records: &Records| -> Vec<String> {
            let all = records.all().into_iter();
            all.map(|(name, record)| format!("{name} {}", record.file.unwrap()))
                .collect()
        };
        std::fs::create_dir_all(&models).unwrap();
        records.put(&tiny, &record("a", false)).unwrap();
        assert_eq!(std::fs::read_dir(&models).unwrap().count(), 0);
        assert!(apart.join("tiny.json").is_file());
        // Names of an earlier version, and of a pull.
        Records::of(&models, None)
            .put(&old, &record("b", false))
            .unwrap();
        records.put(&pulled, &record("c", true)).unwrap();
        assert!(models.join("names/pulled.json").is_file());
        assert_eq!(names(&records), ["pulled c", "team/old:v1 b", "tiny a"]);
        // From now on all are there, also one that was in the user's data.
        records.put(&tiny, &record("d", false)).unwrap();
        assert_eq!(std::fs::read_dir(&apart).unwrap().count(), 0);
        assert_eq!(records.get(&tiny), Some(record("d", false)));
        for name in [&tiny, &old, &pulled] {
            records.remove(name).unwrap();
            let again = records.remove(name).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(names(&records), [""; 0]);
    }

    #[test]
    fn folder_that_cannot_be_written_is_replaced_by_the_other() {
        let folder = Folder::new("records-full");
        let name = ModelName::parse("tiny").unwrap();
        // No folder can be made below a file.
        let file = folder.0.join("file");
        std::fs::write(&file, "").unwrap();
        for (models, apart, pulled) in [("models", "file/data", false), ("file", "data", true)] {
            let records = Records::of(&folder.0.join(models), Some(folder.0.join(apart)));
            records.put(&name, &record("a", pulled)).unwrap();
            assert_eq!(records.get(&name), Some(record("a", pulled)), "{models}");
        }
        let records = Records::of(&file, Some(file.join("data")));
        assert!(records.put(&name, &record("a", false)).is_err());
    }
}
