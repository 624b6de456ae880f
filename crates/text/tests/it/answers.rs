//! Answers in every family's syntax: expected parts, and the split law.
//!
//! `measurements/parser-cases.md` lists the labels.
//!
//! Promise (APIs): reasoning and tool calls are separated in every API; the non-streaming response is the collected
//! stream; cutting at any byte changes nothing; calls keep their ids.
//! Also held by `server/tests/it/speech`.
//!
//! Promise (Text): split law of the output parser: every golden of every family gives the same events when it is cut
//! at every place, in random pieces, and as tokens of vocabularies with the delimiters as control tokens, words or
//! letters.
//! Also held by `text/tests/it/answers/tokens.rs`.
//!
//! Promise (Structured output): a tool call without the family's delimiters (an object or a list, also in a fence) is
//! a call in every family but Harmony, where an answer begins with it and a tool has the name; any other text is
//! content, unchanged.
//! Also held by `text/tests/it/answers/labelled_more.rs`, `text/tests/it/strict_calls.rs`.

mod collected;
pub(crate) mod dialects;
mod document;
mod further_calls;
mod labelled;
mod labelled_bare;
mod labelled_ends;
mod labelled_more;
mod labelled_thoughts;
mod long;
mod malformed;
mod promptness;
pub(crate) mod scenarios;
mod stops;
mod tokens;

use collected::{Collected, parse, tools};
use dialects::DIALECTS;
use labelled::Case;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::fmt::Write as _;

/// Every case, with its label.
fn texts() -> Vec<(String, Case)> {
    let rendered = DIALECTS.iter().flat_map(|dialect| {
        scenarios::all().into_iter().map(|(label, said)| Case {
            label: format!("{}: {label}", dialect.label),
            format: dialect.format,
            in_reasoning: false,
            text: (dialect.render)(&said),
            want: collected::spell(&said),
        })
    });
    let labelled = labelled::cases().into_iter();
    let labelled = labelled
        .chain(labelled_more::cases())
        .chain(labelled_bare::cases())
        .chain(labelled_ends::cases())
        .chain(further_calls::cases())
        .chain(labelled_thoughts::cases());
    rendered
        .chain(labelled)
        .map(|case| (case.label.clone(), case))
        .collect()
}

fn parse_case<'a>(case: &Case, pieces: impl IntoIterator<Item = &'a str>) -> Collected {
    parse(case.format, case.in_reasoning, pieces)
}

#[test]
fn answers_have_expected_parts() {
    let mut wrong = String::new();
    for (label, case) in texts() {
        let got = parse_case(&case, [case.text.as_str()]).spelt();
        if got != case.want {
            let _ = writeln!(
                wrong,
                "{label}\n  text {:?}\n  want {}\n  got  {got}",
                case.text, case.want
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn parts_are_independent_of_a_single_cut() {
    for (label, case) in texts() {
        let whole = parse_case(&case, [case.text.as_str()]);
        for (at, _) in case.text.char_indices() {
            let (a, b) = case.text.split_at(at);
            assert_eq!(parse_case(&case, [a, b]), whole, "{label}, cut at {at}");
        }
        let singly = case
            .text
            .char_indices()
            .map(|(at, c)| &case.text[at..at + c.len_utf8()]);
        assert_eq!(parse_case(&case, singly), whole, "{label}, by characters");
    }
}

#[test]
fn truncated_answer_is_a_prefix_of_the_answer() {
    for (label, case) in texts() {
        let whole = parse_case(&case, [case.text.as_str()]);
        for (at, _) in case.text.char_indices() {
            let mut said = Collected::default();
            collected::push_only(case.format, case.in_reasoning, &case.text[..at], &mut said);
            assert!(
                said.begins(&whole),
                "{label}, up to {at}: {said:?} is contradicted by {whole:?}"
            );
        }
    }
}

/// Random cuts of each case.
const CUTS: u8 = 12;

/// A text in pieces of at most a random number of characters, some of them empty.
fn pieces(text: &str, rng: &mut TestRng) -> Vec<String> {
    let most = 1 + rng.next_u32() % 40;
    let mut rest = text.chars();
    let mut pieces = Vec::new();
    while !rest.as_str().is_empty() {
        let chars = rng.next_u32() % (most + 1);
        pieces.push(rest.by_ref().take(chars as usize).collect());
    }
    pieces
}

#[test]
fn parts_are_independent_of_random_cuts() {
    for (label, case) in texts() {
        let whole = parse_case(&case, [case.text.as_str()]);
        for seed in 0..CUTS {
            let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
            let pieces = pieces(&case.text, &mut rng);
            let cut = parse_case(&case, pieces.iter().map(String::as_str));
            assert_eq!(cut, whole, "{label}: {pieces:?}");
        }
    }
}

/// Largest average number of examinations of a byte.
const LOOKS_MAX: f64 = 32.0;

/// Promise (Text): parsing costs are linear in the answer's length: each byte is examined a bounded number of times,
/// in every family.
#[test]
fn parsing_cost_is_linear() {
    let [short, long] = [4_000, 100_000].map(|bytes| {
        long::all(bytes).into_iter().map(|answer| {
            let mut parser = text::AnswerParser::new(answer.dialect.format, Some(&tools()), false);
            let mut told = 0;
            let mut parts = text::AnswerParts::default();
            let mut count = |part: text::Part<&str>| {
                told += match part {
                    text::Part::Content(text) | text::Part::Reasoning(text) => text.len(),
                    text::Part::CallArguments { fragment, .. } => fragment.len(),
                    _ => 0,
                }
            };
            for (at, c) in answer.text.char_indices() {
                parser.push(&answer.text[at..at + c.len_utf8()], &mut parts);
                parts.drain_into(&mut count);
            }
            parser.finish(&mut parts);
            parts.drain_into(&mut count);
            let label = format!("{}: {}", answer.dialect.label, answer.label);
            assert!(
                told * 20 > answer.text.len() || answer.label == "blanks",
                "{label}: {told} bytes told"
            );
            (
                label,
                parser.bytes_examined() as f64 / answer.text.len() as f64,
            )
        })
    });
    for ((label, short), (_, long)) in short.zip(long) {
        assert!(
            long <= LOOKS_MAX && long <= 1.1 * short + 0.1,
            "{label}: {short} and {long} looks at a byte"
        );
    }
}

proptest! {
    #[test]
    fn undelimited_text_is_content(
        which in 0..DIALECTS.len(),
        text in "[a-z]{1,3}([ a-z<>|{}\\[\\]\":,=/`_]|<tool_call>|</tool_call>|<function=|\\[TOOL_CALLS\\]|<\\|call\\|>|\n){0,40}[a-z]",
    ) {
        let format = DIALECTS[which].format;
        let whole = parse(format, false, [text.as_str()]);
        let singly = parse(format, false, text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]));
        prop_assert_eq!(&singly, &whole);
        // White space beside delimiters and delimiters of calls may be dropped; letters outside calls must
        // remain.
        if !whole.has_calls() && format.tools != text::ToolFamily::Harmony {
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&whole.text()), letters(&text));
        }
    }
}

#[test]
fn calls_are_content_without_tools() {
    for dialect in DIALECTS
        .iter()
        .filter(|d| d.format.tools != text::ToolFamily::Harmony)
    {
        let said = [scenarios::call("put", serde_json::json!({"s": "x"}))];
        let written = (dialect.render)(&said);
        let mut parser = text::AnswerParser::new(dialect.format, None, false);
        let mut all = String::new();
        let mut parts = text::AnswerParts::default();
        parser.push(&written, &mut parts);
        parser.finish(&mut parts);
        parts.drain_into(|part| match part {
            text::Part::Content(text) => all.push_str(text),
            other => panic!("{}: {other:?}", dialect.label),
        });
        assert_eq!(all, written, "{}", dialect.label);
    }
    assert!(!tools().is_empty());
}
