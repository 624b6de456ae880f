//! Tokens per second of a model: prefill of 512, decode of 1 and of 32 sequences.
//!
//! `speed MODEL [ROUNDS]` prints the median of ROUNDS (default 3). Threads: `MILLRACE_THREADS`, or 2.

use cpu::{LoadOptions, Model, PAGE_TOKENS};
use kernels::{Isa, KvKind, Pool};
use model::{Batch, Forward, SpanStates, Want};
use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};
use weights::gguf::Gguf;

const PREFILL: usize = 512;
const SEQUENCES: usize = 32;
/// Positions before decoding begins, and decode steps.
const CONTEXT: usize = 64;
const STEPS: usize = 16;
const PAGES: usize = SEQUENCES * (CONTEXT + STEPS).div_ceil(PAGE_TOKENS) + PREFILL / PAGE_TOKENS;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: speed MODEL [ROUNDS]")?;
    let rounds = args.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let threads = std::env::var("MILLRACE_THREADS").map_or(Ok(2), |threads| threads.parse())?;
    let options = LoadOptions {
        context_max: Some(PREFILL),
        page_tokens: PAGE_TOKENS,
        pages: PAGES,
        kv: KvKind::F16,
        states: 2 * SEQUENCES,
        rows_max: PREFILL,
        logit_rows_max: SEQUENCES,
        mtp: false,
    };
    let gguf = Gguf::open(path)?;
    let (model, load) = timed(|| {
        Model::load(
            gguf,
            Isa::detect(),
            Pool::new(threads),
            &options,
            &mut |_| {},
        )
    });
    let mut model = model?;
    let mut out = std::io::stdout();
    writeln!(out, "load {load:.2?}, {:?}", model.bytes())?;
    let rates = [
        median(rounds, || prefill(&mut model))?,
        median(rounds, || decode(&mut model, 1))?,
        median(rounds, || decode(&mut model, SEQUENCES))?,
    ];
    for (name, rate) in ["prefill 512", "decode 1", "decode 32"].iter().zip(rates) {
        writeln!(out, "{name:12} {rate:9.1} tokens/s")?;
    }
    Ok(())
}

type Rate = Result<f64, Box<dyn Error>>;

fn prefill(model: &mut Model) -> Rate {
    let tokens: Vec<u32> = (0..PREFILL as u32).map(|i| i * 37 % 1000).collect();
    let mut batch = Batch::default();
    batch.push(&tokens, 0, &pages(0, PREFILL), Want::Last);
    batch.set_states(Some(SpanStates::alternating(0, 0, 0)));
    let (done, time) = timed(|| model.forward(&batch).map(|_| ()));
    done?;
    Ok(PREFILL as f64 / time.as_secs_f64())
}

fn decode(model: &mut Model, sequences: usize) -> Rate {
    let mut batch = Batch::default();
    let tokens: Vec<u32> = (0..CONTEXT as u32).collect();
    let tables: Vec<_> = (0..sequences).map(|i| pages(i, CONTEXT + STEPS)).collect();
    for (i, table) in tables.iter().enumerate() {
        batch.clear();
        batch.push(&tokens, 0, table, Want::None);
        batch.set_states(Some(SpanStates::alternating(i, 0, 0)));
        model.forward(&batch)?;
    }
    let (done, time) = timed(|| {
        (0..STEPS).try_for_each(|step| {
            batch.clear();
            for (i, table) in tables.iter().enumerate() {
                let position = CONTEXT + step;
                batch.push(&[(i + step) as u32], position, table, Want::Last);
                batch.set_states(Some(SpanStates::alternating(i, step + 1, position)));
            }
            model.forward(&batch).map(|_| ())
        })
    });
    done?;
    Ok((sequences * STEPS) as f64 / time.as_secs_f64())
}

/// Pages of sequence `index`, each of `positions`.
fn pages(index: usize, positions: usize) -> Vec<u32> {
    let count = positions.div_ceil(PAGE_TOKENS);
    (index * count..(index + 1) * count)
        .map(|page| page as u32)
        .collect()
}

fn median(rounds: usize, mut measure: impl FnMut() -> Rate) -> Rate {
    let mut rates = (0..rounds.max(1))
        .map(|_| measure())
        .collect::<Result<Vec<_>, _>>()?;
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

#[expect(
    clippy::disallowed_methods,
    reason = "measuring is what this program is for"
)]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}
