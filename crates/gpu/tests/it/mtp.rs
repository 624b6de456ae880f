//! Guesses of an MTP head on a device.
//!
//! Promise (Arithmetic): on a device, guesses of an MTP head have a cosine ≥ 0.9999 with those of the CPU in floats, do not depend on
//! the division of the prompt below 16 rows, and change no logits and no state.

use crate::serving::Bench;
use crate::support::{cosine, device, gguf, ids, load, logits, on_cpu_with, options, pages, spec};
use engine::{EngineConfig, Speculation};
use gpu::Options;
use kernels::KvKind;
use model::{Ahead, Batch, Draws, Forward, SpanStates, Want};

/// Computes ids from `position` on, without logits.
fn feed(model: &mut dyn Forward, ids: &[u32], position: usize, states: SpanStates) {
    let mut batch = Batch::default();
    batch.push(ids, position, &pages(0, position + ids.len()), Want::None);
    batch.set_states(Some(states));
    model.forward(&batch).expect("a batch");
}

/// Guesses about what follows `id` at `position`, after the state `before`.
fn guess(model: &mut dyn Forward, id: u32, position: usize, before: Option<u32>) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push(&[id], position, &pages(0, position + 1), Want::Last);
    batch.set_states(Some(SpanStates::new(before, 7)));
    let head = model.mtp_head().expect("a head");
    head.predict(&batch).expect("a guess").to_vec()
}

#[test]
fn guesses_equal_the_processors_and_change_nothing() {
    let Some(device) = device() else { return };
    for preset in ["tiny-qwen35", "tiny-qwen35moe"] {
        let mut spec = spec(preset, "F32");
        let plain = load(gguf(&spec), &device, &options());
        let mut plain = plain.unwrap_or_else(|why| panic!("{preset}: {why}"));
        spec.mtp = true;
        let options = Options {
            mtp: true,
            ..options()
        };
        let ours = load(gguf(&spec), &device, &options);
        let mut ours = ours.unwrap_or_else(|why| panic!("{preset}: {why}"));
        let mut theirs = on_cpu_with(&spec, KvKind::F16);
        assert!(plain.mtp_head().is_none());
        let prompt = ids(9, 31, ours.dims().vocab);
        // A head changes no logits: below 16 rows no bit.
        let wanted = logits(&mut plain, &prompt, 8, &[15, 15, 1]);
        assert!(
            logits(&mut ours, &prompt, 8, &[15, 15, 1]) == wanted,
            "{preset}"
        );
        feed(&mut theirs, &prompt[..30], 0, SpanStates::new(None, 2));
        let wanted = guess(&mut theirs, prompt[30], 30, Some(2));
        feed(&mut ours, &prompt[..30], 0, SpanStates::new(None, 2));
        let found = guess(&mut ours, prompt[30], 30, Some(2));
        assert!(cosine(&found, &wanted) >= 0.9999, "{preset}: by tiles");
        let mut of_cuts = [&[15, 15][..], &[1; 30], &[7, 15, 8]].map(|cuts| {
            let (mut at, mut states) = (0, SpanStates::new(None, 3));
            for (turn, rows) in cuts.iter().enumerate() {
                feed(&mut ours, &prompt[at..at + rows], at, states);
                let last = 3 + turn as u32 % 2;
                (at, states) = (
                    at + rows,
                    SpanStates::new(Some(last), 3 + (turn as u32 + 1) % 2),
                );
            }
            guess(&mut ours, prompt[30], 30, states.before)
        });
        assert!(
            cosine(&of_cuts[0], &wanted) >= 0.9999,
            "{preset}: row by row"
        );
        of_cuts.rotate_left(1);
        assert!(
            of_cuts.iter().all(|found| *found == of_cuts[0]),
            "{preset}: a cut"
        );
        let first = guess(&mut ours, prompt[0], 0, None);
        let of_cpu = guess(&mut theirs, prompt[0], 0, None);
        assert!(cosine(&first, &of_cpu) >= 0.9999, "{preset}: the first");
        check_in_flight(&mut ours, &prompt, preset);
    }
}

/// A guess while the results of a batch are on their way.
fn check_in_flight(model: &mut gpu::Model, prompt: &[u32], preset: &str) {
    feed(model, &prompt[..30], 0, SpanStates::new(None, 2));
    let wanted = guess(model, prompt[30], 30, Some(2));
    let mut batch = Batch::default();
    batch.push(&prompt[30..], 30, &pages(0, 31), Want::Last);
    batch.set_states(Some(SpanStates::new(Some(2), 6)));
    let logits = model.forward(&batch).expect("a batch").to_vec();
    model.start(&batch).expect("a batch");
    let mut draws = Draws::default();
    draws.push(0, None);
    model.draw(&draws).expect("draws");
    let found = guess(model, prompt[30], 30, Some(2));
    assert!(found == wanted, "{preset}: in flight");
    assert!(model.drawn().expect("a row").logits == logits, "{preset}");
}

#[test]
fn speculation_by_a_head_changes_no_token() {
    let Some(device) = device() else { return };
    let mut spec = spec("tiny-qwen35", "F32");
    spec.mtp = true;
    let exact = Options {
        exact: true,
        mtp: true,
        states: 24,
        ..options()
    };
    let answer = |speculation| {
        let model = load(gguf(&spec), &device, &exact).expect("a model");
        let config = EngineConfig {
            speculation,
            ..EngineConfig::default()
        };
        let mut bench = Bench::with(Box::new(model), config);
        let vocab = bench.handle.dims().vocab;
        let answers = [ids(5, 21, vocab), ids(6, 9, vocab)].map(|prompt| {
            let mut request = bench.request(&prompt, 30);
            let answer = bench.choice(&mut request);
            bench.submit(request);
            answer
        });
        bench.run();
        let ids = answers.map(|mut answer| {
            answer.read();
            answer.ids()
        });
        (ids, bench.handle.stats().tokens_drafted())
    };
    let (plain, none) = answer(Speculation::Off);
    let (found, drafted) = answer(Speculation::Mtp);
    assert!(none == 0 && drafted > 10, "{drafted} draft tokens");
    assert_eq!(found, plain);
}
