//! Our answer parser beside other people's, on the texts of our goldens.
//!
//! smg's `reasoning-parser` and `tool-parser` one after the other, as smg uses them, and the parsers of
//! NVIDIA's Dynamo. Each reads each golden of the families it knows; where it makes something else of the text than we do, `reasons`
//! says why, and who finds a difference without a reason, or a reason without a difference, fails.
//! `docs/parser-differences.md` is written from that.
//!
//! ```text
//! cargo xtask differential            compares, and compares the document
//! cargo xtask differential --write    writes the document
//! cargo xtask differential --show     prints every difference
//! ```

mod document;
mod dynamo;
mod meaning;
mod ours;
mod reasons;
mod smg;

#[path = "../../../crates/text/tests/it/answers/collected.rs"]
#[expect(dead_code, reason = "the tests' own")]
mod collected;
#[path = "../../../crates/text/tests/it/answers/dialects.rs"]
mod dialects;
#[path = "../../../crates/text/tests/it/answers/labelled.rs"]
#[expect(dead_code, reason = "the tests' own")]
mod labelled;
#[path = "../../../crates/text/tests/it/answers/labelled_ends.rs"]
mod labelled_ends;
#[path = "../../../crates/text/tests/it/answers/labelled_more.rs"]
mod labelled_more;
#[path = "../../../crates/text/tests/it/answers/labelled_thoughts.rs"]
mod labelled_thoughts;
#[path = "../../../crates/text/tests/it/answers/scenarios.rs"]
mod scenarios;

use document::{Compared, Difference};
use meaning::Meaning;
use std::process::ExitCode;

/// Somebody else's parser of one family.
trait Rival {
    /// Reads a whole text, or the same in pieces.
    fn read(&self, text: &Text, pieces: &mut dyn Iterator<Item = &str>) -> Result<Meaning, String>;
}

/// One golden.
struct Text {
    dialect: &'static str,
    label: String,
    in_reasoning: bool,
    text: String,
    ours: Meaning,
}

fn main() -> ExitCode {
    let flag = std::env::args().nth(1);
    std::panic::set_hook(Box::new(|_| {}));
    let texts = ours::texts();
    let compared: Vec<Compared> = [("smg", smg::all()), ("dynamo", dynamo::all())]
        .into_iter()
        .flat_map(|(whose, rivals)| {
            let texts = &texts;
            rivals
                .into_iter()
                .map(move |(dialect, rival)| compare(whose, dialect, rival.as_ref(), texts))
        })
        .collect();
    if flag.as_deref() == Some("--show") {
        compared.iter().for_each(Compared::show);
        return ExitCode::SUCCESS;
    }
    let mut wrong = reasons::check(&compared);
    wrong.extend(document::settle(&compared, flag.as_deref() == Some("--write")).err());
    for line in &wrong {
        eprintln!("{line}");
    }
    match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn compare(
    whose: &'static str,
    dialect: &'static str,
    rival: &dyn Rival,
    texts: &[Text],
) -> Compared {
    let mut compared = Compared {
        whose,
        dialect,
        texts: 0,
        cut: 0,
        differences: Vec::new(),
    };
    for text in texts.iter().filter(|text| text.dialect == dialect) {
        let whole = read(rival, text, &mut std::iter::once(text.text.as_str()));
        let streamed = read(rival, text, &mut pieces(&text.text));
        compared.cut += usize::from(streamed != whole);
        compared.texts += 1;
        if whole.as_ref() != Ok(&text.ours) {
            compared.differences.push(Difference {
                label: text.label.clone(),
                text: text.text.clone(),
                ours: text.ours.clone(),
                theirs: whole,
            });
        }
    }
    compared
}

/// A text's characters, but for tags, which many models have tokens for: they come whole.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let (piece, after) = rest.split_at(tag(rest).unwrap_or(first));
        rest = after;
        Some(piece)
    })
}

/// How long the tag is that a text begins with.
fn tag(text: &str) -> Option<usize> {
    let close = match text.chars().next()? {
        '<' => '>',
        '[' => ']',
        _ => return None,
    };
    let within = &text[1..text.find(close)?];
    let is_tag = match close {
        '>' => !within.is_empty() && !within.contains(|c: char| c.is_whitespace() || c == '<'),
        _ => within.contains("_") && within.chars().all(|c| c.is_ascii_uppercase() || c == '_'),
    };
    is_tag.then_some(within.len() + 2)
}

/// A panic is one way of not understanding.
fn read(
    rival: &dyn Rival,
    text: &Text,
    pieces: &mut dyn Iterator<Item = &str>,
) -> Result<Meaning, String> {
    let read = std::panic::AssertUnwindSafe(|| rival.read(text, pieces));
    std::panic::catch_unwind(read).unwrap_or_else(|_| Err("it panics".to_owned()))
}
