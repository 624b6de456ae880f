//! White space in constrained JSON: pretty printers' output is allowed, and gaps are bounded.
//!
//! Promise (Structured output): white space between tokens of JSON is one space, or a newline and at most 20 spaces;
//! the output of common printers is possible.

use super::{compiler, rng, walk};
use serde_json::{Value, json};
use text::{GrammarMatcher, GrammarSource, Tokenizer};

/// Largest indentation of a gap.
const INDENTATION_MAX: usize = 20;

/// Whether a text is a complete answer, written in forced tokens and otherwise in single-byte tokens.
pub(crate) fn is_whole(tokenizer: &Tokenizer, mut matcher: GrammarMatcher, text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(&byte) = rest.first() {
        let (id, mut mask) = (
            matcher.forced_tokens().next().unwrap_or(u32::from(byte)),
            [0u32; 9],
        );
        let has_mask = !matcher.is_complete() && matcher.mask(&mut mask).is_ok();
        let left = tokenizer.bytes(id).and_then(|said| rest.strip_prefix(said));
        let Some(left) = left.filter(|_| has_mask && mask[id as usize / 32] >> (id % 32) & 1 == 1)
        else {
            return false;
        };
        matcher.accept(id).expect("an allowed token");
        rest = left;
    }
    matcher.is_accepting()
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(
        json!({"b": [1, true]}),
        |inner, _| json!({"a": inner, "c": ""}),
    )
}

fn printed(value: &Value, indent: &str) -> String {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    serde::Serialize::serialize(value, &mut serializer).expect("JSON");
    String::from_utf8(out).expect("text")
}

#[test]
fn pretty_printed_json_is_allowed() {
    let (tokenizer, compiler) = compiler();
    for source in [
        GrammarSource::JsonObject,
        GrammarSource::JsonSchema(json!({"type": "object", "additionalProperties": {}})),
    ] {
        let grammar = compiler.compile(&source).expect("a grammar");
        let value = nested(2);
        let spaced = value.to_string().replace(':', ": ").replace(',', ", ");
        for text in [
            value.to_string(),
            spaced,
            printed(&value, "  "),
            printed(&value, "    "),
            printed(&value, "\t"),
            printed(&nested(8), "  "),
            printed(&nested(3), "    "),
            format!("{{\n{}\"a\": 1}}", " ".repeat(INDENTATION_MAX)),
        ] {
            assert!(
                is_whole(&tokenizer, grammar.matcher(), &text),
                "{source:?}: {text}"
            );
        }
        for text in [
            format!("{{\n{}\"a\": 1}}", " ".repeat(INDENTATION_MAX + 1)),
            "{\"a\":  1}".to_owned(),
            "{\n\n\"a\": 1}".to_owned(),
        ] {
            assert!(
                !is_whole(&tokenizer, grammar.matcher(), &text),
                "{source:?}: {text}"
            );
        }
    }
}

#[test]
fn sampled_white_space_is_bounded() {
    let (tokenizer, compiler) = compiler();
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
        "required": ["a"], "additionalProperties": false});
    let grammar = compiler
        .compile(&GrammarSource::JsonSchema(schema))
        .expect("a grammar");
    let mut longest = 0;
    for seed in 0..60 {
        let text = walk(&tokenizer, grammar.matcher(), &mut rng(seed)).text;
        let gaps = text.split(|c: char| !c.is_ascii_whitespace());
        longest = longest.max(gaps.map(str::len).max().unwrap_or(0));
    }
    assert!(longest <= 1 + INDENTATION_MAX, "{longest}");
}
