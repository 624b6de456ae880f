//! Strict tools in every family's syntax: whatever the model's preferences, a parsed call is one of the tools
//! with valid arguments.
//!
//! Promise (Structured output): every call that the parser reads for strict tools is one of them, with valid
//! arguments, whatever the model prefers: 18 variants of families, delimiters as control tokens, words or letters,
//! tokens across their ends.
//! Also held by `server/tests/it/speech/strict.rs`.

pub(crate) mod vocabulary;

use crate::answers::dialects::{DIALECTS, Dialect};
use crate::answers::scenarios::{self, Said};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use std::sync::Arc;
use text::{
    AnswerParser, AnswerParts, CallSyntax, ConstrainedTool, Decoder, DelimiterSet, DelimiterWatch,
    Grammar, GrammarCompiler, GrammarMatcher, GrammarSource, Part, Tokenizer, ToolFamily,
    ToolSchemas,
};
use vocabulary::{EOS, Marks};

/// Tokens of one answer.
const TOKENS_MAX: usize = 700;
/// Answers of each dialect in each vocabulary.
const WALKS: u8 = 16;

/// Argument schema of `weather`.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "integer", "minimum": 0, "maximum": 9},
            "deep": {
                "type": "object", "properties": {"x": {"type": "number"}, "on": {"type": "boolean"}},
                "required": ["x"], "additionalProperties": false,
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "unit"],
        "additionalProperties": false,
    })
}

fn none() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

fn tools() -> Vec<ConstrainedTool> {
    let tool = |name: &str, arguments, place| ConstrainedTool {
        name: name.to_owned(),
        arguments,
        strict: true,
        place,
    };
    vec![
        tool("weather", Some(schema()), 0),
        tool("now", Some(none()), 1),
        tool("any.thing", None, 2),
    ]
}

/// Invalid calls among text.
fn script(dialect: &Dialect, rng: &mut TestRng) -> String {
    let wrong = [
        (
            "weather",
            json!({"city": "K\u{f6}ln </parameter> \"x\"", "unit": "kelvin", "days": 99, "deep": {"y": 1}, "tags": ["a", 3]}),
        ),
        (
            "weather",
            json!({"city": "<|end|><|call|>", "days": "3", "unit": "c", "more": [1, {"a": null}]}),
        ),
        ("now", json!({"zone": "UTC"})),
        ("any.thing", json!({"a": {"b": [1, 2.5, "x", true]}})),
        ("nobody", json!({"city": "Rome"})),
    ];
    let mut said = Vec::new();
    for _ in 0..1 + rng.next_u32() % 3 {
        if rng.next_u32().is_multiple_of(2) {
            said.push(Said::Text("hm, {\"so\": [1]} it is"));
        }
        let (name, args) = &wrong[rng.next_u32() as usize % wrong.len()];
        said.push(scenarios::call(name, args.clone()));
    }
    let said = said.into_iter().filter(|said| {
        !matches!(
            (said, dialect.format.tools),
            (Said::Text(_), ToolFamily::None)
        )
    });
    (dialect.render)(&said.collect::<Vec<_>>())
}

/// A script without the family's delimiters, or with a code fence around the calls.
fn bare_script(dialect: &Dialect, rng: &mut TestRng) -> String {
    let object = |name: &str, args: Value| json!({"name": name, "arguments": args}).to_string();
    let calls = [
        object("now", json!({"zone": "UTC"})),
        object("weather", json!({"city": "Rome", "unit": "kelvin"})),
        object("any.thing", json!({"a": 1})),
    ];
    match rng.next_u32() % 5 {
        0 => format!("[{}]", calls.join(", ")),
        1 => format!("[\n  {}\n]", calls.join(",\n  ")),
        2 => format!("```json\n[{}]\n```\n```json\n{}\n```", calls[0], calls[1]),
        3 => calls.join("; "),
        _ => format!("```xml\n{}\n```", script(dialect, rng)),
    }
}

/// An answer under the server's constraints.
struct Answer {
    watch: DelimiterWatch,
    then: Vec<Option<Arc<Grammar>>>,
    call: Option<GrammarMatcher>,
    /// Delimiters cannot be spelled inside calls.
    in_channels: bool,
}

impl Answer {
    fn new(dialect: &Dialect, tokenizer: &Arc<Tokenizer>) -> Self {
        let compiler = GrammarCompiler::new(Arc::clone(tokenizer), &[EOS]);
        let marks =
            DelimiterSet::call_openings(dialect.format, tokenizer).expect("a family that calls");
        let compile = |form: CallSyntax| {
            let source = GrammarSource::Calls(form, tools());
            compiler
                .compile(&source)
                .unwrap_or_else(|error| panic!("{}: {form:?}: {error}", dialect.label))
        };
        let first = (dialect.format.tools == ToolFamily::Harmony)
            .then(|| compile(CallSyntax::HARMONY_FIRST).matcher());
        Self {
            then: marks
                .call_syntaxes()
                .map(|form| form.map(compile))
                .collect(),
            watch: DelimiterWatch::new(&Arc::new(marks)),
            in_channels: dialect.format.tools == ToolFamily::Harmony,
            call: first,
        }
    }

    fn again(&self, first: Option<GrammarMatcher>) -> Self {
        let mut watch = self.watch.clone();
        watch.restart();
        Self {
            watch,
            then: self.then.clone(),
            call: first,
            in_channels: self.in_channels,
        }
    }

    fn allowed(&mut self, vocab: usize) -> Vec<u32> {
        let mut mask = vec![0u32; vocab.div_ceil(32)];
        match &mut self.call {
            Some(call) => {
                call.mask(&mut mask).expect("a mask");
                if self.in_channels {
                    for id in self.watch.completing_tokens() {
                        mask[id as usize / 32] &= !(1 << (id % 32));
                    }
                }
            }
            None => {
                mask.fill(u32::MAX);
                for id in self.watch.straddling_tokens() {
                    mask[id as usize / 32] &= !(1 << (id % 32));
                }
            }
        }
        (0..vocab as u32)
            .filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1)
            .collect()
    }

    fn take(&mut self, token: u32) {
        match &mut self.call {
            Some(call) => {
                call.accept(token).expect("an allowed token");
                let _ = self.watch.accept_token(token);
                if call.is_complete() {
                    self.call = None;
                    self.watch.restart();
                }
            }
            None => {
                let opened = self
                    .watch
                    .accept_token(token)
                    .and_then(|place| self.then[place].as_ref());
                self.call = opened.map(|grammar| grammar.matcher());
            }
        }
    }
}

/// Generates an answer of a model that prefers the script: the tokens, and whether the answer ended.
fn walk(
    answer: &mut Answer,
    tokenizer: &Tokenizer,
    script: &str,
    rng: &mut TestRng,
) -> (Vec<u32>, bool) {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while tokens.len() < TOKENS_MAX {
        let allowed = answer.allowed(tokenizer.vocab_size());
        assert!(!allowed.is_empty(), "a dead end after {tokens:?}");
        let mut next = None;
        for _ in 0..12 {
            let wanted = vocabulary::beginnings(tokenizer, &script.as_bytes()[at..], rng);
            let may_come = wanted.iter().find(|(id, _)| allowed.contains(id));
            match may_come {
                Some(&(id, bytes)) => {
                    at += bytes;
                    next = Some(id);
                    break;
                }
                None if at < script.len() => at += 1,
                None if allowed.contains(&EOS) => return (tokens, true),
                None => break,
            }
        }
        // A model does not generate bytes that are no text.
        let plain: Vec<u32> = allowed
            .iter()
            .copied()
            .filter(|&id| !(128..256).contains(&id))
            .collect();
        let any = if plain.is_empty() { &allowed } else { &plain };
        let drawn = any[rng.next_u32() as usize % any.len()];
        let token = next
            .filter(|_| !rng.next_u32().is_multiple_of(48))
            .unwrap_or(drawn);
        if token == EOS {
            return (tokens, true);
        }
        answer.take(token);
        tokens.push(token);
    }
    (tokens, false)
}

/// Names and arguments of the parsed calls in order; the last call may be truncated.
fn calls(
    dialect: &Dialect,
    tokenizer: &Arc<Tokenizer>,
    tokens: &[u32],
) -> (Vec<(String, String)>, String) {
    let shown = dialect.format.visible_control_ids(tokenizer);
    let mut decoder = Decoder::new(Arc::clone(tokenizer), false).showing(shown.into());
    let mut text = String::new();
    tokens.iter().for_each(|&id| decoder.push(id, &mut text));
    decoder.finish(&mut text);
    let names = tools().into_iter().map(|tool| {
        json!({"name": tool.name, "parameters": tool.arguments.unwrap_or_else(|| json!({}))})
    });
    let schemas = Arc::new(ToolSchemas::new(&names.collect::<Vec<_>>()));
    let mut parser = AnswerParser::new(dialect.format, Some(&schemas), false);
    let mut found: Vec<(String, String)> = Vec::new();
    let mut parts = AnswerParts::default();
    parser.push(&text, &mut parts);
    parser.finish(&mut parts);
    parts.drain_into(|part| match part {
        Part::CallStart { name, .. } => found.push((name.to_owned(), String::new())),
        Part::CallArguments { fragment, .. } => {
            found.last_mut().expect("a call").1.push_str(fragment);
        }
        _ => {}
    });
    (found, text)
}

/// Why a complete call is invalid.
fn fault((name, args): &(String, String)) -> Option<String> {
    let tool = tools().into_iter().find(|tool| tool.name == *name);
    let Some(tool) = tool else {
        return Some(format!("{name} is no tool"));
    };
    let args: Value = match serde_json::from_str(args) {
        Ok(args) => args,
        // JSON numbers are unbounded, serde's are not.
        Err(error) if error.to_string().contains("number out of range") => return None,
        Err(error) => return Some(format!("{error}: {args:?}")),
    };
    let schema = tool.arguments.unwrap_or_else(|| json!({"type": "object"}));
    let valid = jsonschema::validator_for(&schema)
        .expect("a schema")
        .validate(&args)
        .map_err(|e| e.to_string());
    valid.err().map(|error| format!("{error}: {args}"))
}

#[test]
fn constrained_calls_are_valid() {
    let (mut wrong, mut few) = (Vec::new(), Vec::new());
    for dialect in DIALECTS {
        for marks in [Marks::Control, Marks::Words, Marks::Letters] {
            if dialect.format.tools == ToolFamily::Harmony && marks != Marks::Control {
                continue;
            }
            let tokenizer = vocabulary::tokenizer(marks);
            let start = Answer::new(dialect, &tokenizer);
            let mut seen = 0;
            for seed in 0..WALKS {
                let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
                let script = if seed % 3 == 2 {
                    bare_script(dialect, &mut rng)
                } else {
                    script(dialect, &mut rng)
                };
                let first = start
                    .call
                    .is_some()
                    .then(|| Answer::new(dialect, &tokenizer).call)
                    .flatten();
                let mut answer = start.again(first);
                let (tokens, ended) = walk(&mut answer, &tokenizer, &script, &mut rng);
                let (mut found, text) = calls(dialect, &tokenizer, &tokens);
                if !ended && answer.call.is_some() {
                    found.pop();
                }
                seen += found.len();
                let faults = found.iter().filter_map(fault);
                wrong.extend(
                    faults.map(|why| format!("{}, {marks:?}: {why}\n    {text:?}", dialect.label)),
                );
            }
            if seen < usize::from(WALKS) / 2 {
                few.push(format!("{}, {marks:?}: {seen} calls", dialect.label));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} faults\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
    assert!(few.is_empty(), "{few:?}");
}

/// Unsupported schemas of each family, with the path of the rejection.
#[test]
fn unsupported_strict_tools_are_rejected_with_path() {
    let tokenizer = vocabulary::tokenizer(Marks::Control);
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &[EOS]);
    let refused = |label: &str, schema: Value| {
        let dialect = DIALECTS
            .iter()
            .find(|dialect| dialect.label == label)
            .expect("a dialect");
        let marks = DelimiterSet::call_openings(dialect.format, &tokenizer).expect("marks");
        let tool = ConstrainedTool {
            name: "f".to_owned(),
            arguments: Some(schema),
            strict: true,
            place: 3,
        };
        let errors = marks.call_syntaxes().flatten().filter_map(|form| {
            let source = GrammarSource::Calls(form, vec![tool.clone()]);
            compiler
                .compile(&source)
                .err()
                .map(|error| error.to_string())
        });
        errors.collect::<Vec<_>>().join("; ")
    };
    let of = |property: Value| json!({"type": "object", "properties": {"a": property}, "required": ["a"]});
    let pattern = of(json!({"type": "string", "pattern": "^x+$"}));
    let union = of(json!({"type": ["string", "integer"]}));
    for label in ["glm", "minimax", "gemma 4"] {
        for schema in [&pattern, &union] {
            let why = refused(label, schema.clone());
            assert!(
                why.starts_with("[3]: parameters.properties.a: cannot be kept"),
                "{label}: {why}"
            );
        }
    }
    for label in [
        "hermes",
        "qwen3-coder",
        "llama3",
        "mistral",
        "deepseek v3",
        "kimi-k2",
        "harmony",
        "json",
        "phi4",
        "granite",
    ] {
        for schema in [&pattern, &union] {
            assert_eq!(
                refused(label, schema.clone()),
                "",
                "{label} writes JSON, or can"
            );
        }
        let never = refused(label, of(json!({"not": {"pattern": "x"}})));
        assert!(
            never.starts_with("[3]: parameters.properties.a"),
            "{label}: {never}"
        );
    }
}
