//! Answers truncated after a call: the beginning of a further call, and text between calls, is never content.
//! An answer that must consist of calls has no content, wherever the answer is truncated.
//!
//! Promise (Text): text of tool calls is never content: an answer with a required call has none, wherever it is cut;
//! the beginning of a further call is dropped.
//! Also held by `server/tests/it/speech/forced.rs`.

use super::collected::{Collected, parse, tools};
use super::labelled::{Row, rows};
use super::{dialects::DIALECTS, pieces, scenarios, texts};
use proptest::test_runner::{RngAlgorithm, TestRng};
use text::{AnswerFormat, AnswerParser, AnswerParts, ReasoningFamily, ToolFamily};

pub(crate) fn cases() -> Vec<super::labelled::Case> {
    rows(CUT, false)
}

#[rustfmt::skip]
const CUT: &[Row] = &[
    ("cut short in the arguments of a further call", "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"put\", \"arguments\": {\"b\": tr", "now({}) put(BROKEN \"{\\\"b\\\": \")"),
    ("a further call cut short in the head", "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"pu", "now({})"),
    ("a further call cut short in the head", "llama3", "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"pu", "now({})"),
    ("a further call cut short in the head", "llama4", "<|python_start|>[now(), pu", "now({})"),
    ("a further call cut short in the head", "mistral", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]pu", "now({})"),
    ("a further call cut short in the head", "mistral before v11", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}\n,\n{\n  \"name\": \"pu", "now({})"),
    ("a further call cut short in the head", "deepseek v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>pu", "now({})"),
    ("a further call cut short in the head", "phi4", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"pu", "now({})"),
    ("a further call cut short in the head", "granite", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"pu", "now({})"),
    ("a further call cut short in the head", "kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.pu", "now({})"),
    ("a further call cut short in the head", "glm", "<tool_call>now</tool_call>\n<tool_call>pu", "now({})"),
    ("a further call cut short in the head", "minimax", "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n<invoke name=\"pu", "now({})"),
    ("a further call cut short in the head", "gemma 4", "<|tool_call>call:now{}<tool_call|><|tool_call>call:pu", "now({})"),
    ("a further call cut short in the head", "harmony", "<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.pu", "now({})"),
    ("a further call cut short in the head", "json", "[{\"name\": \"now\", \"arguments\": {}}\n,\n{\n  \"name\": \"pu", "now({})"),
    ("cut short after the arguments", "json", "[{\"name\": \"put\", \"arguments\": {\"s\": \"x\"}\n  ", "put({\"s\":\"x\"})"),
    ("cut short between calls", "json", "[{\"name\": \"now\", \"arguments\": {}}\n,\n", "now({})"),
    ("a list of calls that goes on as text", "json", "[{\"name\": \"now\", \"arguments\": {}}, so", "now({}) text \", so\""),
];

#[test]
fn truncated_further_call_is_dropped() {
    for dialect in DIALECTS {
        for (label, said) in scenarios::all() {
            let text = (dialect.render)(&said);
            let whole = parse(dialect.format, false, [text.as_str()]);
            for (at, _) in text.char_indices() {
                let cut = parse(dialect.format, false, [&text[..at]]);
                assert!(
                    !cut.has_calls() || whole.text().starts_with(&cut.text()),
                    "{}: {label}, up to {at}: {cut:?}",
                    dialect.label
                );
            }
        }
    }
}

/// Parses an answer that must consist of calls.
fn parse_calls<'a>(format: AnswerFormat, pieces: impl IntoIterator<Item = &'a str>) -> Collected {
    let mut parser = AnswerParser::new(format, Some(&tools()), false).calls_only();
    let (mut all, mut parts) = (Collected::default(), AnswerParts::default());
    for piece in pieces {
        parser.push(piece, &mut parts);
        parts.drain_into(|part| all.add(part));
    }
    parser.finish(&mut parts);
    parts.drain_into(|part| all.add(part));
    all
}

#[test]
fn calls_only_answer_has_no_content() {
    let json = AnswerFormat {
        tools: ToolFamily::Json,
        reasoning: ReasoningFamily::Think,
    };
    let list = "<think>Two.</think>[{\"name\": \"now\", \"arguments\": {}}\n,\n{\n  \"name\": \"put\",\n  \"arguments\": {\"s\": \"x\"}}\n]";
    let own = [("required".to_owned(), json, list.to_owned())];
    let others = texts().into_iter();
    let others = others.map(|(label, case)| (label, case.format, case.text));
    for (label, format, text) in own.into_iter().chain(others) {
        for (at, _) in text.char_indices() {
            let cut = &text[..at];
            let whole = parse_calls(format, [cut]);
            assert_eq!(whole.text(), "", "{label}, up to {at}");
            let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[at as u8; 32]);
            let pieces = pieces(cut, &mut rng);
            let pieced = parse_calls(format, pieces.iter().map(String::as_str));
            assert_eq!(pieced, whole, "{label}, up to {at}: {pieces:?}");
        }
    }
}
