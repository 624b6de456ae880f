//! A model's facts from the header of its files, for lists of models.

use super::model_purpose::ModelPurpose;
use super::{ModelSource, model_text};
use crate::config::Quantize;
use crate::failure::Failure;
use serde_json::{Map, json};
use server::ModelFacts;
use std::collections::BTreeMap;
use weights::ModelFiles;
use weights::gguf::{Gguf, Value};

/// Metadata entries in a model's facts.
const ENTRIES_MAX: usize = 256;
/// Bytes of a text among the metadata entries; longer texts (a chat template, a license) are left out.
const TEXT_BYTES_MAX: usize = 1024;
/// llama.cpp's numbers in `general.file_type`, as far as such files are common.
const FILE_TYPES: [(u32, &str); 29] = [
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
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (32, "BF16"),
    (38, "MXFP4_MOE"),
];

/// Opens a model and reads its facts; those of safetensors are of the model as it will be loaded.
pub(crate) fn read_facts(
    source: &ModelSource,
    quantize: Option<Quantize>,
) -> Result<ModelFacts, Failure> {
    facts_of(&source.open(quantize)?, source)
}

/// The facts of an open model; a fact that is missing from the files is left empty.
pub(crate) fn facts_of(files: &ModelFiles, source: &ModelSource) -> Result<ModelFacts, Failure> {
    let (gguf, purpose) = (files.metadata(), ModelPurpose::of(files));
    let template = model_text::template_source(source, files)?;
    Ok(ModelFacts {
        file_bytes: files.file_bytes(),
        sha256: None,
        modified: source.modified(),
        family: gguf
            .str("general.architecture")
            .unwrap_or_default()
            .to_owned(),
        parameters: files
            .tensors()
            .iter()
            .map(weights::TensorEntry::elements)
            .sum(),
        quantization: quantization_name(files),
        prompt_format: if purpose.is_causal {
            model_text::prompt_format(source, files, template.as_deref())?
        } else {
            ""
        },
        template,
        rerank_template: purpose.rerank_template(gguf)?,
        pooling: purpose.pooling(),
        task: purpose.task(),
        sampling: source
            .sampling()
            .or(model_text::file_sampling(source, files)?),
        info: model_info(gguf),
    })
}

/// The tensor format that the file names, or the format of most of its bytes.
fn quantization_name(files: &ModelFiles) -> String {
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

/// Metadata entries as JSON; lists become null, as in Ollama.
fn model_info(gguf: &Gguf) -> Map<String, serde_json::Value> {
    let to_json = |value: Value<'_>| match value {
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
        .filter_map(|(key, value)| Some((key.to_owned(), to_json(value)?)))
        .collect()
}
