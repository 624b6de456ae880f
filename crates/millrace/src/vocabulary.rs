//! From a GGUF file's metadata (`tokenizer.*`) to `text`'s vocabulary and chat template: the two
//! crates do not know each other.

use crate::failure::Failure;
use model::gguf::{Gguf, GgufError, Text};
use text::{TokenKind, VocabModel, VocabSpec};

/// The file's tokenizer.
pub(crate) fn vocabulary(gguf: &Gguf) -> Result<VocabSpec, Failure> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let model = match gguf.str(&key("model")).map_err(Failure::user)? {
        "gpt2" => VocabModel::Bpe,
        "llama" => VocabModel::Spm,
        other => {
            let why = format!("tokenizer.ggml.model is {other:?}; supported are gpt2 and llama");
            return Err(Failure::user(why));
        }
    };
    let spec = || -> Result<VocabSpec, GgufError> {
        Ok(VocabSpec {
            model,
            pre: gguf.find::<&str>(&key("pre"))?.map(str::to_owned),
            tokens: strings(gguf, &key("tokens"))?.unwrap_or_default(),
            kinds: kinds(gguf, &key("token_type"))?,
            scores: gguf
                .find_array(&key("scores"))?
                .into_iter()
                .flatten()
                .collect(),
            merges: strings(gguf, &key("merges"))?.unwrap_or_default(),
            bos: gguf.find(&key("bos_token_id"))?,
            eos: gguf.find(&key("eos_token_id"))?,
            eot: gguf.find(&key("eot_token_id"))?,
            unknown: gguf.find(&key("unknown_token_id"))?,
            add_bos: gguf.find(&key("add_bos_token"))?,
            add_eos: gguf.find(&key("add_eos_token"))?,
            add_space_prefix: gguf.find(&key("add_space_prefix"))?,
        })
    };
    spec().map_err(Failure::user)
}

/// The file's chat template, if it has one.
pub(crate) fn template(gguf: &Gguf) -> Result<Option<String>, Failure> {
    let found = gguf
        .find::<&str>("tokenizer.chat_template")
        .map_err(Failure::user)?;
    Ok(found.map(str::to_owned))
}

fn strings(gguf: &Gguf, key: &str) -> Result<Option<Vec<String>>, GgufError> {
    let texts = gguf.find_array::<Text<'_>>(key)?;
    Ok(texts.map(|texts| texts.map(|text| text.to_lossy().into_owned()).collect()))
}

fn kinds(gguf: &Gguf, key: &str) -> Result<Vec<TokenKind>, GgufError> {
    let ids = gguf.find_array::<i32>(key)?.into_iter().flatten();
    Ok(ids.map(kind).collect())
}

/// `llama_token_type` of llama.cpp.
fn kind(id: i32) -> TokenKind {
    match id {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}
