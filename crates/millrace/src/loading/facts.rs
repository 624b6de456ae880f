//! What a model's file says of it, for who lists models.

use super::{Place, words};
use crate::failure::Failure;
use engine::Pooling;
use model::ModelFiles;
use model::gguf::{Gguf, Value};
use serde_json::{Map, json};
use server::ModelFacts;
use std::collections::BTreeMap;

/// Metadata entries that are told.
const ENTRIES_MAX: usize = 256;
/// Bytes of a text among them; longer ones (a chat template, a licence's text) are left out.
const TEXT_BYTES_MAX: usize = 1024;
/// What `general.file_type` stands for in llama.cpp, as far as files of it are about.
const FILE_TYPES: [(u32, &str); 20] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (21, "Q2_K_S"),
    (25, "IQ4_NL"),
    (30, "IQ4_XS"),
    (32, "BF16"),
];

/// Reads them; what a file does not say is left empty.
pub(super) fn facts(files: &ModelFiles, place: &Place) -> Result<ModelFacts, Failure> {
    let gguf = files.metadata();
    Ok(ModelFacts {
        file_bytes: files.file_bytes(),
        sha256: None,
        modified: place.modified(),
        family: gguf
            .str("general.architecture")
            .unwrap_or_default()
            .to_owned(),
        parameters: files
            .tensors()
            .iter()
            .map(model::TensorEntry::elements)
            .sum(),
        quantization: quantization(files),
        template: words::template(place, files)?,
        pooling: pooling(gguf),
        info: info(gguf),
    })
}

/// As the file says, under llama.cpp's numbers for it. A file that says nothing is of a model that was made to
/// go on: its last token has seen all others.
fn pooling(gguf: &Gguf) -> Option<Pooling> {
    let family = gguf.str("general.architecture").unwrap_or_default();
    match gguf.u32(&format!("{family}.pooling_type")) {
        Err(_) | Ok(0 | 3) => Some(Pooling::Last),
        Ok(1) => Some(Pooling::Mean),
        Ok(_) => None,
    }
}

/// As the file names it, or the kind that most of its bytes are in.
fn quantization(files: &ModelFiles) -> String {
    let named = files.metadata().u32("general.file_type").ok();
    let named = named.and_then(|id| FILE_TYPES.iter().find(|(known, _)| *known == id));
    if let Some((_, name)) = named {
        return (*name).to_owned();
    }
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for tensor in files.tensors() {
        *kinds.entry(tensor.kind.to_string()).or_default() += tensor.bytes;
    }
    let most = kinds.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map_or_else(String::new, |(kind, _)| kind)
}

/// Lists are told as null, as in Ollama.
fn info(gguf: &Gguf) -> Map<String, serde_json::Value> {
    let told = |value: Value<'_>| match value {
        Value::F32(v) => Some(json!(v)),
        Value::F64(v) => Some(json!(v)),
        Value::Bool(v) => Some(json!(v)),
        Value::String(text) => Some(text.to_lossy())
            .filter(|text| text.len() <= TEXT_BYTES_MAX)
            .map(|text| json!(text)),
        Value::Array(_) => Some(serde_json::Value::Null),
        Value::U64(v) => Some(json!(v)),
        integer => {
            let value = integer.integer().and_then(|v| i64::try_from(v).ok());
            Some(json!(value))
        }
    };
    let entries = gguf.metadata().take(ENTRIES_MAX);
    entries
        .filter_map(|(key, value)| Some((key.to_owned(), told(value)?)))
        .collect()
}
