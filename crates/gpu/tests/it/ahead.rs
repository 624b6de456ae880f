//! Batches that are started before the tokens of the last one are known, and tokens that the device draws.
//!
//! Promise (Arithmetic): on a device that runs ahead, tokens, ends and alternatives are those of the same model step by step,
//! whose rows the processor draws from: with penalties, bias, filters, constraints, credit, several choices, preemptions and
//! a device that is lost in flight. A number that is not finite, in a prompt or after a token that was drawn, ends its request and
//! changes no token of another. A token costs two submits, one wait, one mapping and no new buffer.
//! Also held by `gpu/src/selftest/tests.rs :: draws_equal_their_definition`.

use crate::serving::{Answer, Bench, OtherRest, StopAt, sampling};
use crate::support::{
    PAGES, device, gguf, ids, load, logits, on_device, options, own_device, pages, poisoned, spec,
};
use engine::Request;
use gpu::{Device, Options};
use kernels::Isa;
use kernels::logits::most_likely;
use model::{
    Ahead, Batch, DRAWN, DrawOutcome, DrawRule, Draws, Forward, ForwardError, SpanStates, Want,
};
use std::sync::Arc;
use stream::{End, FailCode};
use testing::random::Random;
use weights::gguf::Gguf;

/// The largest difference of log-probabilities that are computed on both sides.
const LOGPROB_ERROR_MAX: f32 = 1e-4;

/// Everything that was read of an answer.
#[derive(Debug)]
struct Got {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    alternatives: Vec<(u32, f32)>,
    end: Option<End>,
}

impl Got {
    fn of(answer: &mut Answer) -> Self {
        answer.read();
        let alternatives = answer.alternatives().into_iter();
        Self {
            ids: answer.ids(),
            logprobs: answer.tokens.iter().map(|token| token.logprob).collect(),
            alternatives: alternatives.map(|top| (top.id, top.logprob)).collect(),
            end: answer.end,
        }
    }
}

/// Panics unless both are equal, but for the last bits of log-probabilities.
fn assert_equal(ahead: &Got, plain: &Got, what: &str) {
    assert_eq!((&ahead.ids, ahead.end), (&plain.ids, plain.end), "{what}");
    let is_near =
        |a: &f32, b: &f32| (a.is_nan() && b.is_nan()) || (a - b).abs() < LOGPROB_ERROR_MAX;
    let mut pairs = ahead.logprobs.iter().zip(&plain.logprobs);
    assert!(
        pairs.all(|(a, b)| is_near(a, b)),
        "{what}: log-probabilities"
    );
    assert_eq!(ahead.alternatives.len(), plain.alternatives.len(), "{what}");
    let mut pairs = ahead.alternatives.iter().zip(&plain.alternatives);
    assert!(
        pairs.all(|(a, b)| a.0 == b.0 && is_near(&a.1, &b.1)),
        "{what}: alternatives"
    );
}

fn exact(preset: &str, mix: &str, pages: usize, device: &Arc<Device>) -> gpu::Model {
    exact_of(gguf(&spec(preset, mix)), pages, device)
}

fn exact_of(files: Gguf, pages: usize, device: &Arc<Device>) -> gpu::Model {
    let options = Options {
        exact: true,
        pages,
        rows_max: 24,
        logit_rows_max: 8,
        spans_max: 8,
        draws_max: 32,
        states: 24,
        ..options()
    };
    load(files, device, &options).unwrap_or_else(|why| panic!("{why}"))
}

/// Requests of all kinds whose readers read now and then.
fn workload(bench: &mut Bench, seed: u64) -> Vec<Got> {
    let mut random = Random(seed);
    let vocab = bench.handle.dims().vocab;
    let mut all = Vec::new();
    for i in 0..8 {
        let prompt = ids(random.next(), 1 + random.below(30) as usize, vocab);
        let mut request = Request {
            sampling: sampling(&mut random),
            credit_window: random.below(2) * (1 + random.below(6)),
            ..bench.request(&prompt, 11 + random.below(20) as usize)
        };
        let choices = 1 + random.below(4) as usize / 2;
        let (constrained, stopped) = (random.chance(35), random.chance(40));
        let answers: Vec<_> = (0..choices).map(|_| bench.choice(&mut request)).collect();
        for choice in &mut request.choices {
            if stopped {
                choice.terminator = Some(Box::new(StopAt(i % 3)));
            }
            if constrained {
                choice.constraint = Some(Box::new(OtherRest {
                    vocab,
                    last: 0,
                    left: 9,
                }));
            }
        }
        bench.submit(request);
        all.extend(answers);
        (0..random.below(3)).for_each(|_| _ = bench.step());
    }
    for step in 0..3000 {
        bench.step();
        for (at, answer) in all.iter_mut().enumerate() {
            if step % (1 + at % 3) == 0 {
                answer.read();
            }
        }
        if all.iter().all(|answer| answer.end.is_some()) {
            break;
        }
    }
    bench.run();
    all.iter_mut().map(Got::of).collect()
}

#[test]
fn answers_are_those_of_the_model_step_by_step() {
    let Some(device) = device() else { return };
    let (mut preemptions, mut void, mut ends) = (0, 0, 0);
    for (preset, mix, pages) in [
        ("tiny-llama", "Q8_0", PAGES),
        ("tiny-llama", "F32", 12),
        ("tiny-gemma3", "Q4_0", PAGES),
        ("tiny-gpt-oss", "MXFP4_MOE", PAGES),
        ("tiny-qwen35", "BF16", PAGES),
    ] {
        for seed in [3, 4] {
            let run = |runs_ahead| {
                let mut bench = Bench::new(exact(preset, mix, pages, &device), runs_ahead);
                let got = workload(&mut bench, seed);
                let stats = bench.handle.stats();
                assert_eq!(stats.device_faults(), 0, "{preset} {seed}");
                (got, stats.preemptions(), stats.rows_void())
            };
            let ((plain, ..), (ahead, preempted, rows)) = (run(false), run(true));
            preemptions += preempted;
            void += rows;
            assert_eq!(plain.len(), ahead.len());
            for (at, (plain, ahead)) in plain.iter().zip(&ahead).enumerate() {
                assert_equal(ahead, plain, &format!("{preset} {mix} {seed}, answer {at}"));
                ends += u64::from(plain.end.is_some() && plain.end != Some(End::Length));
            }
        }
    }
    assert!(
        preemptions > 0 && void > 10 && ends > 10,
        "{preemptions} {void} {ends}"
    );
}

#[test]
fn streams_continue_after_a_device_is_lost_in_flight() {
    let Some(device) = own_device() else { return };
    let run = |lost_at: Option<usize>| {
        let mut bench = Bench::new(exact("tiny-llama", "Q8_0", PAGES, &device), true);
        let mut random = Random(11);
        let mut answers = Vec::new();
        for prompt in [ids(1, 9, 256), ids(2, 20, 256), ids(3, 3, 256)] {
            let mut request = bench.request(&prompt, 20);
            request.sampling = sampling(&mut random);
            answers.push(bench.choice(&mut request));
            bench.submit(request);
        }
        for step in 0..12 {
            bench.step();
            if lost_at == Some(step) {
                device.lose();
            }
        }
        bench.run();
        let faults = bench.handle.stats().device_faults();
        let got: Vec<_> = answers.iter_mut().map(Got::of).collect();
        (got, faults)
    };
    let (want, none) = run(None);
    let (have, one) = run(Some(6));
    assert_eq!((none, one), (0, 1));
    for (want, have) in want.iter().zip(&have) {
        assert_equal(have, want, "after the loss");
    }
}

/// Ends and tokens of sound requests, and of unsound ones if there are any, with a model in which token 7 is not a number.
fn among_unsound(
    preset: &str,
    device: &Arc<Device>,
    (ahead, unsound): (bool, bool),
) -> [Vec<Got>; 2] {
    let mut bench = Bench::new(exact_of(poisoned(preset, "F32"), PAGES, device), ahead);
    let vocab = bench.handle.dims().vocab;
    let mut answers = [Vec::new(), Vec::new()];
    for turn in 0..4 {
        let mut submit = |prompt: &[u32], bias: f32, to: usize| {
            let mut request = bench.request(prompt, 14);
            request.sampling.logit_bias = vec![(7, bias)];
            request.eos = Arc::default();
            answers[to].push(bench.choice(&mut request));
            bench.submit(request);
        };
        let mut prompt = ids(turn, 6 + turn as usize, vocab);
        prompt.iter_mut().for_each(|id| *id += u32::from(*id == 7));
        submit(&prompt, -100.0, 0);
        if unsound {
            // The first row of a prompt, its last, and a token that is drawn while the next batch waits for it.
            prompt[0] = 7;
            submit(&prompt, -100.0, 1);
            submit(&[1, 2, 3, 7], -100.0, 1);
            submit(&[1, 2, 3], 100.0, 1);
        }
        (0..3).for_each(|_| _ = bench.step());
    }
    bench.run();
    assert_eq!(bench.handle.stats().device_faults(), 0, "{preset}");
    answers.map(|mut answers| answers.iter_mut().map(Got::of).collect())
}

#[test]
fn row_that_is_not_finite_ends_its_request_alone() {
    let Some(device) = device() else { return };
    for preset in ["tiny-llama", "tiny-qwen35"] {
        let [alone, _] = among_unsound(preset, &device, (false, false));
        assert!(alone.iter().all(|got| got.ids.len() > 3), "{alone:?}");
        let [sound, failed] = among_unsound(preset, &device, (true, true));
        for (alone, sound) in alone.iter().zip(&sound) {
            assert_equal(sound, alone, preset);
        }
        for (number, got) in failed.iter().enumerate() {
            let wanted: &[u32] = if number % 3 == 2 { &[7] } else { &[] };
            assert_eq!(got.ids, wanted, "{preset} {number}");
            assert_eq!(got.end, Some(End::Failed(FailCode::NotFinite)), "{preset}");
        }
    }
}

/// Greedy tokens of two sequences by the host's choice, one batch after the other.
fn by_hand(model: &mut dyn Forward, prompts: [&[u32]; 2], count: usize) -> [Vec<u32>; 2] {
    let mut first = 0;
    prompts.map(|prompt| {
        let mut sequence = prompt.to_vec();
        for turn in 0..count {
            let at = if turn == 0 { 0 } else { sequence.len() - 1 };
            let mut batch = Batch::default();
            let table = pages(first, 64);
            batch.push(&sequence[at..], at, &table, Want::Last);
            batch.set_states(Some(SpanStates::alternating(0, turn, at)));
            let row = model.forward(&batch).expect("a batch");
            let best = most_likely(Isa::detect(), row).expect("a token");
            sequence.push(best);
        }
        first += 4;
        sequence.split_off(prompt.len())
    })
}

#[test]
fn drawn_tokens_are_read_by_the_next_batch_and_cost_two_submits_and_one_wait() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "Q8_0"), &device);
    let prompts = [ids(21, 7, 256), ids(22, 12, 256)];
    let count = 12;
    let want = by_hand(&mut model, [&prompts[0], &prompts[1]], count);
    let (mut batch, mut draws) = (Batch::default(), Draws::default());
    let mut found = [Vec::new(), Vec::new()];
    let mut before = device.counts();
    for turn in 0..count {
        batch.clear();
        draws.clear();
        for (number, prompt) in prompts.iter().enumerate() {
            let table = pages(8 + 4 * number, 64);
            match turn {
                0 => batch.push(prompt, 0, &table, Want::Last),
                _ => {
                    let token = [DRAWN | number as u32];
                    batch.push(&token, prompt.len() + turn - 1, &table, Want::Last);
                }
            }
            draws.push(number, Some(DrawRule::GREEDY));
        }
        model.start(&batch).expect("a batch");
        if turn > 0 {
            take(&mut model, &mut found);
        }
        model.draw(&draws).expect("draws");
        let after = device.counts();
        if turn > 1 {
            let calls = [
                after.submits - before.submits,
                after.waits - before.waits,
                after.maps - before.maps,
                after.buffers - before.buffers,
            ];
            assert_eq!(calls, [2, 1, 1, 0], "two sequences, token {turn}");
        }
        before = after;
    }
    take(&mut model, &mut found);
    assert_eq!(found, want);
}

/// Appends the tokens that come.
fn take(model: &mut gpu::Model, found: &mut [Vec<u32>; 2]) {
    let drawn = model.drawn().expect("tokens");
    for (tokens, drawn) in found.iter_mut().zip(drawn.tokens) {
        let DrawOutcome::Token(id) = drawn.outcome else {
            panic!("no token");
        };
        tokens.push(id);
    }
}

#[test]
fn rows_and_hidden_states_come_with_the_tokens() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-qwen3-embedding", "F32"), &device);
    let vocab = model.dims().vocab;
    let prompt = ids(5, 7, vocab);
    let want = logits(&mut model, &prompt, 0, &[7]);
    let mut batch = Batch::default();
    batch.push(&prompt, 0, &pages(0, 7), Want::AllHidden);
    model.forward(&batch).expect("a batch");
    let hidden = model.hidden().to_vec();
    batch.clear();
    batch.push(&prompt, 0, &pages(2, 7), Want::All);
    batch.push(&prompt, 0, &pages(4, 7), Want::AllHidden);
    model.start(&batch).expect("a batch");
    let mut draws = Draws::default();
    for (row, rule) in [(2, None), (3, None), (6, Some(DrawRule::GREEDY)), (0, None)] {
        draws.push(row, rule);
    }
    model.draw(&draws).expect("draws");
    // Pages are read and written while results are on their way.
    let mut bytes = vec![0; model.page_export().map_or(0, |pages| pages.page_bytes())];
    let exported = model
        .page_export()
        .map(|pages| pages.export_page(2, &mut bytes));
    assert_eq!(exported, Some(Ok(())));
    assert!(bytes.iter().any(|byte| *byte != 0));
    let drawn = model.drawn().expect("results");
    let rows: Vec<_> = drawn.logits.chunks(vocab).collect();
    assert!(rows == [&want[2][..], &want[3], &want[0]]);
    let best = most_likely(Isa::detect(), &want[6]).expect("a token");
    assert_eq!(drawn.tokens[2].outcome, DrawOutcome::Token(best));
    assert_eq!(drawn.tokens[0].outcome, DrawOutcome::Row);
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3;
    assert_eq!(drawn.hidden.len(), hidden.len());
    assert!(drawn.hidden.iter().zip(&hidden).all(near));
}

#[test]
fn calls_in_another_order_and_draws_that_are_not_there_are_refused() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "F32"), &device);
    let vocab = model.dims().vocab;
    let before = logits(&mut model, &[1, 2, 3], 0, &[3]);
    let named = |result: Result<(), ForwardError>, part: &str| {
        let is_named = matches!(&result, Err(ForwardError::BadBatch(why)) if why.contains(part));
        assert!(is_named, "{part}: {result:?}");
    };
    let one = |token: u32| {
        let mut batch = Batch::default();
        batch.push(&[token], 0, &[20], Want::Last);
        batch
    };
    let mut draws = Draws::default();
    named(model.draw(&draws), "without a batch");
    named(model.drawn().map(|_| ()), "nothing is in flight");
    named(model.start(&one(DRAWN)), "not in the vocabulary");
    named(model.start(&one(vocab as u32)), "not in the vocabulary");
    model.start(&one(5)).expect("a batch");
    named(model.start(&one(5)), "draws of a batch");
    named(model.forward(&one(5)).map(|_| ()), "in flight");
    draws.push(1, Some(DrawRule::GREEDY));
    named(model.draw(&draws), "no logits");
    model.start(&one(5)).expect("a batch");
    draws.clear();
    draws.push(0, Some(DrawRule::GREEDY));
    model.draw(&draws).expect("draws");
    named(model.start(&one(DRAWN | 1)), "not in the vocabulary");
    model.start(&one(DRAWN)).expect("a batch");
    named(model.draw(&draws), "results before");
    assert_eq!(model.drawn().map(|drawn| drawn.tokens.len()), Ok(1));
    assert!(logits(&mut model, &[1, 2, 3], 0, &[3]) == before);
}

#[test]
fn part_of_a_prompt_has_no_draws() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "Q8_0"), &device);
    let prompt = ids(3, 30, model.dims().vocab);
    let ask = |model: &mut gpu::Model, rows: std::ops::Range<usize>, want, wanted: usize| {
        let (mut batch, mut draws) = (Batch::default(), Draws::default());
        batch.push(&prompt[rows.clone()], rows.start, &pages(0, 30), want);
        (0..wanted).for_each(|row| draws.push(row, Some(DrawRule::GREEDY)));
        model.start(&batch).expect("a batch");
        model.draw(&draws).expect("draws");
        model.drawn().expect("results").tokens.len()
    };
    assert_eq!(ask(&mut model, 0..10, Want::Last, 1), 1);
    // Nothing of the batch before is given once more.
    assert_eq!(ask(&mut model, 10..20, Want::None, 0), 0);
    assert_eq!(ask(&mut model, 20..30, Want::Last, 1), 1);
}
