//! Sources that would take forever, exhaust memory, or lead an answer into a dead end.

use super::{compiler, rng, tiny};
use proptest::prelude::Rng;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};
use text::{GrammarCompiler, GrammarMatcher, GrammarSource};

fn named(count: usize, named: impl Fn(usize) -> (String, Value)) -> Value {
    Value::Object((0..count).map(named).collect::<Map<_, _>>())
}

/// Definitions, each with two properties that refer to the next definition beside another keyword.
fn doubling(count: usize) -> Value {
    let defs = named(count + 1, |i| {
        let next = json!({"type": "object", "$ref": format!("#/$defs/d{}", i + 1)});
        let schema = if i == count {
            json!({"type": "object"})
        } else {
            json!({"type": "object", "properties": {"a": next, "b": next}})
        };
        (format!("d{i}"), schema)
    });
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

fn schema(schema: Value) -> GrammarSource {
    GrammarSource::JsonSchema(schema)
}

fn lark(lark: &str) -> GrammarSource {
    GrammarSource::Lark(lark.to_owned())
}

fn optional(count: usize) -> Value {
    let each = |i| (format!("p{i}"), json!({"type": "integer"}));
    json!({"type": "object", "properties": named(count, each), "additionalProperties": false})
}

fn intersected(count: usize) -> String {
    (0..count).map(|i| format!("/.*{i}.*/ & ")).collect()
}

/// Sources with expected path and reason of the rejection.
#[expect(clippy::too_many_lines, reason = "a table")]
fn refused() -> Vec<(&'static str, GrammarSource, &'static str, &'static str)> {
    let cycle = json!({"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}});
    let needs = |kind: Value| json!({"type": "object", "required": ["ok", "a"], "properties": {"ok": {"type": "null"}, "a": kind}, "$defs": cycle});
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    let multiple = json!({"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 5});
    let patterns: Vec<Value> = (0..40)
        .map(|i| json!({"type": "string", "pattern": format!("{i}")}))
        .collect();
    let pattern_names = named(300, |i| (format!("^x{i}-"), json!({"type": "null"})));
    vec![
        ("a cycle", schema(json!({"$ref": "#"})), "", "no answer"),
        (
            "a cycle of allOf",
            schema(json!({"allOf": [{"$ref": "#"}]})),
            "",
            "no answer",
        ),
        (
            "a cycle of anyOf",
            schema(json!({"anyOf": [{"$ref": "#"}]})),
            "",
            "no answer",
        ),
        (
            "a cycle further on",
            schema(needs(json!({"$ref": "#/$defs/x"}))),
            "properties.a",
            "no answer",
        ),
        ("no finite value", schema(endless), "", "no answer"),
        (
            "no such multiple",
            schema(needs(multiple)),
            "properties.a",
            "no value",
        ),
        (
            "rules without an end",
            lark("start: \"x\" | \"y\" a\na: \"z\" a"),
            "",
            "cannot be completed",
        ),
        (
            "a terminal without a text",
            lark("start: \"x\" A | \"y\"\nA: /a/ & /b/"),
            "",
            "cannot be completed",
        ),
        ("copies", schema(doubling(40)), "", "SCHEMA_COPIES_MAX"),
        (
            "copies in Lark",
            lark(&format!("start: %json {}", doubling(40))),
            "",
            "SCHEMA_COPIES_MAX",
        ),
        (
            "optional properties",
            schema(json!({"items": optional(9000)})),
            "items",
            "OPTIONAL_PROPERTIES_MAX",
        ),
        (
            "patterns at once",
            schema(json!({"items": {"allOf": patterns}})),
            "items",
            "PATTERNS_AT_ONCE_MAX",
        ),
        (
            "names",
            schema(json!({"patternProperties": pattern_names})),
            "",
            "PATTERN_PAIRS_MAX",
        ),
        (
            "brackets",
            lark(&format!(
                "start: {}\"x\"{}",
                "(".repeat(9000),
                ")".repeat(9000)
            )),
            "",
            "LARK_DEPTH_MAX",
        ),
        (
            "a forced text",
            GrammarSource::Regex("a{1000000}".into()),
            "",
            "LEXER_STATES_MAX",
        ),
        (
            "optional parts",
            GrammarSource::Regex("a?".repeat(80_000)),
            "",
            "DERIVATIVE_NODES_MAX",
        ),
        (
            "loops",
            GrammarSource::Regex("(a|b)*c?".repeat(1000)),
            "",
            "LEXER_START_FUEL",
        ),
        (
            "intersections",
            lark(&format!("start: A\nA: {}/z/", intersected(40))),
            "",
            "intersect",
        ),
    ]
}

#[test]
fn unsupported_grammars_are_rejected_at_compilation() {
    let (_, compiler) = compiler();
    for (label, source, place, why) in refused() {
        let Err(error) = compiler.compile(&source) else {
            panic!("{label}: was compiled");
        };
        assert_eq!(error.place, place, "{label}: {error}");
        assert!(error.why.contains(why), "{label}: {error}");
        let again = compiler.compile(&source).err();
        assert_eq!(again, Some(error), "{label}: is remembered");
    }
}

/// Sources that would be slow or endless during generation: bounds of masks, and sources near the bounds of
/// compilation.
#[test]
fn compiled_grammars_complete_or_fail_with_reason() {
    let (_, compiler) = compiler();
    let rows = [
        ("a trap", lark("start: A B\nA: /a+/\nB: \"a\"")),
        (
            "counted twice",
            GrammarSource::Regex("(.{0,300}a.{0,300}){0,30}".into()),
        ),
        (
            "counted after",
            GrammarSource::Regex(".*a.{100}b.{100}c".into()),
        ),
        (
            "doubling rules",
            lark("start: a\na: b b\nb: c c\nc: d d\nd: e e\ne: f f\nf: \"x\" | \"y\" f"),
        ),
        ("many optional", schema(optional(2000))),
        (
            "constant items",
            schema(json!({"items": {"const": 1}, "minItems": 60_000})),
        ),
        (
            "a list",
            schema(json!({"items": {"$ref": "#"}, "type": "array"})),
        ),
    ];
    for (label, source) in rows {
        let grammar = compiler
            .compile(&source)
            .unwrap_or_else(|error| panic!("{label}: {error}"));
        for seed in 0..4 {
            walk(label, grammar.matcher(), &mut rng(seed));
        }
    }
    let regex = format!("[a-z]{{8}}{}", "a?".repeat(1000));
    let limited = compiler
        .compile(&GrammarSource::Regex(regex))
        .expect("a grammar");
    let why = walk("a limit", limited.matcher(), &mut rng(9)).expect("a limit");
    assert!(why.contains("MASK_FUEL"), "{why}");
}

/// Samples any allowed tokens; returns the limit that stopped the answer, if any.
fn walk(label: &str, mut matcher: GrammarMatcher, rng: &mut TestRng) -> Option<String> {
    for _ in 0..300 {
        let mut mask = [0u32; 9];
        if matcher.is_complete() {
            return None;
        }
        if let Err(limit) = matcher.mask(&mut mask) {
            assert!(
                limit.0.contains("_MAX") || limit.0.contains("_FUEL"),
                "{label}: {}",
                limit.0
            );
            return Some(limit.0);
        }
        let allowed: Vec<u32> = (0..tiny::EOS + 2)
            .filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        assert!(!allowed.is_empty(), "{label}: a dead end");
        let token = allowed[rng.next_u32() as usize % allowed.len()];
        if token == tiny::EOS {
            return None;
        }
        if let Err(limit) = matcher.accept(token) {
            assert!(limit.0.contains("_MAX"), "{label}: {}", limit.0);
            return Some(limit.0);
        }
    }
    None
}

/// Random sources of difficult parts: rejected with a reason, or without dead ends.
#[test]
fn random_grammars_are_rejected_or_have_no_dead_end() {
    let (_, compiler) = compiler();
    let (mut compiled, mut limits) = (0, 0);
    for seed in 0..240u8 {
        let mut rng = rng(seed);
        let source = match seed % 3 {
            0 => schema(random_schema(&mut rng, 4)),
            1 => GrammarSource::Regex(random_regex(&mut rng, 4)),
            _ => GrammarSource::Lark(random_lark(&mut rng)),
        };
        let label = format!("seed {seed}: {source:?}");
        limits += usize::from(
            try_one(&compiler, &label, &source, &mut rng)
                .inspect(|_| compiled += 1)
                .is_ok_and(|limit| limit),
        );
    }
    assert!(compiled > 100, "{compiled} were compiled");
    assert!(limits < 60, "{limits} came to a limit");
}

fn try_one(
    compiler: &GrammarCompiler,
    label: &str,
    source: &GrammarSource,
    rng: &mut TestRng,
) -> Result<bool, ()> {
    let grammar = compiler.compile(source).map_err(|error| {
        let why = error.to_string();
        assert!(!why.is_empty() && !why.contains("panic"), "{label}: {why}");
    })?;
    Ok(walk(label, grammar.matcher(), rng).is_some())
}

fn pick<'a>(rng: &mut TestRng, from: &[&'a str]) -> &'a str {
    from[rng.next_u32() as usize % from.len()]
}

fn random_schema(rng: &mut TestRng, depth: usize) -> Value {
    let below = |rng: &mut TestRng| random_schema(rng, depth.saturating_sub(1));
    match rng.next_u32() % if depth == 0 { 6 } else { 13 } {
        0 => json!({"type": pick(rng, &["null", "boolean", "number", "string", "integer"])}),
        1 => json!({"$ref": pick(rng, &["#", "#/$defs/a", "#/$defs/b"])}),
        2 => {
            json!({"type": "string", "pattern": random_regex(rng, 2), "maxLength": rng.next_u32() % 40})
        }
        3 => {
            json!({"type": "integer", "minimum": -7, "maximum": rng.next_u32() % 5000, "multipleOf": 1 + rng.next_u32() % 9})
        }
        4 => json!({"enum": [1, "a", null, {"b": []}]}),
        5 => json!({"type": "string", "format": pick(rng, &["date", "uuid", "email"])}),
        6 | 7 => json!({
            "type": "object", "properties": {"a": below(rng), "b": below(rng), "c": below(rng)},
            "required": [pick(rng, &["a", "b", "d"])], "additionalProperties": rng.next_u32().is_multiple_of(2),
        }),
        8 => {
            json!({"type": "array", "items": below(rng), "minItems": rng.next_u32() % 4, "maxItems": 4})
        }
        9 => json!({"anyOf": [below(rng), below(rng), below(rng)]}),
        10 => json!({"allOf": [below(rng), below(rng)]}),
        11 => {
            json!({"patternProperties": {"^a": below(rng), "^[b-d]": below(rng)}, "type": "object"})
        }
        _ => {
            json!({"$defs": {"a": below(rng), "b": below(rng)}, "prefixItems": [below(rng), below(rng)], "type": "array"})
        }
    }
}

fn random_regex(rng: &mut TestRng, depth: usize) -> String {
    let below = |rng: &mut TestRng| random_regex(rng, depth.saturating_sub(1));
    match rng.next_u32() % if depth == 0 { 3 } else { 8 } {
        0 => pick(rng, &["a", "b", "xyz", "é"]).to_owned(),
        1 => pick(rng, &["[a-f]", ".", r"\d", r"\w", "[^a]"]).to_owned(),
        2 => String::new(),
        3 => format!("({})*", below(rng)),
        4 => format!("({}){{0,{}}}", below(rng), rng.next_u32() % 300),
        5 => format!("({}|{})", below(rng), below(rng)),
        6 => format!("{}{}{}", below(rng), below(rng), below(rng)),
        _ => format!("({})?", below(rng)),
    }
}

fn random_lark(rng: &mut TestRng) -> String {
    let mut lark = "start: r0\n".to_owned();
    for rule in 0..4 {
        let alternative = |rng: &mut TestRng| {
            let parts = (0..rng.next_u32() % 4).map(|_| match rng.next_u32() % 8 {
                0..3 => format!("r{}", rng.next_u32() % 4),
                3 => format!("T{}", rng.next_u32() % 2),
                4 => format!("r{}*", rng.next_u32() % 4),
                5 => format!("(\"k\" r{})?", rng.next_u32() % 4),
                _ => format!("\"{}\"", pick(rng, &["a", "b", "ab", ","])),
            });
            parts.collect::<Vec<_>>().join(" ")
        };
        lark.push_str(&format!(
            "r{rule}: {} | {} | \"z\"\n",
            alternative(rng),
            alternative(rng)
        ));
    }
    for terminal in 0..2 {
        let regex = random_regex(rng, 2);
        let regex = if regex.is_empty() {
            "q".to_owned()
        } else {
            regex
        };
        lark.push_str(&format!("T{terminal}: /{regex}/\n"));
    }
    lark
}
