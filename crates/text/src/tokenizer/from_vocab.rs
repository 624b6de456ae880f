//! Construction of a tokenizer from a GGUF vocabulary.

use super::bpe::{Bpe, CharBpe};
use super::error::TokenizerError;
use super::special_tokens::{AbsorbedSpace, SpecialTokens};
use super::spm::Spm;
use super::string_arena::StringArena;
use super::unigram::Unigram;
use super::word_piece::WordPiece;
use super::word_splitter::{PreTokenizer, Splitter};
use super::{Algorithm, Encoder, Tokenizer, bpe, special_tokens, spm, word_splitter};
use crate::{TokenKind, VocabModel, VocabSpec};
use std::borrow::Cow;

impl Tokenizer {
    /// A tokenizer from GGUF metadata.
    ///
    /// An unknown or missing pre-tokenizer name is replaced by the default, with a [warning](Self::warnings):
    /// most text is still encoded correctly, and an error would make the model unusable.
    pub fn from_vocab(mut spec: VocabSpec) -> Result<Self, TokenizerError> {
        spec.check()?;
        name_empty_tokens(&mut spec.tokens);
        if spec.model == VocabModel::WordPiece {
            fill_bert_ids(&mut spec);
        }
        fill_kinds(&mut spec);
        if spec.model == VocabModel::Spm {
            fill_spm_ids(&mut spec);
        }
        let pieces = pieces_of(&spec.tokens)?;
        let bytes = bytes_of(&spec);
        let infill = special_tokens::or_known(spec.infill, &pieces);
        let strip = |id| strip_of(&spec, &pieces, id);
        let specials = SpecialTokens::new(&pieces, &spec.kinds, strip)?;
        let mut warnings = Vec::new();
        let (algorithm, adds_bos) = algorithm_of(&spec, (&pieces, &bytes), &mut warnings)?;
        for (name, add, id) in [
            ("bos", spec.add_bos, spec.bos),
            ("eos", spec.add_eos, spec.eos),
        ] {
            if add == Some(true) && id.is_none() {
                warnings.push(format!(
                    "prompts should get a {name} token, but none is named; none is added"
                ));
            }
        }
        Ok(Self {
            ends: special_tokens::find(
                &pieces,
                &spec.kinds,
                &[&[spec.eos, spec.eot], &spec.infill.ends()[..]].concat(),
            ),
            infill,
            pieces,
            bytes,
            encoder: Encoder::Vocab(specials, algorithm),
            bos: spec.bos,
            eos: spec.eos,
            // Files of Gemma 4 may say otherwise, wrongly.
            add_bos: match spec.model {
                VocabModel::CharBpe => adds_bos,
                _ => spec.add_bos.unwrap_or(adds_bos),
            },
            prompt_end: spec
                .eos
                .filter(|_| spec.add_eos.unwrap_or(spec.model == VocabModel::Unigram)),
            adds_first_space: match spec.model {
                VocabModel::Bpe | VocabModel::CharBpe => false,
                VocabModel::Spm | VocabModel::Unigram => spec.add_space_prefix.unwrap_or(true),
                VocabModel::WordPiece => true,
            },
            kinds: spec.kinds,
            warnings,
            controls: super::UserControls::default(),
            longest: std::sync::OnceLock::new(),
        })
    }
}

/// The algorithm of a vocabulary, and whether prompts begin with `bos` unless the file decides.
fn algorithm_of(
    spec: &VocabSpec,
    (pieces, bytes): (&StringArena, &StringArena),
    warnings: &mut Vec<String>,
) -> Result<(Algorithm, bool), TokenizerError> {
    Ok(match spec.model {
        VocabModel::Bpe => {
            let known = pre_tokenizer(spec, warnings)?;
            let (bpe, left_out) = Bpe::new(spec, pieces, bytes, known.ignore_merges)?;
            warn_of_merges(spec, left_out, warnings);
            let splitter = Splitter::new(known.cuts);
            (Algorithm::Bpe(splitter, bpe), known.add_bos)
        }
        VocabModel::CharBpe => {
            let (bpe, left_out) = CharBpe::new(spec, pieces)?;
            warn_of_merges(spec, left_out, warnings);
            (Algorithm::CharBpe(bpe), true)
        }
        VocabModel::Spm => (Algorithm::Spm(Spm::new(spec, pieces)), true),
        VocabModel::Unigram => (Algorithm::Unigram(Unigram::new(spec)?), false),
        VocabModel::WordPiece => (Algorithm::WordPiece(WordPiece::new(spec)), true),
    })
}

/// The pre-tokenizer that the vocabulary names, or the default one.
fn pre_tokenizer(
    spec: &VocabSpec,
    warnings: &mut Vec<String>,
) -> Result<PreTokenizer, TokenizerError> {
    let name = spec.pre.as_deref().unwrap_or_default();
    if word_splitter::NOT_BYTE_LEVEL.contains(&name) {
        return Err(TokenizerError(format!(
            "the pre-tokenizer {name:?} is of vocabularies that are not byte-level; these are not supported"
        )));
    }
    Ok(word_splitter::by_name(name).unwrap_or_else(|| {
        let which = if name.is_empty() { "no pre-tokenizer is named".into() } else { format!("the pre-tokenizer {name:?} is not known") };
        let names = word_splitter::names().join(", ");
        warnings.push(format!("{which}; \"default\" is used instead, and some text may become other tokens than the model learnt (known: {names})"));
        word_splitter::DEFAULT
    }))
}

fn warn_of_merges(spec: &VocabSpec, left_out: usize, warnings: &mut Vec<String>) {
    if spec.merges.is_empty() {
        warnings.push("the vocabulary has no merges".into());
    }
    if left_out > 0 {
        warnings.push(format!(
            "{left_out} merges would make control tokens of plain text; they are left out"
        ));
    }
}

/// Converters write padding entries as empty texts, which would be duplicates.
fn name_empty_tokens(tokens: &mut [String]) {
    for (id, token) in tokens
        .iter_mut()
        .enumerate()
        .filter(|(_, token)| token.is_empty())
    {
        *token = format!("[EMPTY_{id}]");
    }
}

/// Kinds for a file without kinds: named special tokens are control tokens, and SPM's `<0xNN>` are bytes.
fn fill_kinds(spec: &mut VocabSpec) {
    if !spec.kinds.is_empty() {
        return;
    }
    spec.kinds = vec![TokenKind::Normal; spec.tokens.len()];
    if matches!(spec.model, VocabModel::Spm | VocabModel::CharBpe) {
        for (kind, token) in spec.kinds.iter_mut().zip(&spec.tokens) {
            if spm::byte_of(token).is_some() {
                *kind = TokenKind::Byte;
            }
        }
    }
    for id in [spec.bos, spec.eos, spec.eot].into_iter().flatten() {
        spec.kinds[id as usize] = TokenKind::Control;
    }
    if let Some(id) = spec.unknown {
        spec.kinds[id as usize] = TokenKind::Unknown;
    }
}

/// BERT's special tokens by text, for files that do not name them. Prompts always have both ends.
fn fill_bert_ids(spec: &mut VocabSpec) {
    let id_of = |text: &str| {
        let id = spec.tokens.iter().position(|token| token == text)?;
        u32::try_from(id).ok()
    };
    let [first, last, unknown] = ["[CLS]", "[SEP]", "[UNK]"].map(id_of);
    spec.bos = spec.bos.or(first);
    spec.eos = spec.eos.or(last);
    spec.unknown = spec.unknown.or(unknown);
    spec.add_bos = spec.add_bos.or(Some(true));
    spec.add_eos = spec.add_eos.or(Some(true));
}

/// SentencePiece's usual special ids, for files that do not name them.
fn fill_spm_ids(spec: &mut VocabSpec) {
    let usual = |id: u32, kind| (spec.kinds.get(id as usize) == Some(&kind)).then_some(id);
    spec.unknown = spec.unknown.or(usual(0, TokenKind::Unknown));
    spec.bos = spec.bos.or(usual(1, TokenKind::Control));
    spec.eos = spec.eos.or(usual(2, TokenKind::Control));
}

fn pieces_of(tokens: &[String]) -> Result<StringArena, TokenizerError> {
    let mut pieces = StringArena::with_capacity(tokens.len(), tokens.iter().map(String::len).sum());
    tokens
        .iter()
        .for_each(|token| pieces.push(token.as_bytes()));
    match pieces.index(|_| true).first() {
        None => Ok(pieces),
        Some(&id) => {
            let text = &tokens[id as usize];
            let first = pieces.find(text.as_bytes()).unwrap_or_default();
            Err(TokenizerError(format!(
                "tokens {first} and {id} are both {text:?}"
            )))
        }
    }
}

/// Bytes of the tokens in running text. Tokens that BPE words may become are indexed.
fn bytes_of(spec: &VocabSpec) -> StringArena {
    let mut bytes =
        StringArena::with_capacity(spec.tokens.len(), spec.tokens.iter().map(String::len).sum());
    for (token, kind) in spec.tokens.iter().zip(&spec.kinds) {
        bytes.push(&running_bytes(spec.model, token, *kind));
    }
    if spec.model == VocabModel::Bpe {
        bytes.index(|id| {
            let (token, kind) = (&spec.tokens[id as usize], spec.kinds[id as usize]);
            kind == TokenKind::Normal && bpe::decode(token).is_some()
        });
    }
    bytes
}

fn running_bytes(model: VocabModel, token: &str, kind: TokenKind) -> Cow<'_, [u8]> {
    let as_written = Cow::Borrowed(token.as_bytes());
    match (kind, model) {
        (TokenKind::Control | TokenKind::Unknown | TokenKind::Unused, _) => Cow::Borrowed(b""),
        (TokenKind::UserDefined, _) => as_written,
        (TokenKind::Byte, _) => {
            spm::byte_of(token).map_or(as_written, |byte| Cow::Owned(vec![byte]))
        }
        (TokenKind::Normal, VocabModel::Bpe) => bpe::decode(token).map_or(as_written, Cow::Owned),
        (TokenKind::Normal, _) => Cow::Owned(token.replace(spm::SPACE, " ").into_bytes()),
    }
}

/// White space that a token absorbs. GGUF does not store this property; the few vocabularies that need it are
/// recognized by their tokens.
fn strip_of(spec: &VocabSpec, pieces: &StringArena, id: u32) -> AbsorbedSpace {
    let text = spec.tokens[id as usize].as_str();
    let has = |token: &str| pieces.find(token.as_bytes()).is_some();
    let pre = spec.pre.as_deref().unwrap_or_default();
    match spec.model {
        // Phi-3: all tokens except these three.
        VocabModel::Spm if has("<|placeholder1|>") && has("<|assistant|>") => {
            if matches!(text, "<unk>" | "<s>" | "<|endoftext|>") {
                AbsorbedSpace::Nothing
            } else {
                AbsorbedSpace::Right
            }
        }
        VocabModel::Bpe if pre.starts_with("jina-v2-") && text == "<mask>" => AbsorbedSpace::Left,
        VocabModel::Bpe if pre == "modern-bert" && text == "[MASK]" => AbsorbedSpace::Left,
        _ => AbsorbedSpace::Nothing,
    }
}
