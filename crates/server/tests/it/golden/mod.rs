//! What every dialect says in every case, byte for byte, streamed and whole.
//!
//! Each dialect has a file beside this one; ids and times in it are made equal. With `GOLDEN=write` in the
//! environment the files are written anew: what changed is then to be read.
//!
//! Promise (APIs): the bytes of every wire protocol × {text, stop string, length, two choices, log-probabilities,
//! usage, rejected, failed while running, cancelled, timed out}, streamed and non-streaming.

mod cases;
mod dialects;
mod fixed;

use cases::Case;
use dialects::{DIALECTS, Dialect};
use std::path::PathBuf;

/// All that a dialect says, case by case.
fn transcript(dialect: &Dialect) -> String {
    let mut all = String::new();
    for case in Case::ALL {
        for streamed in [true, false] {
            let Some(told) = case.told(dialect, streamed) else {
                continue;
            };
            let way = if streamed { "streamed" } else { "whole" };
            let title = format!("=== {case:?}, {way}: {}\n", told.head);
            all.push_str(&title);
            all.push_str(&fixed::fixed(&told.body));
            all.push_str(if told.body.ends_with('\n') { "" } else { "\n" });
        }
    }
    all
}

#[test]
fn every_case_in_every_dialect() {
    let mut wrong = Vec::new();
    for dialect in &DIALECTS {
        let file = format!("tests/it/golden/{}.txt", dialect.name);
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        let told = transcript(dialect);
        if std::env::var_os("GOLDEN").is_some() {
            std::fs::write(&path, &told).expect("a folder");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = kept.lines().zip(told.lines()).enumerate();
        if let Some((at, (was, is))) = lines.find(|(_, (was, is))| was != is) {
            wrong.push(format!("{}, line {}:\n-{was}\n+{is}", dialect.name, at + 1));
        } else if kept != told {
            wrong.push(format!("{}: one ends before the other", dialect.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
