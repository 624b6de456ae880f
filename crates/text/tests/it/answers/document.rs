//! The list of all cases, `measurements/parser-cases.md`, generated from the cases.

use super::dialects::DIALECTS;
use super::{
    further_calls, labelled, labelled_bare, labelled_ends, labelled_more, labelled_thoughts,
    scenarios,
};
use std::fmt::Write as _;

/// Set to write the file instead of comparing the file.
const WRITE: &str = "WRITE_PARSER_CASES";

const HEAD: &str = "\
# Test cases of the output parser
<a id=\"cases-of-the-answer-parser\"></a>

Written by `WRITE_PARSER_CASES=1 cargo test -p text --test it the_document`; a test compares.
Each case is a text in the form of a family's published template, with its expected parts (`crates/text/tests/it/answers`).
Each is parsed as a whole, at every single cut, character by character, in random pieces, and as tokens through the decoder:
of vocabularies that have the delimiters as control tokens, as words and as letters, chosen and grouped at random.
All must give the same events, and no event may be contradicted by a later one.

## Malformed and incomplete calls
<a id=\"what-is-malformed-and-what-is-cut-short\"></a>

- A delimited call that cannot be parsed is content, verbatim. A call that has begun stays a call: its arguments end where they stop being JSON,
  and the rest is content. Both are *malformed*, and counted in the log.
- Under gpt-oss's headers a message to a function is a call whatever its text: arguments that are not JSON stay as they are, and count as malformed.
  Messages to the model's own tools (`to=python`) are code, and never malformed.
- A text that ends in the middle of a call is *cut short*: withheld text is emitted, and the finish reason is `length`.
  The call is malformed only if the model itself ended there.
  After a complete call, the beginning of a further call, and the separators between calls, are dropped.
- An answer with required calls (`tool_choice: required` or a named tool) has no content, wherever it is cut.
- Bare JSON (or Python) that turns out to be an answer is no call, and neither malformed nor cut short.

## Cases of every variant
<a id=\"in-every-dialect\"></a>

Each is rendered as the variant of the family writes it:

";

/// Labels of a family's own cases, in order.
fn own_labels(dialect: &str) -> Vec<String> {
    let cases = labelled::cases().into_iter().chain(labelled_more::cases());
    let cases = cases
        .chain(labelled_bare::cases())
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
    text += "\n## Cases of one variant\n<a id=\"in-one-dialect\"></a>\n\n| variant | cases | own labels |\n|---|---|---|\n";
    for dialect in DIALECTS {
        let own = own_labels(dialect.label);
        let all = shared.len() + own.len();
        let _ = writeln!(text, "| {} | {all} | {} |", dialect.label, own.join("; "));
    }
    text
}

#[test]
fn document_lists_all_cases() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../measurements/parser-cases.md"
    );
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == document(), "{path}: write it with {WRITE}=1");
}

#[test]
fn each_family_has_twenty_cases() {
    let own: usize = DIALECTS.iter().map(|d| own_labels(d.label).len()).sum();
    let ends = labelled_bare::cases().len()
        + labelled_ends::cases().len()
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
