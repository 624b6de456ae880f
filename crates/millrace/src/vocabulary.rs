//! From a GGUF file's tokenizer to `text`'s vocabulary: neither crate depends on the other.

use crate::failure::Failure;
use text::{InfillIds, TokenKind, VocabModel, VocabSpec};
use weights::gguf::{Elements, Text, TokenizerMeta};

/// The vocabulary of a file's tokenizer metadata.
pub(crate) fn vocabulary(meta: &TokenizerMeta<'_>) -> Result<VocabSpec, Failure> {
    let model = match meta.model {
        "gpt2" => VocabModel::Bpe,
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
