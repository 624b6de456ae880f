//! Sources that compile, and sources that are rejected with a path.

use super::grammar_compiler::GrammarCache;
use super::*;
use crate::Tokenizer;
use crate::tokenizer::tests::{bpe_spec, spm_spec};
use serde_json::{Value, json};
use std::sync::Arc;

fn compiler() -> GrammarCompiler {
    let tokenizer = Tokenizer::from_vocab(bpe_spec()).unwrap();
    let eos = tokenizer.eos_ids().to_vec();
    GrammarCompiler::new(Arc::new(tokenizer), &eos)
}

#[track_caller]
fn refused(source: &GrammarSource, place: &str, why: &str) {
    match compiler().compile(source) {
        Ok(_) => panic!("{source:?} was compiled"),
        Err(error) => {
            assert_eq!(error.place, place, "{source:?}: {error}");
            assert!(error.why.contains(why), "{source:?}: {error}");
        }
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"type": "null"}), |inner, _| json!({"items": inner}))
}

#[test]
fn unsupported_schemas_are_rejected_with_path() {
    let deep = json!({"type": "object", "properties": {
        "ok": {"type": "integer"},
        "bad": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "strnig"}]}}
    }});
    for (schema, place, why) in [
        (json!(false), "", "allows no answer"),
        (json!(7), "", "must be an object"),
        (deep, "properties.bad.items.anyOf[1]", "strnig"),
        (
            json!({"properties": {"a": {"not": {"pattern": "a"}}}}),
            "properties.a",
            "not",
        ),
        (json!({"type": "string", "pattern": "(["}), "", ""),
        (json!({"$ref": "#/$defs/none"}), "", "none"),
        (
            json!({"$defs": {"x": {"type": "array", "uniqueItems": true}}, "$ref": "#/$defs/x"}),
            "$defs.x",
            "uniqueItems",
        ),
        (
            json!({"type": "object", "properties": {"u": {"$ref": "https://example.com/s.json"}}}),
            "",
            "example.com",
        ),
        (nested(SCHEMA_DEPTH_MAX), "", "nested"),
        (
            Value::Array(vec![Value::Null; SCHEMA_PLACES_MAX]),
            "",
            "must be an object",
        ),
        (json!({"enum": vec![7; SCHEMA_PLACES_MAX]}), "", "values"),
        (
            json!({"description": "x".repeat(GRAMMAR_BYTES_MAX)}),
            "",
            "bytes",
        ),
    ] {
        refused(&GrammarSource::JsonSchema(schema), place, why);
    }
}

#[test]
fn invalid_sources_are_rejected_with_reason() {
    for (source, place, why) in [
        (GrammarSource::Regex("([".into()), "", ""),
        (GrammarSource::Regex(String::new()), "", "empty"),
        (
            GrammarSource::Regex("x".repeat(GRAMMAR_BYTES_MAX + 1)),
            "",
            "bytes",
        ),
        (GrammarSource::Choice(Vec::new()), "", "choices"),
        (
            GrammarSource::Choice(vec!["a".into(), String::new()]),
            "[1]",
            "empty",
        ),
        (
            GrammarSource::Lark("root ::= \"yes".into()),
            "",
            "line 1, column 10",
        ),
        (GrammarSource::Lark("start: unknown".into()), "", "unknown"),
    ] {
        refused(&source, place, why);
    }
}

#[test]
fn one_of_is_accepted_under_any_keyword() {
    let overlap = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    for schema in [
        overlap.clone(),
        json!({"items": overlap, "type": "array"}),
        json!({"$ref": "#/components/x", "components": {"x": overlap}}),
    ] {
        let source = GrammarSource::JsonSchema(schema);
        let compiled = compiler().compile(&source).err();
        assert_eq!(compiled, None, "{source:?}");
    }
}

/// Grammars that would take forever are rejected or compiled, and the process survives.
#[test]
fn hostile_grammars_terminate() {
    let chain: serde_json::Map<String, Value> = (0..4000)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"$ref": format!("#/$defs/d{}", i + 1)}),
            )
        })
        .chain([("d4000".to_owned(), json!({"type": "null"}))])
        .collect();
    let wide = json!({"allOf": (0..200).map(|i| json!({"anyOf": [
        {"properties": {format!("a{i}"): {"type": "null"}}},
        {"properties": {format!("b{i}"): {"type": "null"}}}
    ]})).collect::<Vec<_>>()});
    let compiler = compiler();
    for source in [
        GrammarSource::JsonSchema(json!({"$defs": chain, "$ref": "#/$defs/d0"})),
        GrammarSource::JsonSchema(wide),
        GrammarSource::JsonSchema(nested(SCHEMA_DEPTH_MAX / 2)),
        GrammarSource::JsonSchema(json!({"$ref": "#"})),
        GrammarSource::JsonSchema(json!({"type": "string", "minLength": 1_000_000_000})),
        GrammarSource::JsonSchema(json!({"type": "array", "items": {}, "minItems": 1_000_000_000})),
        GrammarSource::Regex("((a{1,1000}){1,1000}){1,1000}".into()),
        GrammarSource::Regex("(x+x+)+y".into()),
        GrammarSource::Lark(format!(
            "start: {}\"x\"{}",
            "(".repeat(5000),
            ")".repeat(5000)
        )),
        GrammarSource::Lark("start: start start | \"a\"".into()),
    ] {
        let Ok(grammar) = compiler.compile(&source) else {
            continue;
        };
        let mut matcher = grammar.matcher();
        for _ in 0..50 {
            let mut mask = [0; 9];
            if matcher.is_complete() || matcher.mask(&mut mask).is_err() {
                break;
            }
            let word = mask.iter().position(|word| *word != 0);
            let Some(word) = word else { break };
            let token = word as u32 * 32 + mask[word].trailing_zeros();
            if matcher.accept(token).is_err() {
                break;
            }
        }
    }
}

#[test]
fn least_recently_used_grammar_is_evicted() {
    let compiler = compiler();
    let number = |i: usize| GrammarSource::Regex(format!("{i}"));
    let first = compiler.compile(&number(0)).unwrap();
    let compiled = Ok(Arc::clone(&first));
    assert!(compiler.find_cached(&number(1)).is_none());
    assert!(Arc::ptr_eq(&first, &compiler.compile(&number(0)).unwrap()));
    let mut cache = GrammarCache::default();
    for i in 0..GRAMMARS_MAX + 9 {
        cache.put(format!("{i}"), &compiled);
        assert!(cache.get("0").is_some(), "it is used all the time");
    }
    assert_eq!(cache.len(), (GRAMMARS_MAX, 0));
    assert!(cache.get("1").is_none());
    assert!(cache.get(&format!("{}", GRAMMARS_MAX + 8)).is_some());
}

#[test]
fn forced_tokens_equal_tokenizer_output() {
    // No token begins with a space and continues with `h` or `l`.
    let bpe: &[&str] = &["hello", "Ġ"];
    for (label, spec, expected) in [
        ("bpe", bpe_spec(), bpe),
        ("spm", spm_spec(), &["hello", "▁"]),
    ] {
        let tokenizer = Arc::new(Tokenizer::from_vocab(spec).unwrap());
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), tokenizer.eos_ids());
        let source = GrammarSource::Regex("hello (he|ll)".into());
        let matcher = compiler.compile(&source).unwrap().matcher();
        let forced: Vec<&str> = matcher
            .forced_tokens()
            .filter_map(|id| tokenizer.piece(id))
            .collect();
        assert_eq!(forced, expected, "{label}");
    }
}

#[test]
fn disallowed_token_fails_the_matcher() {
    let grammar = compiler()
        .compile(&GrammarSource::Regex("ab".into()))
        .unwrap();
    let mut matcher = grammar.matcher();
    assert!(matcher.accept(u32::from(b'x')).is_err());
    assert!(!matcher.is_complete());
    assert!(matcher.accept(u32::from(b'a')).is_err());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn numbers_at_the_edges_of_their_types_end_no_process() {
    let numbers = [
        json!(i64::MIN),
        json!(i64::MIN + 1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(-9.3e18),
        json!(-1e19),
        json!(1e19),
        json!(9.2e18),
        json!(-9.2e18),
        json!(f64::MAX),
        json!(f64::MIN),
        json!(f64::MIN_POSITIVE),
        json!(5e-324),
        json!(-0.0),
        json!(1_i64 << 53),
        json!(-(1_i64 << 53) - 1),
        json!(0),
        json!(1),
    ];
    let keywords = [
        "const",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "maxLength",
        "minItems",
    ];
    let compiler = compiler();
    // An overflow of i64 panics here, where overflows are checked; in a release it is the recursion without end.
    let compiles = |source: GrammarSource| match compiler.compile(&source) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.why.contains("negate"), "{source:?}: {error}");
            false
        }
    };
    for keyword in keywords {
        for number in &numbers {
            for kind in [
                json!("integer"),
                json!("number"),
                json!(["integer", "null"]),
            ] {
                let part = json!({"type": kind, keyword: number});
                compiles(GrammarSource::JsonSchema(part.clone()));
                compiles(GrammarSource::JsonSchema(json!({"not": part})));
                compiles(GrammarSource::JsonSchema(
                    json!({"type": "integer", "not": {keyword: number}}),
                ));
                for at in ["default", "examples/0", "$defs/a/const", "$defs/a/enum/0"] {
                    compiles(GrammarSource::JsonSchema(json!({
                        "anyOf": [{"$ref": format!("#/{at}")}], "default": part, "examples": [part],
                        "$defs": {"a": {"const": part, "enum": [part]}},
                    })));
                }
                compiles(GrammarSource::JsonSchema(
                    json!({"allOf": [part, {"minimum": 3, "multipleOf": 7}]}),
                ));
                compiles(GrammarSource::JsonSchema(
                    json!({"$ref": "#/a/b", "a": {"b": part}}),
                ));
                compiles(GrammarSource::Lark(format!("start: %json {part}")));
            }
        }
    }
    for part in [
        json!({"minimum": 1_000_000_000_000_000_000_i64}),
        json!({"exclusiveMaximum": -1e18}),
        json!({"minimum": i64::MIN, "default": {"const": i64::MIN}}),
    ] {
        let schema = json!({"type": "integer", "allOf": [part]});
        assert!(
            compiles(GrammarSource::JsonSchema(schema.clone())),
            "{schema}"
        );
    }
    for (low, high) in [
        (json!(i64::MIN), json!(i64::MAX)),
        (json!(-1e308), json!(f64::MAX)),
        (json!(0), json!(u64::MAX)),
    ] {
        for kind in ["integer", "number"] {
            let schema = json!({"type": kind, "minimum": low, "maximum": high});
            assert!(
                compiles(GrammarSource::JsonSchema(schema.clone())),
                "{schema}"
            );
        }
    }
}
