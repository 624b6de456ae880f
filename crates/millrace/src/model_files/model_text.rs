//! A model's tokenizer and chat template: from a GGUF's metadata, or from the files beside safetensors.
//!
//! `tokenizer.json` is the tokenizer, `tokenizer_config.json` names its ends and may hold the chat
//! template, `chat_template.jinja` or `chat_template.json` is the template where there is one, `generation_config.json` names
//! all tokens that end a generation.
//!
//! The vocabulary of a GGUF file becomes `text`'s, as neither crate depends on the other.

use super::identity::{PartsDigest, gguf_tokenizer_digest};
use super::{ModelSource, facts};
use crate::failure::Failure;
use crate::operator_file;
use serde::Deserialize;
use serde_json::Value;
use server::SamplingDefaults;
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use text::{
    BASE_MODEL, ChatTemplate, InfillIds, OWN_TEMPLATE, TemplateError, TokenKind, Tokenizer,
    VocabModel, VocabSpec, turn_format_name,
};
use weights::ModelFiles;
use weights::gguf::{Elements, Text, TokenizerMeta};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
/// The template of models that see images, in older folders.
const TEMPLATE_JSON: &str = "chat_template.json";
const GENERATION: &str = "generation_config.json";
/// Bytes of `tokenizer.json`; the tokenizer has the same bound.
const TOKENIZER_BYTES_MAX: u64 = 1 << 28;
/// Bytes of each other JSON file.
const BESIDE_BYTES_MAX: u64 = 1 << 24;
/// Tokens that may end a generation.
const ENDS_MAX: usize = 64;
/// Name of the template to use where a model has several.
const USUAL: &str = "default";

/// A model's tokenizer and chat template.
pub(crate) struct ModelText {
    pub(crate) tokenizer: Tokenizer,
    /// The chat template's source.
    pub(crate) template: Option<String>,
    /// Digest of everything that decides ids.
    pub(super) tokenizer_digest: String,
    /// The operator's file of the template; `None`: the template is the model's own.
    own_path: Option<PathBuf>,
    bos: Option<u32>,
    eos: Option<u32>,
}

impl ModelText {
    /// Reads the tokenizer and the template from an open model and the files beside it.
    pub(crate) fn read(source: &ModelSource, files: &ModelFiles) -> Result<Self, Failure> {
        let template = template_source(source, files)?;
        let Some(folder) = model_folder(source, files) else {
            let meta = files.metadata().tokenizer();
            let meta = meta.map_err(|why| Failure::user(format!("{}: {why}", source.name)))?;
            let mut vocabulary = vocabulary(&meta)?;
            // Ollama's files of models that see images name tokens that have no embedding.
            if let Some(embeddings) = files.tensor("token_embd.weight")
                && files.has_tower_tensors()
            {
                vocabulary.tokens.truncate(embeddings.rows());
                vocabulary.kinds.truncate(embeddings.rows());
                vocabulary.scores.truncate(embeddings.rows());
            }
            return Ok(Self {
                tokenizer: Tokenizer::from_vocab(vocabulary).map_err(Failure::user)?,
                template,
                tokenizer_digest: gguf_tokenizer_digest(files.metadata()),
                own_path: None,
                bos: meta.bos,
                eos: meta.eos,
            });
        };
        let rows = files.tensor("token_embd.weight");
        let embeddings = rows.map_or(0, |tensor| tensor.rows());
        let (tokenizer, tokenizer_digest) = tokenizer_of_folder(folder, embeddings)?;
        Ok(Self {
            bos: tokenizer.bos(),
            eos: tokenizer.eos(),
            tokenizer,
            template,
            tokenizer_digest,
            own_path: None,
        })
    }

    /// A plain template.
    pub(crate) fn fallback_template(&self) -> ChatTemplate {
        let (bos, eos) = self.ends();
        ChatTemplate::fallback(bos, eos)
    }

    fn ends(&self) -> (&str, &str) {
        let piece = |id: Option<u32>| {
            id.and_then(|id| self.tokenizer.piece(id))
                .unwrap_or_default()
        };
        (piece(self.bos), piece(self.eos))
    }

    /// This text with the template of a file, if one is given, in place of the model's own.
    ///
    /// # Errors
    /// The file cannot be read, or is too long.
    pub(crate) fn with_template_file(self, path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(self) };
        let (source, _) = operator_file::read(path, BESIDE_BYTES_MAX).map_err(Failure::User)?;
        Ok(Self {
            template: Some(source),
            own_path: Some(path.to_owned()),
            ..self
        })
    }

    /// The compiled template, or the fallback template where the model has no valid one.
    ///
    /// # Errors
    /// The system has no thread for compiling, or the template is from the operator's file and is not valid.
    pub(crate) fn chat_template(&self) -> Result<ChatTemplate, Failure> {
        let (bos, eos) = self.ends();
        if let Some(path) = &self.own_path {
            let source = self.template.as_deref().unwrap_or_default();
            if source.trim().is_empty() {
                let why =
                    "no valid chat template: the file is blank, so no message would be rendered";
                return Err(file_failure(path, &why));
            }
            return ChatTemplate::new(source, bos, eos)
                .map_err(|why| file_failure(path, &format!("no valid chat template: {why}")));
        }
        // A blank one would render no message.
        let source = self
            .template
            .as_ref()
            .filter(|source| !source.trim().is_empty());
        let Some(source) = source else {
            let template = self.template_of_vocabulary()?;
            log_missing_template(template.format_name());
            return Ok(template);
        };
        match ChatTemplate::new(source, bos, eos) {
            Ok(template) => Ok(template),
            Err(why @ TemplateError::NoThread(_)) => Err(Failure::user(why)),
            Err(why) => {
                let template = self.template_of_vocabulary()?;
                let format = template.format_name();
                tracing::warn!(
                    "the model's chat template is invalid ({why}): conversations are written as for a model without one ({format})"
                );
                Ok(template)
            }
        }
    }

    fn template_of_vocabulary(&self) -> Result<ChatTemplate, Failure> {
        let (bos, eos) = self.ends();
        let is_token = |text: &str| self.tokenizer.is_defined(text);
        ChatTemplate::of_vocabulary(is_token, bos, eos).map_err(Failure::user)
    }
}

/// Tells the operator how conversations are written with a model that has no chat template.
fn log_missing_template(format: &str) {
    match format {
        BASE_MODEL => tracing::warn!(
            "this is a base model: it has no chat template, and no tokens for turns. Conversations are written as ChatML in \
             plain text, whose marks are stop strings; `millrace run --raw` and /v1/completions continue a text"
        ),
        format => tracing::warn!(
            "the model has no chat template: conversations are written in the turns that its vocabulary is made for ({format})"
        ),
    }
}

/// How conversations with a model are written, by its files alone.
pub(super) fn prompt_format(
    source: &ModelSource,
    files: &ModelFiles,
    template: Option<&str>,
) -> Result<&'static str, Failure> {
    if template.is_some() {
        return Ok(OWN_TEMPLATE);
    }
    let Some(folder) = model_folder(source, files) else {
        let Ok(meta) = files.metadata().tokenizer() else {
            return Ok("");
        };
        let vocabulary = vocabulary(&meta)?;
        let defined: HashSet<&str> = vocabulary
            .tokens
            .iter()
            .zip(&vocabulary.kinds)
            .filter(|(_, kind)| matches!(kind, TokenKind::Control | TokenKind::UserDefined))
            .map(|(token, _)| token.as_str())
            .collect();
        return Ok(turn_format_name(|text| defined.contains(text)));
    };
    #[derive(Default, Deserialize)]
    struct Added {
        #[serde(default)]
        added_tokens: Vec<AddedToken>,
    }
    #[derive(Deserialize)]
    struct AddedToken {
        content: String,
    }
    let Some(json) = read_file(&folder.join(TOKENIZER), TOKENIZER_BYTES_MAX)? else {
        return Ok("");
    };
    let added: Added = serde_json::from_slice(&json).unwrap_or_default();
    let has = |text: &str| added.added_tokens.iter().any(|token| token.content == text);
    Ok(turn_format_name(has))
}

/// The source of a model's chat template, if the model has one.
pub(super) fn template_source(
    source: &ModelSource,
    files: &ModelFiles,
) -> Result<Option<String>, Failure> {
    let Some(folder) = model_folder(source, files) else {
        let found = files.metadata().find::<&str>("tokenizer.chat_template");
        return Ok(found.map_err(Failure::user)?.map(str::to_owned));
    };
    if let Some(text) = read_file(&folder.join(TEMPLATE), BESIDE_BYTES_MAX)? {
        let path = folder.join(TEMPLATE);
        return String::from_utf8(text)
            .map(Some)
            .map_err(|why| file_failure(&path, &why));
    }
    #[derive(Default, Deserialize)]
    #[serde(expecting = "an object")]
    struct Config {
        chat_template: Option<Template>,
    }
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "chat_template must be a text, or an array of objects with name and template"
    )]
    enum Template {
        One(String),
        Several(Vec<Named>),
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
        template: String,
    }
    let mut config: Config = read_json(&folder.join(TEMPLATE_JSON))?.unwrap_or_default();
    if config.chat_template.is_none() {
        config = read_json(&folder.join(TOKENIZER_CONFIG))?.unwrap_or_default();
    }
    Ok(match config.chat_template {
        None => None,
        Some(Template::One(source)) => Some(source),
        Some(Template::Several(several)) => several
            .into_iter()
            .find(|named| named.name == USUAL)
            .map(|named| named.template),
    })
}

/// Sampling parameters that a model's files recommend.
pub(super) fn file_sampling(
    source: &ModelSource,
    files: &ModelFiles,
) -> Result<SamplingDefaults, Failure> {
    let Some(folder) = model_folder(source, files) else {
        return Ok(facts::of_gguf(files.metadata()));
    };
    let path = folder.join(GENERATION);
    let config: Value = read_json(&path)?.unwrap_or_default();
    Ok(facts::of_generation_config(&path, &config))
}

/// The tokenizer, and a digest of the files that decide ids.
fn tokenizer_of_folder(folder: &Path, embeddings: usize) -> Result<(Tokenizer, String), Failure> {
    let path = folder.join(TOKENIZER);
    let Some(json) = read_file(&path, TOKENIZER_BYTES_MAX)? else {
        return Err(file_failure(
            &path,
            &"is missing; models with only a tokenizer.model are not supported: convert it, or take a GGUF",
        ));
    };
    let config = read_file(&folder.join(TOKENIZER_CONFIG), BESIDE_BYTES_MAX)?;
    let tokenizer = match &config {
        Some(config) => Tokenizer::from_json_with_config(&json, config),
        None => Tokenizer::from_json(&json),
    };
    let shown = |why: text::TokenizerError| file_failure(folder, &why);
    let ends = end_tokens(folder)?;
    let tokenizer = tokenizer
        .and_then(|tokenizer| tokenizer.fit_embeddings(embeddings, &ends))
        .map_err(shown)?;
    let mut digest = PartsDigest::new();
    digest.add(&json).add(&without_template(config));
    for id in &ends {
        digest.add(&id.to_le_bytes());
    }
    Ok((tokenizer, digest.finish()))
}

/// The content of `tokenizer_config.json` without the chat template.
fn without_template(config: Option<Vec<u8>>) -> Vec<u8> {
    let config = config.unwrap_or_default();
    match serde_json::from_slice(&config) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("chat_template");
            Value::Object(fields).to_string().into_bytes()
        }
        _ => config,
    }
}

/// Tokens that end a generation, from `generation_config.json` or else from `config.json`.
fn end_tokens(folder: &Path) -> Result<Vec<u32>, Failure> {
    const FIELD: &str = "eos_token_id";
    for file in [GENERATION, weights::safetensors::CONFIG] {
        let path = folder.join(file);
        let config: Option<Value> = read_json(&path)?;
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        // In models for images, too, the fields of the text model are within.
        let found = config.as_ref().map(|config| match &config[FIELD] {
            Value::Null => &config["text_config"][FIELD],
            found => found,
        });
        let ids = match found {
            None | Some(Value::Null) => continue,
            Some(Value::Array(ids)) if ids.len() <= ENDS_MAX => ids.iter().map(id).collect(),
            Some(one) => id(one).map(|id| vec![id]),
        };
        let bound = format!("`{FIELD}` must be an id or a list of at most {ENDS_MAX}");
        return ids.ok_or_else(|| file_failure(&path, &bound));
    }
    Ok(Vec::new())
}

/// The folder of safetensors; `None` of a GGUF, which has its tokenizer in itself.
fn model_folder<'a>(source: &'a ModelSource, files: &ModelFiles) -> Option<&'a Path> {
    match files {
        ModelFiles::Gguf(_) | ModelFiles::Embedded(_) => None,
        ModelFiles::Safetensors(_) => source.file()?.parent(),
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, Failure> {
    let Some(text) = read_file(path, BESIDE_BYTES_MAX)? else {
        return Ok(None);
    };
    serde_json::from_slice(&weights::safetensors::without_infinities(text))
        .map(Some)
        .map_err(|why| file_failure(path, &why))
}

/// The content of a file of at most `most` bytes; `None` if there is no such file.
fn read_file(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Failure> {
    let metadata = match std::fs::metadata(path) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|why| file_failure(path, &why))?,
    };
    let bytes = metadata.len();
    if !metadata.is_file() || bytes > most {
        let why = format!("has {bytes} bytes, must be a file of at most {most}");
        return Err(file_failure(path, &why));
    }
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(|why| file_failure(path, &why))?;
    // The file may have grown since its length was read.
    file.take(most)
        .read_to_end(&mut text)
        .map_err(|why| file_failure(path, &why))?;
    Ok(Some(text))
}

fn file_failure(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::user(format!("{}: {why}", path.display()))
}

/// The vocabulary of a file's tokenizer metadata.
pub(crate) fn vocabulary(meta: &TokenizerMeta<'_>) -> Result<VocabSpec, Failure> {
    let model = match meta.model {
        "gpt2" => VocabModel::Bpe,
        // Ollama's converter names it so, and writes its merges.
        "llama" if meta.pre == Some("gemma4") && meta.merges.is_some() => VocabModel::CharBpe,
        "llama" => VocabModel::Spm,
        "gemma4" => VocabModel::CharBpe,
        "bert" => VocabModel::WordPiece,
        "t5" => VocabModel::Unigram,
        other => {
            let why = format!(
                "tokenizer.ggml.model is {other:?}; supported are gpt2, llama, gemma4, bert and t5"
            );
            return Err(Failure::user(why));
        }
    };
    let is_bert = model == VocabModel::WordPiece;
    Ok(VocabSpec {
        model,
        pre: meta.pre.map(str::to_owned),
        tokens: token_strings(meta.tokens.clone()),
        kinds: meta
            .kinds
            .clone()
            .into_iter()
            .flatten()
            .map(token_kind)
            .collect(),
        scores: meta.scores.clone().into_iter().flatten().collect(),
        merges: meta.merges.clone().map(token_strings).unwrap_or_default(),
        bos: meta.bos.or(meta.cls.filter(|_| is_bert)),
        eos: if is_bert {
            meta.separator.or(meta.eos)
        } else {
            meta.eos
        },
        eot: meta.eot,
        infill: InfillIds {
            prefix: meta.infill.prefix,
            suffix: meta.infill.suffix,
            middle: meta.infill.middle,
            padding: meta.infill.padding,
            repository: meta.infill.repository,
            file: meta.infill.file,
        },
        unknown: meta.unknown,
        add_bos: meta.add_bos.filter(|_| !is_bert),
        add_eos: meta.add_eos.filter(|_| !is_bert),
        add_space_prefix: meta.add_space_prefix,
        merge_spaces: meta.merge_spaces.unwrap_or(false),
        char_map: meta.char_map.clone().into_iter().flatten().collect(),
        lowercase: meta.lowercase.unwrap_or(true),
        strip_accents: meta.strip_accents.or(meta.lowercase).unwrap_or(true),
    })
}

fn token_strings(texts: Elements<'_, Text<'_>>) -> Vec<String> {
    texts.map(|text| text.to_lossy().into_owned()).collect()
}

/// `llama_token_type` of llama.cpp.
fn token_kind(id: i32) -> TokenKind {
    match id {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weights::gguf::{Gguf, GgufWriter};

    #[test]
    fn gemma4_of_ollamas_converter_has_merges_over_characters() {
        let model = |pre: &str| {
            let mut writer = GgufWriter::new();
            writer.str("tokenizer.ggml.model", "llama");
            writer.str("tokenizer.ggml.pre", pre);
            writer.strings("tokenizer.ggml.tokens", &["a", "b", "ab"]);
            writer.strings("tokenizer.ggml.merges", &["a b"]);
            let mut bytes = Vec::new();
            writer.write(&mut bytes, |_, _| Ok(())).unwrap();
            let gguf = Gguf::from_bytes(bytes).unwrap();
            let vocab = vocabulary(&gguf.tokenizer().unwrap()).unwrap();
            vocab.model
        };
        assert_eq!(model("gemma4"), VocabModel::CharBpe);
        assert_eq!(model("default"), VocabModel::Spm);
    }
}
