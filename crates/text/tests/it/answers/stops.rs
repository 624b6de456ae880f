//! Stop strings of answers with reasoning and tool calls act on the content alone.

use super::collected::{Collected, parse_with, tools};
use super::labelled::Case;
use super::{pieces, texts};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use text::{AnswerFormat, AnswerParser, ReasoningFamily, StopHit, StopMatcher, ToolFamily};

fn parse_stopping<'a>(
    case: &Case,
    stops: &[String],
    pieces: impl IntoIterator<Item = &'a str>,
) -> (Collected, Option<StopHit>) {
    let mut parser = AnswerParser::new(case.format, Some(&tools()), case.in_reasoning);
    parser.stop_at(StopMatcher::new(stops));
    let all = parse_with(&mut parser, pieces);
    (all, parser.stop_hit())
}

/// Stop strings from the case's text: of reasoning, of arguments, of delimiters or of content.
fn stops_of(text: &str, rng: &mut TestRng) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let count = 1 + rng.next_u32() as usize % 3;
    let stop = |_| {
        let at = rng.next_u32() as usize % chars.len().max(1);
        let len = 1 + rng.next_u32() as usize % 5;
        chars.iter().skip(at).take(len).collect::<String>()
    };
    let stops = (0..count).map(stop);
    stops.filter(|stop: &String| !stop.is_empty()).collect()
}

/// Random choices of stop strings and cuts for each case.
const CHOICES: u8 = 12;

#[test]
fn content_ends_at_the_stop_string_for_all_cuts() {
    for (label, case) in texts() {
        let mut parser = AnswerParser::new(case.format, Some(&tools()), case.in_reasoning);
        let unstopped = parse_with(&mut parser, [case.text.as_str()]);
        for seed in 0..CHOICES {
            let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
            let stops = stops_of(&case.text, &mut rng);
            let (whole, hit) = parse_stopping(&case, &stops, [case.text.as_str()]);
            assert_eq!(whole, unstopped.cut_at(&stops), "{label}: {stops:?}");
            assert_eq!(hit.is_some(), whole != unstopped, "{label}: {stops:?}");
            let pieces = pieces(&case.text, &mut rng);
            let cut = parse_stopping(&case, &stops, pieces.iter().map(String::as_str));
            assert_eq!(cut, (whole.clone(), hit), "{label}: {stops:?}: {pieces:?}");
            let singly = case.text.char_indices();
            let singly = singly.map(|(at, c)| &case.text[at..at + c.len_utf8()]);
            let cut = parse_stopping(&case, &stops, singly);
            assert_eq!(cut, (whole, hit), "{label}: {stops:?}, by characters");
        }
    }
}

#[test]
fn reasoning_and_arguments_may_contain_stop_strings() {
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let call = "<tool_call>\n{\"name\": \"put\", \"arguments\": {\"s\": \"STOP\"}}\n</tool_call>";
    for (label, text, want) in [
        (
            "in the reasoning",
            "<think>STOP</think>A",
            "think \"STOP\" text \"A\"",
        ),
        (
            "in the content",
            "<think>STOP</think>A STOP B",
            "think \"STOP\" text \"A \"",
        ),
        ("in arguments", call, "put({\"s\":\"STOP\"})"),
        (
            "around a call",
            &format!("ST{call}OP"),
            "text \"ST\" put({\"s\":\"STOP\"}) text \"OP\"",
        ),
        (
            "behind a call",
            &format!("{call}STOP more"),
            "put({\"s\":\"STOP\"})",
        ),
    ] {
        let case = Case {
            label: label.to_owned(),
            format,
            in_reasoning: false,
            text: text.to_owned(),
            want: want.to_owned(),
        };
        let (got, _) = parse_stopping(&case, &["STOP".to_owned()], [text]);
        assert_eq!(got.spelt(), want, "{label}");
    }
}
