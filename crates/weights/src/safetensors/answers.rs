//! Qwen3-Reranker: a decoder that is saved as one for text, of whose logits those of the answers yes and no are scored.
//!
//! Nothing in `config.json` tells such a model from one for text. As with llama.cpp's converter, its name does: in the
//! heading of `README.md`, in the folder's name, or in `_name_or_path`.

use super::added_tokens::TOKENIZER;
use super::conversion::Change;
use super::error::SafetensorsError;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use super::header::{Shard, TensorShape};
use super::limits::TOKENIZER_BYTES_MAX;
use super::modules::POOLING_KEY;
use super::names::HEAD;
use super::shards::read_bounded;
use super::tensor::{Data, Tensor};
use crate::Architecture;
use crate::config::state_head::{POOLING_RANK, SCORES};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The name of the family, in lower case.
const NAME: &str = "qwen3-reranker";
/// Bytes of `README.md` in which the heading is looked for.
const README_BYTES: u64 = 1 << 16;
/// The projection of logits, and what stands for it in a model whose embedding is also the projection.
const PROJECTION: &str = "output.weight";
const EMBEDDING: &str = "token_embd.weight";
/// The key of the prompt for a query and a document.
const TEMPLATE_KEY: &str = "tokenizer.chat_template.rerank";
/// The prompt of the model card, with its instruction for searches on the web.
const TEMPLATE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
     provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web \
     search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
     <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// The answers' texts, in the order of GGUF's rows.
const ANSWERS: [&str; 2] = ["yes", "no"];

#[derive(Deserialize)]
struct AnswerTokenizer {
    model: TokenizerModel,
}

#[derive(Deserialize)]
struct TokenizerModel {
    vocab: HashMap<String, u32>,
}

/// The ids of yes and no, of a model that is a reranker; writes the keys of one.
pub(super) fn read(
    architecture: Architecture,
    folder: &Path,
    fields: &Fields<'_>,
    keys: &mut GgufKeys,
) -> Result<Option<[u32; 2]>, SafetensorsError> {
    if architecture != Architecture::Qwen3 || !is_reranker(folder, fields)? {
        return Ok(None);
    }
    let path = folder.join(TOKENIZER);
    let text = read_bounded(&path, TOKENIZER_BYTES_MAX)?;
    let file: AnswerTokenizer =
        serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
    let id = |answer: &str| {
        let why = || format!("`model.vocab` has no token {answer}, which a reranker answers with");
        let id = file.model.vocab.get(answer).copied();
        id.ok_or_else(|| SafetensorsError::file(&path, why()))
    };
    let ids = [id(ANSWERS[0])?, id(ANSWERS[1])?];
    keys.number(POOLING_KEY, POOLING_RANK);
    let labels = keys.full("classifier.output_labels");
    keys.out.strings(&labels, &ANSWERS);
    keys.out.str(TEMPLATE_KEY, TEMPLATE);
    Ok(Some(ids))
}

fn is_reranker(folder: &Path, fields: &Fields<'_>) -> Result<bool, SafetensorsError> {
    let path = fields.text("_name_or_path")?.unwrap_or_default();
    // In Hugging Face's cache the repository's name is two above: `models--OWNER--NAME/snapshots/COMMIT`.
    let mut names = folder.ancestors().take(3).filter_map(Path::file_name);
    let folder_name = names.next().unwrap_or_default();
    let cached = names
        .nth(1)
        .filter(|name| name.to_string_lossy().starts_with("models--"));
    let names = [path.into(), folder_name.to_string_lossy()];
    let names = names
        .into_iter()
        .chain(cached.map(|name| name.to_string_lossy()));
    for name in names {
        if name.to_lowercase().contains(NAME) {
            return Ok(true);
        }
    }
    let readme = folder.join("README.md");
    let Ok(file) = std::fs::File::open(&readme) else {
        return Ok(false);
    };
    let mut text = Vec::new();
    let read = file.take(README_BYTES).read_to_end(&mut text);
    read.map_err(SafetensorsError::io(&readme))?;
    let text = String::from_utf8_lossy(&text).to_lowercase();
    Ok(text.contains(&format!("# {NAME}")))
}

/// Puts the rows of the answers in place of the projection. `tied`: the embedding is also the projection.
///
/// # Errors
/// The tensor that is missing, or has no such rows.
pub(super) fn put(
    answers: [u32; 2],
    tied: bool,
    (config, shards): (&Path, &[Shard]),
    tensors: &mut Vec<Tensor>,
) -> Result<(), SafetensorsError> {
    let (name, stored) = if tied {
        (EMBEDDING, "model.embed_tokens.weight")
    } else {
        (PROJECTION, HEAD)
    };
    let place = tensors.iter().find(|tensor| tensor.name == name);
    let place = place.and_then(|tensor| match tensor.data {
        Data::Stored { shard, entry } => Some((shard, entry)),
        _ => None,
    });
    let Some(place) = place else {
        return Err(SafetensorsError::tensor(config, stored, "is missing"));
    };
    let shard = &shards[usize::from(place.0)];
    let entry = &shard.entries[place.1 as usize];
    let wrong = |why: String| SafetensorsError::tensor(&shard.path, &entry.name, why);
    let (&[rows, cols], Some(format)) = (entry.shape.as_slice(), entry.kind.format()) else {
        return Err(wrong("must have two dimensions".to_owned()));
    };
    let mut all = answers.iter().zip(ANSWERS);
    if let Some((id, answer)) = all.find(|(id, _)| u64::from(**id) >= rows) {
        return Err(wrong(format!(
            "has {rows} rows, must have one for token {id}, the answer {answer}"
        )));
    }
    tensors.retain(|tensor| tensor.name != PROJECTION);
    tensors.push(Tensor {
        name: SCORES.to_owned(),
        dims: TensorShape::of([cols, answers.len() as u64]),
        kind: format.into(),
        data: Data::Rows {
            place,
            rows: answers.to_vec(),
        },
        change: Change::None,
    });
    Ok(())
}
