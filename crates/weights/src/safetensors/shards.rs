//! Weight files of a model: `model.safetensors`, or the files that `model.safetensors.index.json` names.

use super::SafetensorsError;
use super::error::bounded;
use super::header::Shard;
use super::limits::{INDEX_BYTES_MAX, SHARDS_MAX, TENSORS_MAX};
use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;
use std::path::{Component, Path};

/// All weights in one file.
pub const ONE: &str = "model.safetensors";
/// Weights in several files.
pub const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: Places,
}

/// File names by tensor name, at most [`TENSORS_MAX`].
struct Places(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Places;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of files' names by tensors' names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Places, A::Error> {
                let mut places = BTreeMap::new();
                while let Some((tensor, file)) = map.next_entry()? {
                    if places.len() == TENSORS_MAX {
                        let why = format_args!("more than {TENSORS_MAX} tensors");
                        return Err(de::Error::custom(why));
                    }
                    places.insert(tensor, file);
                }
                Ok(Places(places))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Opens all weight files of a folder.
pub(super) fn open(folder: &Path) -> Result<Vec<Shard>, SafetensorsError> {
    let (one, index) = (folder.join(ONE), folder.join(INDEX));
    if one.exists() {
        return Ok(vec![Shard::open(&one)?]);
    }
    if !index.exists() {
        return Err(SafetensorsError::file(
            folder,
            format!("has neither {ONE} nor {INDEX}"),
        ));
    }
    let read: Index = serde_json::from_slice(&read_bounded(&index, INDEX_BYTES_MAX)?)
        .map_err(SafetensorsError::json(&index))?;
    let names = file_names(&index, &read)?;
    let mut shards = Vec::with_capacity(names.len());
    let mut tensors = 0;
    for name in &names {
        let shard = Shard::open(&folder.join(name))?;
        tensors += shard.entries.len();
        bounded(
            &index,
            "the number of tensors",
            tensors as u64,
            TENSORS_MAX as u64,
        )?;
        shards.push(shard);
    }
    check(&index, &read, &names, &shards)?;
    Ok(shards)
}

/// Reads a small file completely.
pub(super) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, SafetensorsError> {
    let io = SafetensorsError::io(path);
    let metadata = std::fs::metadata(path).map_err(&io)?;
    if !metadata.is_file() {
        return Err(io(std::io::Error::other("not a regular file")));
    }
    bounded(path, "its length in bytes", metadata.len(), most)?;
    let file = std::fs::File::open(path).map_err(&io)?;
    let mut bytes = Vec::new();
    // The file may have grown since.
    file.take(most).read_to_end(&mut bytes).map_err(&io)?;
    Ok(bytes)
}

/// The files that an index names; each must be a plain file name.
fn file_names<'a>(path: &Path, index: &'a Index) -> Result<BTreeSet<&'a str>, SafetensorsError> {
    let mut names = BTreeSet::new();
    for (tensor, file) in &index.weight_map.0 {
        let mut parts = Path::new(file).components();
        let plain = matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(name)), None) if name == file.as_str()
        );
        if !plain || file.contains(['\\', '\0']) {
            let why = format!("is said to be in {file:?}, which is not a file of this folder");
            return Err(SafetensorsError::tensor(path, tensor, why));
        }
        names.insert(file.as_str());
        bounded(
            path,
            "the number of files",
            names.len() as u64,
            SHARDS_MAX as u64,
        )?;
    }
    if names.is_empty() {
        return Err(SafetensorsError::file(
            path,
            "`weight_map` names no tensors",
        ));
    }
    Ok(names)
}

/// Checks that each tensor is in the file that the index names.
fn check(
    path: &Path,
    index: &Index,
    names: &BTreeSet<&str>,
    shards: &[Shard],
) -> Result<(), SafetensorsError> {
    let known: HashSet<(&str, &str)> = names
        .iter()
        .zip(shards)
        .flat_map(|(file, shard)| {
            shard
                .entries
                .iter()
                .map(|entry| (*file, entry.name.as_str()))
        })
        .collect();
    let is_there =
        |(tensor, file): &(&String, &String)| known.contains(&(file.as_str(), tensor.as_str()));
    match index.weight_map.0.iter().find(|pair| !is_there(pair)) {
        None => Ok(()),
        Some((tensor, file)) => Err(SafetensorsError::tensor(
            path,
            tensor,
            format!("is said to be in {file}, and is not"),
        )),
    }
}
