//! Cost of constrained decoding: `cargo bench -p text --bench masks`.
//!
//! For each available real vocabulary: building the trie, compiling a grammar, starting an answer; then
//! writing JSON of a schema as a model would, with the time of each mask and of each accepted token, and the
//! number of forced tokens.
#![allow(missing_docs, clippy::print_stdout, reason = "a program that prints")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use text::{GrammarCompiler, GrammarSource, Tokenizer};

const WALKS: usize = 20;

fn main() {
    let Some(folder) = support::folder() else {
        return;
    };
    for name in ["llama-bpe", "qwen2"] {
        let spec = support::spec(&folder, name);
        let tokenizer = Arc::new(Tokenizer::from_vocab(spec).expect("a real vocabulary"));
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), tokenizer.eos_ids());
        let made = us(|| {
            let regex = GrammarSource::Regex("a".into());
            assert!(compiler.compile(&regex).is_ok());
        });
        println!("{name}: trie and first grammar {:.0} ms", made / 1e3);
        for (what, source, answer) in sources() {
            walks(&compiler, &tokenizer, what, &source, &answer);
        }
    }
}

fn walks(
    compiler: &GrammarCompiler,
    tokenizer: &Tokenizer,
    what: &str,
    source: &GrammarSource,
    answer: &str,
) {
    let mut grammar = None;
    let compiled = us(|| grammar = compiler.compile(source).ok());
    let grammar = grammar.expect("a grammar");
    let ids = tokenizer.encode(answer, false).expect("an answer");
    let mut mask = vec![0u32; tokenizer.vocab_size().div_ceil(32)];
    let (mut masks, mut accepts, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let mut forced = 0;
    for _ in 0..WALKS {
        let mut matcher = None;
        starts.push(us(|| matcher = Some(grammar.matcher())));
        let mut matcher = matcher.expect("a matcher");
        for &id in &ids {
            if matcher.forced_tokens().next() == Some(id) {
                forced += 1;
            }
            mask.fill(0);
            masks.push(us(|| matcher.mask(&mut mask).expect("a mask")));
            let allowed = mask[id as usize / 32] >> (id % 32) & 1 == 1;
            assert!(allowed, "{what}: {:?} is not allowed", tokenizer.piece(id));
            accepts.push(us(|| matcher.accept(id).expect("an allowed token")));
        }
        assert!(matcher.is_accepting(), "{what}: the answer is not whole");
    }
    println!(
        "  {what}: compiled in {:.1} ms, started in {}, {} tokens of which {:.0} % forced",
        compiled / 1e3,
        Spread::of(starts),
        ids.len(),
        100.0 * forced as f64 / (WALKS * ids.len()) as f64,
    );
    println!(
        "    mask {}, accept {}",
        Spread::of(masks),
        Spread::of(accepts)
    );
}

fn sources() -> [(&'static str, GrammarSource, String); 7] {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 100},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "pattern": "^[a-z.]+@[a-z]+\\.(com|org)$"},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
            "notes": {"type": "string"},
            "address": {"$ref": "#/$defs/address"}
        },
        "required": ["name", "age", "email", "tags", "notes", "address"],
        "additionalProperties": false,
        "$defs": {"address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": ["string", "null"]}},
            "required": ["street", "zip"],
            "additionalProperties": false
        }}
    });
    let answer = r#"{"name": "Ada Lovelace", "age": 36, "email": "ada@engines.org", "tags": ["red", "blue"], "notes": "She wrote the first program, for a machine that was never built.", "address": {"street": "12 St James's Square", "zip": null}}"#;
    let words = "she wrote the first program for a machine that was never built";
    let choice = ["positive", "negative", "neither"]
        .map(String::from)
        .to_vec();
    [
        (
            "a schema",
            GrammarSource::JsonSchema(schema),
            answer.to_owned(),
        ),
        ("any object", GrammarSource::JsonObject, answer.to_owned()),
        (
            "a choice",
            GrammarSource::Choice(choice),
            "neither".to_owned(),
        ),
        (
            "any text",
            GrammarSource::Regex("(?s:.)*".into()),
            answer.to_owned(),
        ),
        (
            "small letters and blanks",
            GrammarSource::Regex("[a-z ]{8,8000}".into()),
            words.to_owned(),
        ),
        (
            "words",
            GrammarSource::Regex(r"\w+( \w+)*".into()),
            words.to_owned(),
        ),
        (
            "a short name",
            GrammarSource::Regex("[A-Z][a-z]{1,12}".into()),
            "Lovelace".to_owned(),
        ),
    ]
}

/// Distribution of times in microseconds.
struct Spread {
    median: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn of(mut us: Vec<f64>) -> Self {
        us.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| us[((us.len() - 1) as f64 * part) as usize];
        Self {
            median: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { median, p99, max } = self;
        write!(f, "{median:.0} us (p99 {p99:.0}, most {max:.0})")
    }
}

fn us(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}
