//! Speed of encoding and decoding: `cargo bench -p text --bench tokenize`.
//!
//! For each available real vocabulary: bytes per second over this crate's source (code and prose) and over
//! expensive texts, and ids per second for decoding. The best of several rounds, since other load only slows
//! a round.
#![allow(missing_docs, clippy::print_stdout, reason = "a program that prints")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use text::{Decoder, Tokenizer};

const ROUNDS: usize = 5;
const HOSTILE_BYTES: usize = 1 << 20;

fn main() {
    let Some(folder) = support::folder() else {
        return;
    };
    let source = source();
    for name in support::NAMES {
        let spec = support::spec(&folder, name);
        let start = Instant::now();
        let tokenizer = Arc::new(Tokenizer::from_vocab(spec).expect("a real vocabulary"));
        println!(
            "{name}: made in {:.0} ms",
            start.elapsed().as_secs_f64() * 1e3
        );
        encode(&tokenizer, "source", &source);
        for unit in ["a", " ", "1", "你好", "aA"] {
            encode(&tokenizer, unit, &unit.repeat(HOSTILE_BYTES / unit.len()));
        }
        decode(&tokenizer, &source);
    }
}

fn encode(tokenizer: &Tokenizer, what: &str, text: &str) {
    let mut ids = 0;
    let seconds =
        best_s(|| ids = black_box(tokenizer.encode(text, false)).map_or(0, |ids| ids.len()));
    let rate = text.len() as f64 / seconds / 1e6;
    println!(
        "  encode {what:?}: {} bytes, {ids} ids, {:.2} ms, {rate:.1} MB/s",
        text.len(),
        seconds * 1e3
    );
}

fn decode(tokenizer: &Arc<Tokenizer>, text: &str) {
    let ids = tokenizer.encode(text, false).expect("source is encoded");
    let mut decoder = Decoder::new(Arc::clone(tokenizer), true);
    let mut out = String::with_capacity(text.len() * 2);
    let seconds = best_s(|| {
        out.clear();
        decoder.reset();
        ids.iter().for_each(|id| decoder.push(*id, &mut out));
    });
    println!(
        "  decode: {} ids, {:.0} ns each",
        ids.len(),
        seconds / ids.len() as f64 * 1e9
    );
}

fn best_s(mut run: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn source() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokenizer");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the source")
        .flatten()
        .map(|file| file.path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("UTF-8"))
        .collect()
}
