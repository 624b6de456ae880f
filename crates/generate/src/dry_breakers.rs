//! Sequence breakers of the DRY penalty: from texts to tokens of one vocabulary.
//!
//! A token whose text contains a breaker is one alone. A token whose text ends with the beginning of a breaker is one
//! together with the tokens of the rest, as in llama.cpp.

use crate::error::ApiError;
use engine::{DRY_SEQUENCES_MAX, DryBreakers};
use text::Tokenizer;

/// Tokens of a breaker after the first one.
const REST_TOKENS_MAX: usize = 20;

/// The breakers as sequences of tokens. Time grows with the vocabulary times the number of texts.
///
/// # Errors
/// The texts make more than [`DRY_SEQUENCES_MAX`] sequences of several tokens.
pub(crate) fn breaker_tokens(
    texts: &[String],
    tokenizer: &Tokenizer,
) -> Result<DryBreakers, ApiError> {
    if texts.is_empty() {
        return Ok(DryBreakers::default());
    }
    let rests: Vec<Vec<Rest<'_>>> = texts.iter().map(|text| rests(text, tokenizer)).collect();
    let (mut sequences, mut longer) = (Vec::new(), 0);
    for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
        let bytes = match tokenizer.bytes(id) {
            Some(bytes) if !bytes.is_empty() => bytes,
            _ => tokenizer.piece(id).unwrap_or_default().as_bytes(),
        };
        if texts.iter().any(|text| contains(bytes, text.as_bytes())) {
            sequences.push(vec![id]);
        }
        for rest in rests.iter().flatten() {
            if bytes.ends_with(rest.begun) {
                let sequence = [&[id][..], &rest.tokens].concat();
                longer += usize::from(sequence.len() > 1);
                sequences.push(sequence);
            }
        }
        if longer > DRY_SEQUENCES_MAX {
            let message = format!(
                "dry_sequence_breakers: begin in more than {DRY_SEQUENCES_MAX} (DRY_SEQUENCES_MAX) ways within tokens; \
                 name fewer or shorter ones"
            );
            return Err(ApiError::field(
                "dry_sequence_breakers",
                "invalid_value",
                message,
            ));
        }
    }
    Ok(DryBreakers::new(sequences))
}

/// A way of cutting a breaker into the end of one token and the tokens after it.
struct Rest<'a> {
    begun: &'a [u8],
    tokens: Vec<u32>,
}

fn rests<'a>(text: &'a str, tokenizer: &Tokenizer) -> Vec<Rest<'a>> {
    let cuts = text.char_indices().map(|(at, _)| at).skip(1);
    let rest = |at: usize| {
        let mut tokens = tokenizer.encode(&text[at..], false).ok()?;
        tokens.truncate(REST_TOKENS_MAX);
        let begun = &text.as_bytes()[..at];
        Some(Rest { begun, tokens })
    };
    cuts.filter_map(rest).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    match part {
        [byte] => bytes.contains(byte),
        part => bytes
            .windows(part.len().max(1))
            .any(|window| window == part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::small_vocabulary::{WORD, tokenizer};

    #[test]
    fn tokens_that_contain_or_begin_a_breaker_are_found() {
        let tokenizer = tokenizer();
        let texts = |texts: &[&str]| -> Vec<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        let newline = breaker_tokens(&texts(&["\n"]), &tokenizer).expect("tokens");
        assert_eq!(newline, DryBreakers::new([vec![10]]));
        // "hello" is a token of the vocabulary, and its letters are.
        let part = breaker_tokens(&texts(&["ell"]), &tokenizer).expect("tokens");
        let ell = b"ell".iter().map(|&byte| u32::from(byte)).collect();
        assert_eq!(part.longer_count(), 1);
        assert_eq!(part, DryBreakers::new([vec![WORD], ell]));
        assert_eq!(
            breaker_tokens(&[], &tokenizer).expect("tokens"),
            DryBreakers::default()
        );
    }
}
