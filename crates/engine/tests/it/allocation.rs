//! Law 3: after warm-up a step allocates nothing. Nor does a whole request's life on the engine
//! thread: its memory is allocated when the request is submitted.

use crate::support::{Asked, Bench};
use engine::fake::{FakeConfig, FakeModel, LateLog};
use engine::{
    Account, Clocks, DryBreakers, EngineConfig, Observer, Priority, Request, RequestId,
    SamplingParams, Speculation, StepFacts, Terms, Transition,
};
use model::Dims;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testing::heap::thread_allocations;

fn allocations(act: impl FnOnce()) -> u64 {
    let before = thread_allocations();
    act();
    thread_allocations() - before
}

/// Requests that use every sampling parameter, a side log, forks, and more pages than there are.
/// `described`: only those with which a model that runs ahead can draw, but for every fourth request.
fn ask(bench: &Bench, count: u32, described: bool) -> Vec<Asked> {
    let everything = |seed: u32| SamplingParams {
        temperature: if seed.is_multiple_of(3) { 0.0 } else { 0.8 },
        top_k: 40,
        top_p: 0.95,
        min_p: 0.01,
        typical_p: 0.98,
        dry_multiplier: 0.5,
        dry_breakers: DryBreakers::new([vec![1], vec![2, 3]]),
        xtc_probability: 0.5,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        logit_bias: vec![(3, 1.0)],
        min_tokens: 4,
        seed: u64::from(seed),
        logprobs: true,
        top_logprobs: 5,
        ..SamplingParams::default()
    };
    let of = |seed: u32| {
        let all = everything(seed);
        if !described || seed.is_multiple_of(4) {
            return all;
        }
        SamplingParams {
            typical_p: 1.0,
            dry_multiplier: 0.0,
            xtc_probability: 0.0,
            ..all
        }
    };
    let one = |seed: u32| {
        let request = Request {
            sampling: of(seed),
            credit_window: 5,
            terms: Terms {
                priority: Priority::ALL[seed as usize % Priority::COUNT],
                account: Account {
                    id: u64::from(seed % 4),
                    weight: 1 + seed % 3,
                },
                clocks: Clocks {
                    idle: Some(Duration::from_secs(1)),
                    total: Some(Duration::from_secs(10)),
                    ..Clocks::default()
                },
                ..Terms::default()
            },
            ..bench.request(&vec![1 + seed; 20 + seed as usize], 60)
        };
        bench.ask(request, 1 + seed as usize % 2)
    };
    (0..count).map(one).collect()
}

/// Counts notifications.
struct Counter(Arc<AtomicU64>);

impl Observer for Counter {
    fn transition(&mut self, _: RequestId, _: Transition, _: Instant) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn step(&mut self, _: &StepFacts) {}
}

/// A small engine in which all events happen, and the number of its observer's notifications.
fn busy_bench(ahead: bool) -> (Bench, Arc<AtomicU64>) {
    let model = FakeConfig {
        dims: Dims {
            vocab: 300,
            context_max: 128,
            page_tokens: 4,
            pages: 90,
            rows_max: 64,
            logit_rows_max: 32,
        },
        eos_probability: 0.01,
        habit: 0.7,
        tokens: 1..12,
        ..FakeConfig::default()
    };
    let config = EngineConfig {
        ageing: Duration::from_millis(20),
        slow_consumer: Duration::from_millis(1),
        step_target: Some(Duration::from_millis(1)),
        sequences_max: 12,
        speculation: if ahead {
            Speculation::Off
        } else {
            Speculation::PromptLookup
        },
        ..EngineConfig::default()
    };
    let model = FakeModel::new(model);
    let model = if ahead {
        model.late(LateLog::default())
    } else {
        model
    };
    let mut bench = Bench::with(Box::new(model), config);
    let told = Arc::new(AtomicU64::new(0));
    bench.engine.observe(Box::new(Counter(Arc::clone(&told))));
    (bench, told)
}

#[test]
fn warm_steps_do_not_allocate() {
    check_warm_steps(false);
}

#[test]
fn warm_steps_of_a_model_that_runs_ahead_do_not_allocate() {
    check_warm_steps(true);
}

fn check_warm_steps(ahead: bool) {
    let (mut bench, told) = busy_bench(ahead);
    let life = |bench: &mut Bench, mut asked: Vec<Asked>| {
        let mut counted = 0;
        for step in 0..400 {
            let one = &asked[step % asked.len()];
            match step % 3 {
                0 => bench.handle.pause(one.id),
                _ => bench.handle.resume(one.id),
            }
            counted += allocations(|| bench.steps(1));
            if step % 7 == 0 {
                let answers = asked.iter_mut().flat_map(|a| &mut a.answers);
                answers.for_each(crate::support::Answer::read);
            }
        }
        asked.iter().for_each(|a| bench.handle.resume(a.id));
        bench.assert_empty();
        counted
    };
    // The buffers of draws and of their results grow to the most that there ever is.
    for _ in 0..if ahead { 4 } else { 1 } {
        let warm_up = ask(&bench, 10, ahead);
        life(&mut bench, warm_up);
    }
    let stats = |bench: &Bench| {
        let stats = bench.handle.stats();
        [
            stats.tokens_generated(),
            stats.preemptions(),
            stats.parks(),
            stats.prefix_hit_tokens(),
            stats.pauses(),
            stats.slow_consumers(),
            if ahead {
                stats.rows_void()
            } else {
                stats.tokens_accepted()
            },
            told.load(Ordering::Relaxed),
        ]
    };
    let before = stats(&bench);
    let asked = ask(&bench, 10, ahead);
    let counted = life(&mut bench, asked);
    let during: Vec<_> = stats(&bench)
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    assert!(
        during[0] > 300 && during[1..].iter().all(|&n| n > 0),
        "too little happened: {during:?}"
    );
    assert_eq!(counted, 0, "allocations in 400 steps");
}
