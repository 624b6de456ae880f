//! Malformed calls, truncated calls, and text that is no call.
//!
//! Promise (Text): a malformed call is emitted as text and counted in the log without its contents; an answer that
//! was cut short, or is JSON, is not malformed.
//! Also held by `server/tests/it/malformed.rs`.

use super::dialects::DIALECTS;
use super::labelled::Case;
use super::texts;
use text::{AnswerParser, AnswerParts};

/// Number of malformed calls, and whether the text ends in a call.
fn counted(case: &Case, cut: Option<usize>) -> (u32, bool) {
    let mut parser = AnswerParser::new(case.format, Some(&super::tools()), case.in_reasoning);
    let mut ignored = AnswerParts::default();
    let text = &case.text[..cut.unwrap_or(case.text.len())];
    parser.push(text, &mut ignored);
    parser.finish(&mut ignored);
    (parser.broken_calls(), parser.ends_in_call())
}

#[test]
fn malformed_calls_are_counted_and_truncated_ones_are_not() {
    let (mut malformed, mut cut) = (0, 0);
    for (label, case) in texts() {
        let label_of_its_own = label.split_once(": ").map_or("", |(_, label)| label);
        let counted = counted(&case, None);
        if label_of_its_own.starts_with("malformed") || label_of_its_own.starts_with("breaks off") {
            assert_eq!(counted, (1, false), "{label}");
            malformed += 1;
        } else if label_of_its_own.starts_with("cut short in the arguments") {
            assert_eq!(counted, (0, true), "{label}");
            cut += 1;
        } else if label_of_its_own.starts_with("cut short in the head") {
            assert_eq!(counted, (0, !label.starts_with("json: ")), "{label}");
        }
    }
    assert!(
        malformed >= DIALECTS.len() && cut >= DIALECTS.len() - 1,
        "{malformed}, {cut}"
    );
}

#[test]
fn truncated_valid_answers_have_no_malformed_calls() {
    for (label, case) in texts() {
        let is_rendered = super::scenarios::all()
            .iter()
            .any(|(said, _)| label.ends_with(&format!(": {said}")));
        if !is_rendered {
            continue;
        }
        assert_eq!(counted(&case, None), (0, false), "{label}");
        for (at, _) in case.text.char_indices() {
            assert_eq!(counted(&case, Some(at)).0, 0, "{label}, up to {at}");
        }
    }
}

#[test]
fn content_is_never_counted_as_malformed_call() {
    let never = [
        "llama3: JSON that is an answer",
        "llama3: a tool nobody has",
        "llama4: a list that is an answer",
        "llama4: a tool nobody has",
        "json: a fence with other JSON",
        "hermes: half a marker",
        "harmony: text without a channel",
        "harmony: a header of nothing",
    ];
    let is_one = |label: &str| never.contains(&label);
    let cases: Vec<_> = texts()
        .into_iter()
        .filter(|(label, _)| is_one(label))
        .collect();
    assert_eq!(cases.len(), never.len());
    for (label, case) in cases {
        assert_eq!(counted(&case, None), (0, false), "{label}");
    }
}
