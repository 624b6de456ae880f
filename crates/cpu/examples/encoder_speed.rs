//! Texts per second of an encoder, with texts of 32 and of 512 tokens; a batch has 512 rows.
//!
//! `encoder_speed MODEL [ROUNDS]` prints the median of ROUNDS (default 3), as JSON. Threads: `MILLRACE_THREADS`, or 2.

use cpu::{EncoderModel, LoadOptions, PAGE_TOKENS};
use kernels::{Isa, KvKind, Pool};
use model::{Batch, Forward, Want};
use std::error::Error;
use std::io::Write;
use std::time::Instant;
use weights::encoder::EncoderKind;
use weights::gguf::Gguf;

const ROWS: usize = 512;
const TEXT_TOKENS: [usize; 2] = [32, 512];
/// Ids below this one are special tokens of the vocabulary.
const FIRST_WORD: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: encoder_speed MODEL [ROUNDS]")?;
    let rounds = args.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let threads = std::env::var("MILLRACE_THREADS").map_or(Ok(2), |threads| threads.parse())?;
    let options = LoadOptions {
        context_max: Some(ROWS),
        page_tokens: PAGE_TOKENS,
        pages: ROWS,
        kv: KvKind::F16,
        states: 0,
        rows_max: ROWS,
        logit_rows_max: ROWS,
        mtp: false,
    };
    let gguf = Gguf::open(path)?;
    let kind = EncoderKind::of(&gguf).ok_or("not an encoder")?;
    let pool = Pool::new(threads);
    let mut model = EncoderModel::load(gguf, kind, Isa::detect(), pool, &options, &mut |_| {})?;
    let mut out = std::io::stdout();
    for tokens in TEXT_TOKENS {
        let rate = texts_per_s(&mut model, tokens, rounds)?;
        writeln!(out, "{{\"tokens\":{tokens},\"texts_per_s\":{rate:.3}}}")?;
    }
    Ok(())
}

/// The median of `rounds`, after one round for warm memory.
fn texts_per_s(
    model: &mut EncoderModel,
    tokens: usize,
    rounds: usize,
) -> Result<f64, Box<dyn Error>> {
    let texts = ROWS / tokens;
    let vocabulary = model.dims().vocab;
    let mut batch = Batch::default();
    for text in 0..texts {
        let ids: Vec<u32> = (0..tokens).map(|i| word(text + i, vocabulary)).collect();
        let pages = tokens.div_ceil(PAGE_TOKENS);
        let table: Vec<u32> = (0..pages)
            .map(|page| (text * pages + page) as u32)
            .collect();
        batch.push(&ids, 0, &table, Want::AllHidden);
    }
    let mut seconds = Vec::new();
    for _ in 0..=rounds {
        #[expect(clippy::disallowed_methods, reason = "a measurement")]
        let begin = Instant::now();
        model.forward(&batch)?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    let median = seconds.get(seconds.len() / 2).ok_or("at least one round")?;
    Ok(texts as f64 / median)
}

fn word(number: usize, vocabulary: usize) -> u32 {
    (FIRST_WORD + number * 37 % (vocabulary - FIRST_WORD)) as u32
}
