//! Prompts with images: rows that are vectors, which an encoder computes in the step.

mod blocks;
mod encodings;
mod ends;
mod pages;

use crate::support::{Answer, Asked, Bench, Random};
use engine::fake::{
    EncoderLog, FakeConfig, FakeEncoderConfig, FakeInput, FakeModel, Fault, FaultAt, FaultKind,
    LateLog,
};
use engine::{CacheSalt, EngineConfig, MediaInput, Request, SamplingParams, Speculation, Terms};
use model::{DeviceFault, Dims};
use std::sync::Arc;
use std::time::Duration;
use stream::End;

/// Stands for rows of images in prompts.
const PAD: u32 = 63;

/// Names an image as a hash of its file would.
pub(crate) fn key_of(input: &FakeInput) -> [u8; 32] {
    let mut key = [7; 32];
    key[16..24].copy_from_slice(&input.seed.to_le_bytes());
    key[24..].copy_from_slice(&(input.rows as u64).to_le_bytes());
    key
}

/// Rows and columns of a grid with so many cells.
pub(crate) fn grid_of(rows: usize) -> (u32, u32) {
    let height = [4, 3, 2].into_iter().find(|by| rows.is_multiple_of(*by));
    let height = height.unwrap_or(1);
    (height as u32, (rows / height) as u32)
}

/// A sound image.
const fn image(seed: u64, rows: usize, units: usize) -> FakeInput {
    FakeInput {
        seed,
        rows,
        units,
        fault: None,
    }
}

/// A part of a prompt.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(Vec<u32>),
    Image(FakeInput),
}

/// The prompt of these parts with its inputs.
pub(crate) fn prompt_of(parts: &[Part]) -> (Vec<u32>, Vec<MediaInput>) {
    let (mut prompt, mut media) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(tokens) => prompt.extend_from_slice(tokens),
            Part::Image(input) => {
                let rows = prompt.len()..prompt.len() + input.rows;
                prompt.resize(rows.end, PAD);
                media.push(MediaInput {
                    key: key_of(input),
                    rows,
                    grid: grid_of(input.rows),
                    input: Arc::new(*input),
                });
            }
        }
    }
    (prompt, media)
}

fn request(bench: &Bench, parts: &[Part], max_tokens: usize) -> Request {
    let (prompt, media) = prompt_of(parts);
    Request {
        media,
        ..bench.request(&prompt, max_tokens)
    }
}

/// Text, an image, text.
fn question(image: FakeInput) -> [Part; 3] {
    [
        Part::Text(vec![1, 2, 3, 4, 5, 6]),
        Part::Image(image),
        Part::Text(vec![7, 8, 9]),
    ]
}

/// An encoder for images of up to 40 rows.
pub(crate) fn encoder(axes: bool, blocks: bool) -> FakeEncoderConfig {
    FakeEncoderConfig {
        rows_max: 40,
        axes,
        block_units: if blocks { 6 } else { 0 },
        costs: &[1],
        log: EncoderLog::default(),
    }
}

fn model() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 64,
            context_max: 512,
            page_tokens: 4,
            pages: 1024,
            rows_max: 64,
            logit_rows_max: 32,
        },
        tokens: 1..60,
        ..FakeConfig::default()
    }
}

/// Loses its device at this call.
fn losing_device_at(call: u64, ahead: bool) -> FakeModel {
    let mut config = model();
    config.faults = vec![Fault {
        at: FaultAt::Call(call),
        kind: FaultKind::Device(DeviceFault::Lost),
    }];
    let model = FakeModel::new(config);
    if ahead {
        model.late(LateLog::default())
    } else {
        model
    }
}

/// A bench with the encoder's log.
fn bench_of(model: FakeModel, encoder: &FakeEncoderConfig, config: EngineConfig) -> Bench {
    Bench::with(Box::new(model.encoding(encoder.clone())), config)
}

fn bench() -> (Bench, EncoderLog) {
    let encoder = encoder(false, false);
    let log = encoder.log.clone();
    let model = FakeModel::new(model());
    (bench_of(model, &encoder, EngineConfig::default()), log)
}

/// Ids and end of the first answer.
fn read(asked: &mut Asked) -> (Vec<u32>, Option<End>) {
    let answer = &mut asked.answers[0];
    answer.read();
    (answer.ids(), answer.end)
}

/// Answer of a request alone in an engine without a cache.
fn alone(encoder: &FakeEncoderConfig, parts: &[Part], change: &dyn Fn(&mut Request)) -> Vec<u32> {
    let config = EngineConfig {
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let encoder = FakeEncoderConfig {
        log: EncoderLog::default(),
        ..encoder.clone()
    };
    let mut bench = bench_of(FakeModel::new(model()), &encoder, config);
    let mut request = request(&bench, parts, 8);
    change(&mut request);
    let answer: Answer = bench.answer(request);
    assert_eq!(answer.end, Some(End::Length));
    answer.ids()
}

/// Text and up to three of six images, in any order.
fn random_parts(random: &mut Random) -> Vec<Part> {
    let mut parts = Vec::new();
    for _ in 0..1 + random.below(3) {
        if random.chance(80) {
            let text = (0..1 + random.below(30)).map(|_| 1 + random.below(3) as u32);
            parts.push(Part::Text(text.collect()));
        }
        let seed = random.below(6);
        parts.push(Part::Image(image(
            seed,
            1 + 7 * seed as usize,
            1 + seed as usize,
        )));
    }
    if random.chance(80) {
        parts.push(Part::Text(vec![9, 8, 7]));
    }
    parts
}

/// Settings from tight to wide.
fn random_config(random: &mut Random) -> EngineConfig {
    EngineConfig {
        step_tokens: 2 + random.below(20) as usize,
        step_target: random.chance(70).then_some(Duration::from_micros(1200)),
        encodings_bytes_max: [100, 1000, 1 << 20][random.below(3) as usize],
        prefix_cache: random.chance(80),
        speculation: [
            Speculation::Off,
            Speculation::PromptLookup,
            Speculation::Mtp,
        ][random.below(3) as usize],
        ..EngineConfig::default()
    }
}

#[test]
fn answer_depends_on_the_image() {
    let encoder = encoder(false, false);
    let of = |seed| alone(&encoder, &question(image(seed, 9, 2)), &|_| {});
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    // As many rows in another grid.
    let in_grid = |axes, grid| {
        let encoder = FakeEncoderConfig {
            axes,
            ..encoder.clone()
        };
        let change = |request: &mut Request| request.media[0].grid = grid;
        alone(&encoder, &question(image(1, 8, 2)), &change)
    };
    assert_eq!(in_grid(false, (2, 4)), in_grid(false, (4, 2)));
    assert_ne!(in_grid(true, (2, 4)), in_grid(true, (4, 2)));
}

/// Promise (Engine): with images, too, tokens do not depend on the cut of a prompt, on that of encodings, on other
/// sequences, on what is cached, and on draft tokens; for rows on three axes and for rows that see each other, whose pass
/// stops after each unit.
#[test]
fn tokens_are_independent_of_cuts_caches_and_the_batch() {
    for seed in 0..150 {
        let mut random = Random(seed);
        let encoder = encoder(seed % 2 == 1, seed % 4 >= 2);
        let late = (seed % 3 == 0).then(LateLog::default);
        let config = random_config(&mut random);
        let mut config_of_model = model();
        config_of_model.dims.pages = 60 + random.below(100) as usize;
        let model = FakeModel::new(config_of_model).predicting();
        let model = match &late {
            Some(log) => model.late(log.clone()),
            None => model,
        };
        let mut bench = bench_of(model, &encoder, config);
        let mut all = Vec::new();
        for _ in 0..6 {
            let parts = random_parts(&mut random);
            let sampling = SamplingParams {
                temperature: 0.0,
                repetition_penalty: [1.0, 1.3][random.below(2) as usize],
                dry_multiplier: [0.0, 0.8][random.below(2) as usize],
                ..SamplingParams::default()
            };
            let salt = CacheSalt(random.below(2).into());
            let change = move |request: &mut Request| {
                request.sampling = sampling.clone();
                request.terms = Terms {
                    salt,
                    ..Terms::default()
                };
            };
            let mut request = request(&bench, &parts, 8);
            change(&mut request);
            let choices = 1 + random.below(2) as usize;
            all.push((
                bench.ask(request, choices),
                alone(&encoder, &parts, &change),
            ));
            bench.steps(random.below(12) as usize);
        }
        bench.run();
        bench.assert_empty();
        for (asked, wanted) in &mut all {
            for answer in &mut asked.answers {
                answer.read();
                assert_eq!(answer.end, Some(End::Length), "seed {seed}");
                assert_eq!(&answer.ids(), wanted, "seed {seed}");
            }
        }
        let misuse = late.map_or(Vec::new(), |log| log.misuse());
        assert!(misuse.is_empty(), "seed {seed}: {misuse:?}");
    }
}

#[test]
fn invalid_inputs_are_rejected_with_field_and_bound() {
    type Break = fn(&mut Request);
    let encoder = encoder(true, false);
    let bench = bench_of(FakeModel::new(model()), &encoder, EngineConfig::default());
    let cases: [(&str, Break); 8] = [
        ("media[1] has rows 14..16; at least one, from 15..18", |r| {
            let mut second = r.media[0].clone();
            second.rows = 14..16;
            r.media.push(second);
        }),
        ("media[0] has rows 6..6; at least one, from 0..18", |r| {
            r.media[0].rows = 6..6;
        }),
        ("media[0] has rows 10..19; at least one, from 0..18", |r| {
            r.media[0].rows = 10..19;
        }),
        ("media[0] has rows 6..15; at least one, from 0..14", |r| {
            r.sampling.answered = 4;
        }),
        ("media[0] has 9 rows; its grid of 2 by 4 has 8", |r| {
            r.media[0].grid = (2, 4);
        }),
        ("media[0] has 41 rows; at most 40", |r| {
            r.prompt = vec![1; 60];
            r.media[0].rows = 0..41;
        }),
        ("media has 1025 inputs; at most 1024", |r| {
            r.media = vec![r.media[0].clone(); 1025];
        }),
        ("media: an embedding is computed from tokens only", |r| {
            r.embedding = Some(engine::Embedding {
                pooling: engine::Pooling::Last,
                vector: Arc::default(),
            });
        }),
    ];
    let rejected = |bench: &Bench, change: Break| {
        let mut request = request(bench, &question(image(1, 9, 1)), 3);
        let _answer = bench.choice(&mut request);
        change(&mut request);
        match bench.handle.submit(request) {
            Err(engine::Rejected::Invalid(_, why)) => why,
            other => panic!("{other:?}"),
        }
    };
    for (why, change) in cases {
        assert_eq!(rejected(&bench, change), why);
    }
    let blind = Bench::new(model(), EngineConfig::default());
    let why = "media has 1 inputs; the model has no encoder for them";
    assert_eq!(rejected(&blind, |_| {}), why);
    assert!(bench.handle.encoder().is_some() && blind.handle.encoder().is_none());
}
