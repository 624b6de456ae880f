//! Promptness: after each piece nearly all of a long content, reasoning or argument has been emitted.

use super::dialects::{DIALECTS, Dialect};
use super::scenarios::{Said, call};
use super::tools;
use serde_json::json;
use text::{AnswerParser, AnswerParts, Part};

/// Bytes that may be held back as a possible end of a value: a line break and `</parameter>` fit.
const HELD_BYTES_MAX: usize = 16;
/// Length of long texts; each byte is emitted as one or more bytes.
const LONG_BYTES: usize = 2_000;

/// A text without escapes in any family, which contains beginnings of delimiters.
const PROSE: &str = "It is 5 < 7 </ so; a|b [c] (d) = {e}, <| or not. ";

/// Bytes pushed, and bytes emitted by then.
type Progress = (usize, usize);

fn progress(dialect: &Dialect, text: &str, piece_chars: usize) -> Vec<Progress> {
    let mut parser = AnswerParser::new(dialect.format, Some(&tools()), false);
    let (mut all, mut told, mut pushed) = (Vec::new(), 0, 0);
    let mut parts = AnswerParts::default();
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(piece_chars) {
        let piece: String = piece.iter().collect();
        pushed += piece.len();
        parser.push(&piece, &mut parts);
        parts.drain_into(|part| {
            told += match part {
                Part::Content(text) | Part::Reasoning(text) => text.len(),
                Part::CallArguments { fragment, .. } => fragment.len(),
                Part::CallStart { .. } | Part::CallEnd { .. } => 0,
            }
        });
        all.push((pushed, told));
    }
    all
}

/// Largest lag of emitted bytes between two places of the text.
fn lag(progress: &[Progress], from: usize, to: usize) -> usize {
    let before = progress
        .iter()
        .take_while(|(pushed, _)| *pushed <= from)
        .last();
    let before = before.map_or(0, |&(_, told)| told);
    let within = progress
        .iter()
        .filter(|(pushed, _)| (from..=to).contains(pushed));
    let lags = within.map(|&(pushed, told)| (pushed - from).saturating_sub(told - before));
    lags.max().unwrap_or(0)
}

/// Long and short scenarios that differ only in the long part.
fn long_and_brief() -> [(&'static str, [Vec<Said>; 2]); 4] {
    let prose: &'static str = Box::leak(PROSE.repeat(LONG_BYTES / PROSE.len()).into_boxed_str());
    let put = |key: &str, value: serde_json::Value| vec![call("put", json!({key: value}))];
    let list = |items: usize| json!({"a": {"b": vec![7; items]}});
    [
        ("text", [vec![Said::Text(prose)], vec![Said::Text("I")]]),
        (
            "reasoning",
            [
                vec![Said::Think(prose), Said::Text("So.")],
                vec![Said::Think("I"), Said::Text("So.")],
            ],
        ),
        ("a string", [put("s", json!(prose)), put("s", json!("I"))]),
        (
            "an object",
            [put("o", list(LONG_BYTES / 2)), put("o", list(1))],
        ),
    ]
}

#[test]
fn long_text_is_emitted_promptly() {
    for dialect in DIALECTS {
        for (what, [long, brief]) in long_and_brief() {
            let [long, brief] = [long, brief].map(|said| (dialect.render)(&said));
            let same = long
                .bytes()
                .zip(brief.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let after = long
                .bytes()
                .rev()
                .zip(brief.bytes().rev())
                .take_while(|(a, b)| a == b)
                .count();
            let (from, to) = (same, long.len() - after.min(brief.len() - same));
            assert!(to - from > 50 * HELD_BYTES_MAX, "{}: {what}", dialect.label);
            for piece_chars in [1, 3, 7] {
                let told = progress(dialect, &long, piece_chars);
                let lag_bytes = lag(&told, from, to);
                assert!(
                    lag_bytes <= HELD_BYTES_MAX,
                    "{}: {what} is {lag_bytes} bytes behind, in pieces of {piece_chars}",
                    dialect.label
                );
                let held: Vec<Progress> = told.iter().map(|&(pushed, _)| (pushed, 0)).collect();
                assert!(
                    lag(&held, from, to) > 50 * HELD_BYTES_MAX,
                    "who holds it all is found out"
                );
            }
        }
    }
}
