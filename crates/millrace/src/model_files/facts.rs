//! A model's facts from the header of its files, for lists of models, and what it was made for: text, embeddings, or
//! scores of documents.
//!
//! A model's publisher may recommend sampling parameters: `general.sampling.*` of a GGUF, `generation_config.json` next to
//! safetensors, or the parameters of a model of Ollama's. A value that no request may have is left out.

use super::{ModelSource, TowerSearch, model_text};
use crate::config::Quantize;
use crate::failure::Failure;
use SamplingParameter::{
    FrequencyPenalty, MinP, PenaltyWindow, PresencePenalty, RepetitionPenalty, Temperature, TopK,
    TopP,
};
use engine::Pooling;
use generate::infill_prompt::RerankTemplate;
use serde_json::{Map, json};
use server::{ModelFacts, ModelTask, SamplingDefaults, SamplingParameter};
use std::collections::BTreeMap;
use std::path::Path;
use weights::ModelFiles;
use weights::config::StateHead;
use weights::encoder::EncoderKind;
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
            .need::<&str>("general.architecture")
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
        tower: if purpose.is_causal {
            TowerSearch::of_model(source, files)
                .found
                .map(|tower| tower.facts())
        } else {
            None
        },
        info: model_info(gguf),
    })
}

/// The tensor format that the file names, or the format of most of its bytes.
pub(super) fn quantization_name(files: &ModelFiles) -> String {
    let named = files.metadata().need::<u32>("general.file_type").ok();
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

/// The key with the prompt of a reranker that is a decoder.
const RERANK_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// What a model was made for.
#[derive(Debug)]
pub(crate) struct ModelPurpose {
    is_encoder: bool,
    /// Whether a token sees earlier tokens only, so that the model can write text.
    pub(crate) is_causal: bool,
    /// Whether the file has a classification head, or its pooling says so.
    ranks: bool,
    /// llama.cpp's number of the pooling that the file names.
    pooling: Option<u32>,
}

impl ModelPurpose {
    /// From the header; a file that no decoder and no encoder can read counts as one of a decoder for text.
    pub(crate) fn of(files: &ModelFiles) -> Self {
        let gguf = files.metadata();
        let family = gguf
            .need::<&str>("general.architecture")
            .unwrap_or_default();
        let pooling = gguf.need::<u32>(&format!("{family}.pooling_type")).ok();
        if let Some(kind) = EncoderKind::of(gguf) {
            return Self {
                is_encoder: true,
                is_causal: false,
                ranks: kind.ranks(gguf),
                pooling,
            };
        }
        let config = files.config(None).ok();
        let head = config.as_ref().and_then(|config| config.state_head);
        Self {
            is_encoder: false,
            is_causal: config.is_none_or(|config| config.is_causal()),
            ranks: head == Some(StateHead::YesNo),
            pooling,
        }
    }

    pub(crate) fn task(&self) -> ModelTask {
        match self.pooling {
            _ if self.ranks => ModelTask::Ranking,
            None | Some(0) if self.is_causal => ModelTask::Generation,
            _ => ModelTask::Embedding,
        }
    }

    /// The pooling that the file names. A file without the key is of a generative model, whose last token has attended to
    /// all others, or of an encoder that was trained for the mean.
    pub(crate) fn pooling(&self) -> Option<Pooling> {
        match self.pooling {
            _ if self.ranks && self.is_causal => Some(Pooling::Last),
            _ if self.ranks => Some(Pooling::First),
            None | Some(0) if self.is_causal => Some(Pooling::Last),
            None | Some(0 | 1) => Some(Pooling::Mean),
            Some(2) if !self.is_causal => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(_) => None,
        }
    }

    /// The prompt of a reranker that is a decoder.
    ///
    /// # Errors
    /// The file has none, or one without places for query and document.
    pub(crate) fn rerank_template(&self, gguf: &Gguf) -> Result<Option<RerankTemplate>, Failure> {
        if self.is_encoder || !self.ranks {
            return Ok(None);
        }
        let template = gguf.find::<&str>(RERANK_TEMPLATE).map_err(Failure::user)?;
        let template = match template {
            Some(template) => RerankTemplate::parse(template),
            None => {
                Err("is missing: it is a reranker's prompt for a query and a document".to_owned())
            }
        };
        let failure = |why| Failure::user(format!("`{RERANK_TEMPLATE}` {why}"));
        template.map(Some).map_err(failure)
    }
}

/// GGUF's names, behind `general.sampling.`
const OF_GGUF: [(&str, SamplingParameter); 6] = [
    ("temp", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("penalty_repeat", RepetitionPenalty),
    ("penalty_last_n", PenaltyWindow),
];
/// Names of `generation_config.json`. `do_sample` has no effect, as in vLLM and llama.cpp.
const OF_SAFETENSORS: [(&str, SamplingParameter); 5] = [
    ("temperature", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("repetition_penalty", RepetitionPenalty),
];
const OF_OLLAMA: [(&str, SamplingParameter); 8] = [
    ("temperature", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("repeat_penalty", RepetitionPenalty),
    ("repeat_last_n", PenaltyWindow),
    ("presence_penalty", PresencePenalty),
    ("frequency_penalty", FrequencyPenalty),
];

/// The recommendation in a GGUF's metadata.
pub(super) fn of_gguf(gguf: &Gguf) -> SamplingDefaults {
    #[expect(clippy::cast_precision_loss, reason = "larger counts are left out")]
    let number = |value: Value<'_>| match value {
        Value::F32(number) => Some(f64::from(number)),
        Value::F64(number) => Some(number),
        integer => integer.integer().map(|number| number as f64),
    };
    let value = |name: &str| {
        gguf.get(&format!("general.sampling.{name}"))
            .and_then(number)
    };
    recommended("general.sampling", &OF_GGUF, value)
}

/// The recommendation in `generation_config.json`.
pub(super) fn of_generation_config(path: &Path, config: &serde_json::Value) -> SamplingDefaults {
    let origin = path.display().to_string();
    recommended(&origin, &OF_SAFETENSORS, |name| config[name].as_f64())
}

/// The recommendation in the parameters of a model of Ollama's.
pub(crate) fn of_ollama(path: &Path, parameters: &serde_json::Value) -> SamplingDefaults {
    let origin = path.display().to_string();
    recommended(&origin, &OF_OLLAMA, |name| parameters[name].as_f64())
}

fn recommended(
    origin: &str,
    names: &[(&str, SamplingParameter)],
    value: impl Fn(&str) -> Option<f64>,
) -> SamplingDefaults {
    let mut found = SamplingDefaults::default();
    for &(name, parameter) in names {
        let Some(value) = value(name) else { continue };
        if let Err(why) = found.set(parameter, value) {
            tracing::warn!("{origin}: {name} {why}: the recommendation is left out");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use synth::{EncoderSpec, SynthSpec};
    use weights::gguf::GgufWriter;

    fn synthetic(preset: &str) -> Vec<u8> {
        match EncoderSpec::preset(preset) {
            Some(spec) => spec.to_bytes().unwrap(),
            None => SynthSpec::preset(preset).unwrap().to_bytes().unwrap(),
        }
    }

    /// The header of a file with this value of a key, or without the key.
    fn header(preset: &str, key: &str, value: Option<&str>) -> ModelFiles {
        let gguf = Gguf::from_bytes(synthetic(preset)).unwrap();
        let mut writer = GgufWriter::new();
        for (other, value) in gguf.metadata().filter(|(other, _)| *other != key) {
            writer.value(other, value);
        }
        match value.map(str::parse::<u32>) {
            Some(Ok(number)) => _ = writer.u32(key, number),
            Some(Err(_)) => _ = writer.str(key, value.unwrap_or_default()),
            None => {}
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).unwrap();
        Gguf::from_bytes(bytes).unwrap().into()
    }

    #[test]
    fn purpose_is_that_of_the_header() {
        use ModelTask::{Embedding, Generation, Ranking};
        for (preset, pooling, expected) in [
            ("tiny-llama", None, (Generation, Some(Pooling::Last))),
            ("tiny-llama", Some("0"), (Generation, Some(Pooling::Last))),
            ("tiny-llama", Some("1"), (Embedding, Some(Pooling::Mean))),
            ("tiny-llama", Some("2"), (Embedding, None)),
            ("tiny-llama", Some("3"), (Embedding, Some(Pooling::Last))),
            ("tiny-llama", Some("4"), (Embedding, None)),
            ("tiny-qwen3", Some("3"), (Embedding, Some(Pooling::Last))),
            ("tiny-qwen3", Some("4"), (Ranking, Some(Pooling::Last))),
            (
                "tiny-gemma-embedding",
                None,
                (Embedding, Some(Pooling::Mean)),
            ),
            (
                "tiny-gemma-embedding",
                Some("2"),
                (Embedding, Some(Pooling::First)),
            ),
            ("tiny-bert", None, (Embedding, Some(Pooling::Mean))),
            ("tiny-bert", Some("2"), (Embedding, Some(Pooling::First))),
            ("tiny-bert", Some("4"), (Ranking, Some(Pooling::First))),
            ("tiny-bert", Some("9"), (Embedding, None)),
        ] {
            let family = preset.trim_start_matches("tiny-");
            let files = header(preset, &format!("{family}.pooling_type"), pooling);
            let purpose = ModelPurpose::of(&files);
            assert_eq!(
                (purpose.task(), purpose.pooling()),
                expected,
                "{preset} {pooling:?}"
            );
        }
    }

    #[test]
    fn rerankers_without_a_prompt_are_refused() {
        let found = |value| {
            let files = header("tiny-qwen3-reranker", RERANK_TEMPLATE, value);
            ModelPurpose::of(&files).rerank_template(files.metadata())
        };
        assert!(found(Some("{query} {document}")).unwrap().is_some());
        for (template, expected) in [
            (None, "`tokenizer.chat_template.rerank` is missing"),
            (
                Some("{document}"),
                "`tokenizer.chat_template.rerank` must have one {query}",
            ),
        ] {
            let why = found(template).unwrap_err().to_string();
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn recommendation_of_a_gguf_is_read_in_every_type() {
        let mut writer = GgufWriter::new();
        writer
            .f32("general.sampling.temp", 0.6)
            .value("general.sampling.top_p", Value::F64(0.9))
            .value("general.sampling.top_k", Value::I32(64))
            .u32("general.sampling.penalty_last_n", 128)
            .f32("general.sampling.penalty_repeat", -1.0)
            .str("general.sampling.min_p", "0.1");
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).expect("a header");
        let found = of_gguf(&Gguf::from_bytes(bytes).expect("a file"));
        let rows: Vec<_> = found.named_values().collect();
        let want = [
            ("temperature", "0.6"),
            ("top_k", "64"),
            ("top_p", "0.9"),
            ("repeat_last_n", "128"),
        ];
        assert_eq!(rows, want.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn invalid_recommendation_is_left_out() {
        let config = json!({
            "do_sample": false, "temperature": 0.6, "top_k": 20, "top_p": 1.5, "min_p": "0.1",
            "repetition_penalty": null,
        });
        let found = of_generation_config(Path::new("g.json"), &config);
        let want = SamplingDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            ..SamplingDefaults::default()
        };
        assert_eq!(found, want);
        let parameters = json!({"stop": ["<|im_end|>"], "temperature": 1, "repeat_penalty": 1.5});
        let found = of_ollama(Path::new("p"), &parameters);
        let numbers = (found.temperature, found.repetition_penalty, found.top_k);
        assert_eq!(numbers, (Some(1.0), Some(1.5), None));
    }
}
