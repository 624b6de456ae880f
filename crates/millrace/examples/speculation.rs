//! What speculative decoding brings, and what it costs where it brings nothing.
//!
//! `speculation MODEL [--draft MODEL] [--tokens N] [--sequences N] [--rounds N] [--guesses N]`
//!
//! The text is prescribed (a constraint allows exactly one token at each position), so that how
//! often a guess is right is a property of the text, while each step costs what it costs: a
//! synthetic model has the true one's speed but nothing to say. Three texts: one that repeats
//! itself, one that repeats itself with every eighth token changed, and a random one whose every
//! pair of tokens was seen before with another continuation, the worst case for a look-up. Off and
//! on alternate; medians.

use cpu::{LoadOptions, Model, PAGE_TOKENS};
use engine::{
    Choice, Constraint, Engine, EngineConfig, Handle, Next, Request, SamplingParams, Speculation,
    Token,
};
use kernels::{Isa, KvKind, Pool};
use model::Forward;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use stream::{PoolLimits, SegmentPool};
use weights::gguf::Gguf;

const PROMPT: usize = 128;
/// Tokens of the text before it repeats.
const PERIOD: usize = 48;

struct Asked {
    model: String,
    draft: Option<String>,
    tokens: usize,
    sequences: usize,
    rounds: usize,
    guesses: usize,
}

/// Allows the prescribed token at each position.
struct Prescribed {
    text: Arc<[u32]>,
    at: usize,
}

impl Constraint for Prescribed {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        let token = self.text[self.at];
        allowed[token as usize / 32] |= 1 << (token % 32);
        true
    }
    fn accept(&mut self, _: u32) {
        self.at += 1;
    }
    fn is_complete(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = asked()?;
    let mut out = std::io::stdout().lock();
    let kinds = match asked.draft {
        Some(_) => [Speculation::Off, Speculation::Draft],
        None => [Speculation::Off, Speculation::PromptLookup],
    };
    writeln!(
        out,
        "{} sequences, {} tokens each",
        asked.sequences, asked.tokens
    )?;
    writeln!(
        out,
        "| text | off, tok/s | on, tok/s | ratio | right / guessed | steps |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    let mut engines = Vec::new();
    for kind in kinds {
        let mut engine = engine(&asked, kind)?;
        // As long as there is a handle the engine takes requests.
        let handle = engine.handle();
        engines.push((engine, handle));
    }
    for (name, text) in texts(PROMPT + asked.tokens) {
        let mut rates = [Vec::new(), Vec::new()];
        let mut counts = (0, 0, 0);
        for _ in 0..asked.rounds {
            for ((engine, handle), rates) in engines.iter_mut().zip(&mut rates) {
                let before = count(engine);
                rates.push(run(engine, handle, &text, &asked)?);
                let after = count(engine);
                counts = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
            }
        }
        let [off, on] = rates.map(median);
        let (right, guessed, steps) = counts;
        writeln!(
            out,
            "| {name} | {off:.1} | {on:.1} | {:.3} | {right} / {guessed} | {steps} |",
            on / off
        )?;
    }
    Ok(())
}

fn count(engine: &Engine) -> (u64, u64, u64) {
    let stats = engine.stats();
    (
        stats.tokens_accepted(),
        stats.tokens_drafted(),
        stats.steps(),
    )
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Tokens per second from the first token of all to the end.
fn run(
    engine: &mut Engine,
    handle: &Handle,
    text: &Arc<[u32]>,
    asked: &Asked,
) -> Result<f64, Box<dyn Error>> {
    let pool = SegmentPool::<Token>::new(PoolLimits {
        segments_max: 1 << 16,
    });
    let mut readers = Vec::new();
    for _ in 0..asked.sequences {
        let (tokens, reader) = stream::open(&pool, asked.tokens).map_err(|_| "no segments")?;
        readers.push(reader);
        let constraint = Prescribed {
            text: Arc::clone(text),
            at: PROMPT,
        };
        let choice = Choice {
            tokens,
            top: None,
            terminator: None,
            constraint: Some(Box::new(constraint)),
        };
        let request = Request {
            sampling: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            choices: vec![choice],
            ..Request::new(text[..PROMPT].to_vec(), asked.tokens)
        };
        handle.submit(request).map_err(|why| format!("{why:?}"))?;
    }
    let all = engine.stats().tokens_generated() + (asked.sequences * asked.tokens) as u64;
    let mut begun = None;
    loop {
        let report = engine.step(now());
        if report.rows_prefill == 0 && begun.is_none() {
            begun = Some((now(), engine.stats().tokens_generated()));
        }
        if engine.stats().tokens_generated() == all || report.next == Next::Sleep {
            break;
        }
    }
    let (since, tokens) = begun.ok_or("nothing was generated")?;
    let rate = (all - tokens) as f64 / (now() - since).as_secs_f64();
    while engine.step(now()).next == Next::Step {}
    Ok(rate)
}

fn texts(len: usize) -> [(&'static str, Arc<[u32]>); 3] {
    let mut state = 1u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        1000 + (state >> 40) as u32 % 4096
    };
    let period: Vec<u32> = (0..PERIOD).map(|_| random()).collect();
    let repeats = (0..len).map(|at| period[at % PERIOD]);
    let changed: Vec<u32> = (0..len)
        .map(|at| match at % 8 {
            7 => random(),
            _ => period[at % PERIOD],
        })
        .collect();
    // Pairs that were seen before, each time followed by something new.
    let pair = [random(), random()];
    let worst: Vec<u32> = (0..len)
        .map(|at| match at % 3 {
            2 => random(),
            at => pair[at],
        })
        .collect();
    [
        ("repeats itself", repeats.collect()),
        ("one in eight changed", changed.into()),
        ("pairs known, what follows new", worst.into()),
    ]
}

fn engine(asked: &Asked, speculation: Speculation) -> Result<Engine, Box<dyn Error>> {
    let config = EngineConfig {
        speculation,
        draft_tokens: asked.guesses,
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let large = load(&asked.model, asked)?;
    let engine = match (&asked.draft, speculation) {
        (Some(draft), Speculation::Draft) => {
            Engine::with_draft(large, load(draft, asked)?, config, now())?
        }
        _ => Engine::new(large, config, now())?,
    };
    Ok(engine)
}

fn load(path: &str, asked: &Asked) -> Result<Box<dyn Forward>, Box<dyn Error>> {
    let each = (PROMPT + asked.tokens + 32).div_ceil(PAGE_TOKENS);
    let options = LoadOptions {
        context_max: Some(each * PAGE_TOKENS),
        page_tokens: PAGE_TOKENS,
        pages: each * (asked.sequences + 1),
        kv: KvKind::F16,
        states: 0,
        rows_max: 512,
        logit_rows_max: 64,
        mtp: false,
    };
    let pool = Pool::new(std::thread::available_parallelism()?.get());
    let model = Model::load(
        Gguf::open(path)?,
        Isa::detect(),
        pool,
        &options,
        &mut |_| {},
    )?;
    Ok(Box::new(model))
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: speculation MODEL [--draft MODEL] [--tokens N] [--sequences N] [--rounds N] [--guesses N]";
    let mut asked = Asked {
        model: args.next().ok_or(usage)?,
        draft: None,
        tokens: 256,
        sequences: 1,
        rounds: 3,
        guesses: EngineConfig::default().draft_tokens,
    };
    while let (Some(name), Some(value)) = (args.next(), args.next()) {
        match name.as_str() {
            "--draft" => asked.draft = Some(value),
            "--tokens" => asked.tokens = value.parse()?,
            "--sequences" => asked.sequences = value.parse()?,
            "--rounds" => asked.rounds = value.parse()?,
            "--guesses" => asked.guesses = value.parse()?,
            _ => return Err(usage.into()),
        }
    }
    Ok(asked)
}

#[expect(clippy::disallowed_methods, reason = "a program that measures")]
fn now() -> Instant {
    Instant::now()
}
