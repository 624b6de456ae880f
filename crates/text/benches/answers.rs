//! Cost of parsing an answer, which must be linear in the length: `cargo bench -p text --bench answers`.
//!
//! Every family, answers of 10, 100 and 1000 KB that are one long content, reasoning, string or list of
//! arguments, or many calls, in pieces of 4 characters; nanoseconds per byte, the best of several runs.
#![allow(missing_docs, clippy::print_stdout, reason = "a program that prints")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/it/answers/collected.rs"]
#[allow(dead_code, reason = "the tests use more")]
mod collected;
#[path = "../tests/it/answers/dialects.rs"]
mod dialects;
#[path = "../tests/it/answers/long.rs"]
mod long;
#[path = "../tests/it/answers/scenarios.rs"]
#[allow(dead_code, reason = "the tests use more")]
mod scenarios;

use long::Long;
use std::time::Instant;
use text::{AnswerParser, AnswerParts, Part};

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
const KINDS: [&str; 5] = ["text", "reasoning", "a string", "a list", "many calls"];
/// Bytes parsed for one measurement.
const BYTES: usize = 1_000_000;
const TURNS: usize = 3;

fn main() {
    println!("nanoseconds per byte at 10 / 100 / 1000 KB");
    println!("| dialect | {} |", KINDS.join(" | "));
    println!("|---|{}", "---|".repeat(KINDS.len()));
    let sizes = SIZES.map(long::all);
    for dialect in dialects::DIALECTS {
        let cell = |kind: &str| {
            let figures = sizes.each_ref().map(|answers| {
                let mut found = answers.iter();
                let found = found.find(|a| a.label == kind && a.dialect.label == dialect.label);
                format!("{:.1}", found.map_or(f64::NAN, ns_per_byte))
            });
            figures.join(" / ")
        };
        let cells: Vec<String> = KINDS.iter().map(|kind| cell(kind)).collect();
        println!("| {} | {} |", dialect.label, cells.join(" | "));
    }
}

fn ns_per_byte(answer: &Long) -> f64 {
    let tools = collected::tools();
    let pieces = pieces(&answer.text);
    let times = (BYTES / answer.text.len()).max(1);
    let mut best = f64::INFINITY;
    for _ in 0..TURNS {
        let start = Instant::now();
        let mut told = 0;
        for _ in 0..times {
            let mut parser = AnswerParser::new(answer.dialect.format, Some(&tools), false);
            let mut parts = AnswerParts::default();
            let mut count =
                |part: Part<&str>| told += usize::from(matches!(part, Part::Content(_)));
            for piece in &pieces {
                parser.push(piece, &mut parts);
                parts.drain_into(&mut count);
            }
            parser.finish(&mut parts);
            parts.drain_into(&mut count);
        }
        std::hint::black_box(told);
        let bytes = times * answer.text.len();
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / bytes as f64);
    }
    best
}

fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let end = rest.char_indices().nth(4).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
