//! Answers sampled under grammars: every complete answer is valid.

mod closed_objects;
mod gbnf;
mod hostile;
mod numbers;
mod rewritten;
mod tiny;
mod white_space;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::sync::Arc;
use testing::schemas;
use text::{Decoder, GrammarCompiler, GrammarMatcher, GrammarSource, Tokenizer};

/// Tokens after which sampling stops; a truncated answer is no failure.
const TOKENS_MAX: usize = 4000;

struct Walk {
    tokens: Vec<u32>,
    text: String,
    whole: bool,
    /// Tokens that were forced.
    forced: usize,
}

fn compiler() -> (Arc<Tokenizer>, GrammarCompiler) {
    let tokenizer = tiny::tokenizer();
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &[tiny::EOS]);
    (tokenizer, compiler)
}

fn rng(seed: u8) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])
}

/// Any allowed token with equal probability; the end a little more often.
fn draw(matcher: &mut GrammarMatcher, rng: &mut TestRng) -> u32 {
    let mut mask = [0u32; 9];
    matcher.mask(&mut mask).expect("a mask");
    let allowed: Vec<u32> = (0..tiny::EOS + 2)
        .filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1)
        .collect();
    assert!(!allowed.is_empty(), "a dead end");
    if allowed.contains(&tiny::EOS) && rng.next_u32().is_multiple_of(4) {
        tiny::EOS
    } else {
        allowed[rng.next_u32() as usize % allowed.len()]
    }
}

fn walk(tokenizer: &Arc<Tokenizer>, mut matcher: GrammarMatcher, rng: &mut TestRng) -> Walk {
    let (mut tokens, mut forced, mut whole) = (Vec::new(), 0, false);
    while tokens.len() < TOKENS_MAX {
        whole = matcher.is_complete();
        if whole {
            break;
        }
        let must = matcher.forced_tokens().next();
        let token = draw(&mut matcher, rng);
        if let Some(must) = must {
            assert_eq!(token, must, "a forced token is the only one allowed");
            forced += 1;
        }
        if token == tiny::EOS {
            assert!(matcher.is_accepting());
            whole = true;
            break;
        }
        matcher.accept(token).expect("an allowed token");
        tokens.push(token);
    }
    let mut text = String::new();
    let mut decoder = Decoder::new(Arc::clone(tokenizer), false);
    tokens.iter().for_each(|&id| decoder.push(id, &mut text));
    decoder.finish(&mut text);
    Walk {
        tokens,
        text,
        whole,
        forced,
    }
}

#[test]
fn complete_answers_are_valid_under_schema() {
    let (tokenizer, compiler) = compiler();
    let schemas = schemas::all();
    assert!(schemas.len() >= 200);
    let (mut whole, mut walks, mut forced, mut tokens) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for (at, (label, schema)) in schemas.into_iter().enumerate() {
        let validator = jsonschema::options().should_validate_formats(true);
        let validator = validator.build(&schema).expect("a schema");
        let grammar = match compiler.compile(&GrammarSource::JsonSchema(schema)) {
            Ok(grammar) => grammar,
            Err(error) => {
                wrong.push(format!("{label}: {error}"));
                continue;
            }
        };
        for turn in 0..4 {
            let seed = (at * 4 + turn) as u8;
            let walk = walk(&tokenizer, grammar.matcher(), &mut rng(seed));
            walks += 1;
            forced += walk.forced;
            tokens += walk.tokens.len();
            whole += usize::from(walk.whole);
            if let Some(why) = fault(&validator, &walk) {
                wrong.push(format!("{label}: {why}: {:?}", walk.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        whole * 10 > walks * 9,
        "{whole} of {walks} walks came to an end"
    );
    assert!(
        forced * 20 > tokens,
        "{forced} of {tokens} tokens were forced"
    );
}

/// Why a complete answer is invalid.
fn fault(validator: &jsonschema::Validator, walk: &Walk) -> Option<String> {
    let value = schemas::parse(&walk.text).filter(|_| walk.whole)?;
    match value {
        Ok(value) => validator
            .validate(&value)
            .err()
            .map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn complete_answers_match_regex_choice_and_lark() {
    let (tokenizer, compiler) = compiler();
    let texts = ["yes", "no", "say \"no\"\n", "é € \\"]
        .map(String::from)
        .to_vec();
    let lark = "start: WORD (\", \" WORD)* \".\"\nWORD: /[a-c]{1,3}/".to_owned();
    type Valid = fn(&str) -> bool;
    let rows: [(GrammarSource, Valid); 4] = [
        (GrammarSource::JsonObject, |text| {
            schemas::parse(text).is_none_or(|value| value.is_ok_and(|value| value.is_object()))
        }),
        (GrammarSource::Regex("[0-9]{3}-(a|b)+x".into()), |text| {
            let rest = text.get(4..).and_then(|rest| rest.strip_suffix('x'));
            text[..3].bytes().all(|b| b.is_ascii_digit())
                && rest.is_some_and(|rest| rest.bytes().all(|b| matches!(b, b'a' | b'b')))
        }),
        (GrammarSource::Choice(texts), |text| {
            ["yes", "no", "say \"no\"\n", "é € \\"].contains(&text)
        }),
        (GrammarSource::Lark(lark), |text| {
            let words = text.strip_suffix('.').map(|words| words.split(", "));
            words.is_some_and(|mut words| words.all(|word| (1..=3).contains(&word.len())))
        }),
    ];
    for (source, valid) in rows {
        let grammar = compiler
            .compile(&source)
            .unwrap_or_else(|e| panic!("{source:?}: {e}"));
        let mut whole = 0;
        for seed in 0..20 {
            let walk = walk(&tokenizer, grammar.matcher(), &mut rng(seed));
            whole += usize::from(walk.whole);
            assert!(
                !walk.whole || valid(&walk.text),
                "{source:?}: {:?}",
                walk.text
            );
        }
        assert!(whole > 10, "{source:?}: {whole} of 20 came to an end");
    }
}

#[test]
fn control_tokens_are_never_allowed_as_text() {
    let (_, compiler) = compiler();
    let grammar = compiler
        .compile(&GrammarSource::Regex(".*".into()))
        .unwrap();
    let mut mask = [0u32; 9];
    grammar.matcher().mask(&mut mask).unwrap();
    let bit = |id: u32| mask[id as usize / 32] >> (id % 32) & 1;
    assert_eq!(
        (bit(u32::from(b'a')), bit(tiny::EOS), bit(tiny::EOS + 1)),
        (1, 1, 0)
    );
    let named = compiler
        .compile(&GrammarSource::Lark("start: <tool> \"x\"".into()))
        .unwrap();
    let mut matcher = named.matcher();
    mask.fill(0);
    matcher.mask(&mut mask).unwrap();
    let allowed: Vec<u32> = (0..tiny::EOS + 2)
        .filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1)
        .collect();
    assert_eq!(allowed, [tiny::EOS + 1]);
    matcher.accept(tiny::EOS + 1).unwrap();
    matcher.accept(u32::from(b'x')).unwrap();
    assert!(matcher.is_complete());
}
