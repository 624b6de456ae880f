//! The list of all cases, `docs/parser-cases.md`, written from the cases themselves.

use super::dialects::DIALECTS;
use super::{further_calls, labelled, labelled_ends, labelled_more, labelled_thoughts, scenarios};
use std::fmt::Write as _;

/// Set to write the file instead of comparing it.
const WRITE: &str = "WRITE_PARSER_CASES";

const HEAD: &str = "\
# Cases of the answer parser

Written by `WRITE_PARSER_CASES=1 cargo test -p text --test it the_document`; a test compares. Each case is a text as a family's published
template has it and what it is made of (`crates/text/tests/it/answers`). Each is parsed whole, at every single cut, character by character, in random
pieces, and as tokens: of vocabularies that have the marks as control tokens, as words and as letters, chosen and grouped at random, through the decoder.
All must give the same events, and no event may be contradicted by a later one.

## What is malformed, and what is cut short

- What a mark announces as a call and is none is text, as it stands. A call that has begun stays one: its arguments end where they stop being JSON,
  and the rest is text. Both are *malformed*, and counted in the log.
- Under gpt-oss's headers a message to a function is a call whatever it says: what is no JSON stays in its arguments, as it stands. It is malformed all the
  same. Messages to the model's own tools (`to=python`) are code, and never that.
- Where the text ends in the middle of a call, it is *cut short*: what was held is told, and the ending says why (`length`). It is malformed only if the model itself
  ended there. After a call was told, the beginning of a further call, and what stands between calls, is dropped: it is no content.
- Where an answer has to be calls (`tool_choice: required` or a named tool), it has no text, wherever it is cut.
- Bare JSON (or Python) that turns out to be an answer was never a call: it is neither.

## In every dialect

What is said, written as each dialect writes it:

";

/// Labels that a dialect has for itself, in their order.
fn own_labels(dialect: &str) -> Vec<String> {
    let cases = labelled::cases().into_iter().chain(labelled_more::cases());
    let cases = cases
        .chain(labelled_ends::cases())
        .chain(further_calls::cases())
        .chain(labelled_thoughts::cases());
    let prefix = format!("{dialect}: ");
    cases
        .filter_map(|case| case.label.strip_prefix(&prefix).map(str::to_owned))
        .collect()
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    let shared = scenarios::all();
    for (label, _) in &shared {
        let _ = writeln!(text, "- {label}");
    }
    text +=
        "\n## In one dialect\n\n| dialect | cases in all | labels of its own |\n|---|---|---|\n";
    for dialect in DIALECTS {
        let own = own_labels(dialect.label);
        let all = shared.len() + own.len();
        let _ = writeln!(text, "| {} | {all} | {} |", dialect.label, own.join("; "));
    }
    text
}

#[test]
fn the_document_lists_every_case() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parser-cases.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == document(), "{path}: write it with {WRITE}=1");
}

#[test]
fn every_dialect_has_twenty_cases_and_every_label_a_dialect() {
    let own: usize = DIALECTS.iter().map(|d| own_labels(d.label).len()).sum();
    let ends = labelled_ends::cases().len()
        + further_calls::cases().len()
        + labelled_thoughts::cases().len();
    assert_eq!(
        own,
        labelled::cases().len() + labelled_more::cases().len() + ends
    );
    assert!(scenarios::all().len() >= 20);
    for dialect in DIALECTS {
        let own = own_labels(dialect.label);
        for word in ["cut short", "malformed"] {
            let has = own.iter().any(|label| label.contains(word));
            assert!(
                has || dialect.label == "hermes",
                "{}: {word}",
                dialect.label
            );
        }
    }
}
