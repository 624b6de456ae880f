//! Any bytes are a grammar or a clear rejection, and a grammar accepts each token that its mask allows, or reaches a named bound.
//!
//! The first byte chooses JSON Schema, a regular expression, a choice or Lark; the source goes up to the first zero byte,
//! and the bytes after that choose the tokens of an answer. A complete answer of a JSON Schema is JSON.

use std::sync::{Arc, LazyLock};
use testing::small_vocabulary::{self, EOS};
use text::{GrammarCompiler, GrammarSource, Tokenizer};

/// Tokens of an answer at most.
const TOKENS_MAX: usize = 64;

/// Tokens of several characters of JSON and of the seeds.
const WORDS: [&str; 12] = [
    "true", "null", "{\"", "\":", "\",", "\"}", " \"", "\n ", "10", "foo", "}}", "[]",
];

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| small_vocabulary::with_words(&WORDS));
/// One compiler for all inputs: the vocabulary's trie is built once, and grammars are independent.
static COMPILER: LazyLock<GrammarCompiler> =
    LazyLock::new(|| GrammarCompiler::new(Arc::clone(&TOKENIZER), TOKENIZER.eos_ids()));

/// The source that the bytes describe.
fn source(kind: u8, text: String) -> Option<GrammarSource> {
    Some(match kind % 5 {
        0 => GrammarSource::JsonSchema(serde_json::from_str(&text).ok()?),
        1 => GrammarSource::JsonSchema(serde_json::from_str(&text).ok()?).with_closed_objects(),
        2 => GrammarSource::Regex(text),
        3 => GrammarSource::Choice(text.split('|').map(str::to_owned).collect()),
        _ => GrammarSource::Lark(text),
    })
}

/// The set bit of the mask that `choice` selects.
fn chosen(mask: &[u32], choice: u8) -> Option<u32> {
    let set = |word: usize, bit: u32| mask[word] & (1 << bit) != 0;
    let bits = (0..mask.len()).flat_map(|word| (0..32).map(move |bit| (word, bit)));
    let ids: Vec<u32> = bits
        .filter(|&(word, bit)| set(word, bit))
        .map(|(word, bit)| word as u32 * 32 + bit)
        .collect();
    ids.get(usize::from(choice) % ids.len().max(1)).copied()
}

/// Compiles the source and follows an answer. Panics only for a fault.
pub(crate) fn run(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else {
        return;
    };
    let mut parts = rest.splitn(2, |&byte| byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let choices = parts.next().unwrap_or_default();
    let Some(source) = source(kind, text) else {
        return;
    };
    let Ok(grammar) = COMPILER.compile(&source) else {
        return;
    };
    let mut matcher = grammar.matcher();
    let (mut answer, mut is_cut) = (Vec::new(), true);
    for &choice in choices.iter().chain(std::iter::repeat(&0)).take(TOKENS_MAX) {
        let mut mask = vec![0; TOKENIZER.vocab_size().div_ceil(32)];
        if matcher.mask(&mut mask).is_err() {
            break;
        }
        let token = chosen(&mask, choice).expect("an answer that is not complete can go on");
        if token == EOS {
            is_cut = false;
            break;
        }
        if let Err(error) = matcher.accept(token) {
            let is_bound = ["_MAX)", "_FUEL)"]
                .iter()
                .any(|bound| error.0.contains(bound));
            assert!(is_bound, "the mask allowed {token}: {error:?}");
            break;
        }
        answer.extend_from_slice(TOKENIZER.bytes(token).unwrap_or_default());
        if matcher.is_complete() {
            is_cut = false;
            break;
        }
    }
    if !is_cut && matches!(source.inner(), GrammarSource::JsonSchema(_)) {
        // Numbers beyond the range of a double are JSON, but serde_json does not read them.
        let answer = String::from_utf8_lossy(&answer);
        let json = testing::schemas::parse(&answer);
        assert!(json.is_none_or(|json| json.is_ok()), "{answer:?}");
    }
}
