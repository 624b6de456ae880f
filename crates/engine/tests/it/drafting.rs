//! A draft model changes the number of steps of an answer, and nothing else; and it stays in step
//! with the sequences through all events. The fake model's next token depends on the whole content
//! of the pages, so all draft tokens of an equal model are accepted exactly as long as
//! its pages have the right content.

use crate::support::{Bench, Random, STEPS_MAX, model};
use engine::fake::{FakeConfig, FakeModel, Fault, FaultAt, FaultKind};
use engine::{Engine, EngineConfig, Request, SamplingParams, Speculation};
use stream::End;

pub(crate) fn large() -> FakeConfig {
    FakeConfig {
        habit: 0.8,
        tokens: 1..9,
        eos_probability: 0.01,
        ..model()
    }
}

fn config(speculation: Speculation) -> EngineConfig {
    EngineConfig {
        speculation,
        draft_tokens: 4,
        ..EngineConfig::default()
    }
}

fn drafted(large: &FakeConfig, small: &FakeConfig) -> Bench {
    let models = [large, small].map(|model| Box::new(FakeModel::new(model.clone())));
    let [large, small] = models;
    Bench::with_draft(large, small, config(Speculation::Draft))
}

fn sampling(random: &mut Random) -> SamplingParams {
    let mut some = |value: f32, off: f32| if random.chance(30) { value } else { off };
    SamplingParams {
        temperature: some(0.0, 0.9),
        top_p: some(0.9, 1.0),
        typical_p: some(0.9, 1.0),
        dry_multiplier: some(0.8, 0.0),
        xtc_probability: some(0.5, 0.0),
        repetition_penalty: some(1.2, 1.0),
        presence_penalty: some(0.5, 0.0),
        frequency_penalty: some(0.3, 0.0),
        logit_bias: vec![(2, some(2.0, 0.0))],
        min_tokens: some(10.0, 0.0) as u32,
        ignore_eos: random.chance(20),
        seed: random.next(),
        ..SamplingParams::default()
    }
}

/// Random events in the life of requests: cancels, pauses, slow readers, forks.
pub(crate) fn life(bench: &mut Bench, seed: u64) -> Vec<(Vec<u32>, Option<End>)> {
    let mut random = Random(seed);
    let mut asked = Vec::new();
    for _ in 0..8 {
        let mut prompt: Vec<u32> = (0..4 * random.below(5)).map(|i| 1 + i as u32 % 8).collect();
        prompt.extend((0..1 + random.below(9)).map(|_| 1 + random.below(8) as u32));
        let request = Request {
            sampling: sampling(&mut random),
            credit_window: random.below(3) * 5,
            ..bench.request(&prompt, 10 + random.below(40) as usize)
        };
        asked.push(bench.ask(request, 1 + random.below(3) as usize / 2));
    }
    let (mut all_over, mut steps) = (false, 0);
    while !all_over {
        steps += 1;
        assert!(steps < STEPS_MAX, "seed {seed}: not done");
        for one in &asked {
            match random.below(100) {
                0..5 => bench.handle.pause(one.id),
                5..30 => bench.handle.resume(one.id),
                _ => {}
            }
        }
        bench.step();
        all_over = true;
        for answer in asked.iter_mut().flat_map(|asked| &mut asked.answers) {
            all_over &= answer.seen().1.is_some();
        }
    }
    bench.run();
    bench.assert_empty();
    assert_eq!(
        bench.handle.stats().draft_pages_used(),
        0,
        "draft pages in use"
    );
    let answers = asked.iter().flat_map(|asked| &asked.answers);
    answers.map(|answer| (answer.ids(), answer.end)).collect()
}

#[test]
fn tokens_are_equal_for_any_draft_model() {
    let small = |habit, seed| FakeConfig {
        habit,
        eos_probability: seed,
        ..large()
    };
    for (label, small) in [
        ("the same", large()),
        ("similar", small(1.0, 0.02)),
        ("bad", small(0.0, 0.3)),
    ] {
        let mut accepted = 0;
        for seed in 0..12 {
            let mut plain = Bench::new(large(), config(Speculation::Off));
            let mut bench = drafted(&large(), &small);
            let (a, b) = (life(&mut plain, seed), life(&mut bench, seed));
            assert_eq!(a, b, "{label}, seed {seed}");
            accepted += bench.handle.stats().tokens_accepted();
        }
        assert!(accepted > 50, "{label}: {accepted} right");
    }
}

#[test]
fn all_draft_tokens_of_an_equal_model_are_accepted() {
    // Pages of the large and of the small model, from plenty to hardly any: preempted sequences, and
    // tables taken away or never given.
    for (pages, draft_pages) in [(256, 256), (40, 256), (256, 24), (34, 18)] {
        let (mut large, mut small) = (large(), large());
        large.dims.pages = pages;
        small.dims.pages = draft_pages;
        small.dims.page_tokens = 6;
        let mut sums = [0; 4];
        for seed in 0..10 {
            let mut bench = drafted(&large, &small);
            life(&mut bench, seed);
            life(&mut bench, seed + 100);
            let stats = bench.handle.stats();
            assert_eq!(
                stats.tokens_accepted(),
                stats.tokens_drafted(),
                "{pages} and {draft_pages} pages, seed {seed}"
            );
            let now = [
                stats.tokens_drafted(),
                stats.preemptions(),
                stats.prefix_hit_tokens(),
                stats.parks() + stats.pauses(),
            ];
            sums.iter_mut().zip(now).for_each(|(sum, n)| *sum += n);
        }
        let [drafted, preemptions, hits, parks] = sums;
        assert!(
            drafted > 500 && hits > 50 && parks > 50,
            "{pages}: {sums:?}"
        );
        assert_eq!(preemptions > 0, pages < 64, "{pages}: {sums:?}");
    }
}

#[test]
fn step_gives_all_accepted_draft_tokens_and_one_more() {
    let never_ends = FakeConfig {
        eos_probability: 0.0,
        ..large()
    };
    let mut bench = drafted(&never_ends, &never_ends);
    let mut asked = bench.ask(bench.request(&[1, 2, 3], 52), 1);
    bench.run();
    assert_eq!(asked.answers[0].seen(), (52, Some(End::Length)));
    let stats = bench.handle.stats();
    // A prompt, a plain step to know what one takes, then four guesses and one more at a time.
    assert_eq!((stats.steps(), stats.tokens_drafted()), (12, 40));
    assert_eq!(asked.progress.accepted(), 40);
}

#[test]
fn failing_draft_model_costs_no_answer() {
    crate::support::quiet_expected_panics();
    for kind in [FaultKind::Error, FaultKind::Panic, FaultKind::NotANumber] {
        for always in [false, true] {
            let calls = if always { 0..2000 } else { 3..6 };
            let fault = |call| Fault {
                at: FaultAt::Call(call),
                kind,
            };
            let small = FakeConfig {
                faults: calls.map(fault).collect(),
                ..large()
            };
            let mut plain = Bench::new(large(), config(Speculation::Off));
            let mut bench = drafted(&large(), &small);
            assert_eq!(life(&mut plain, 5), life(&mut bench, 5), "{kind:?}");
            let faults = bench.handle.stats().draft_faults();
            let expected = match (kind, always) {
                (FaultKind::NotANumber, _) => 0,
                (_, false) => 3,
                (_, true) => 8,
            };
            assert_eq!(faults, expected, "{kind:?}, always: {always}");
            let right = bench.handle.stats().tokens_accepted();
            assert_eq!(
                right > 0,
                !always || kind == FaultKind::NotANumber,
                "{kind:?}"
            );
        }
    }
}

#[test]
fn draft_token_that_breaks_the_model_breaks_no_answer() {
    crate::support::quiet_expected_panics();
    for kind in [
        FaultKind::Error,
        FaultKind::Panic,
        FaultKind::NotFinite,
        FaultKind::NotANumber,
    ] {
        // Token 9 is never drawn, but often guessed.
        let poison = Fault {
            at: FaultAt::Token(9),
            kind,
        };
        let poisoned = FakeConfig {
            faults: vec![poison],
            ..large()
        };
        let small = FakeConfig {
            tokens: 1..10,
            ..large()
        };
        let mut plain = Bench::new(large(), config(Speculation::Off));
        let mut bench = drafted(&poisoned, &small);
        let (a, b) = (life(&mut plain, 3), life(&mut bench, 3));
        assert_eq!(a, b, "{kind:?}");
        let stats = bench.handle.stats();
        assert!(stats.tokens_accepted() > 0, "{kind:?}");
        assert!(
            stats.retries() > 0 || kind == FaultKind::NotANumber || kind == FaultKind::NotFinite
        );
    }
}

#[test]
fn shorter_draft_context_only_ends_the_draft_tokens() {
    let mut small = large();
    small.dims.context_max = 20;
    let mut accepted = 0;
    for seed in 1..=9 {
        let mut plain = Bench::new(large(), config(Speculation::Off));
        let mut bench = drafted(&large(), &small);
        assert_eq!(life(&mut plain, seed), life(&mut bench, seed), "{seed}");
        accepted += bench.handle.stats().tokens_accepted();
    }
    assert!(accepted > 0);
}

#[test]
fn draft_model_of_other_sizes_is_rejected() {
    let now = Bench::new(large(), config(Speculation::Off)).now;
    let mut other = large();
    other.dims.vocab = 65;
    let refused = |small: Option<&FakeConfig>, speculation| {
        let model = |config: &FakeConfig| Box::new(FakeModel::new(config.clone()));
        let config = config(speculation);
        let engine = match small {
            Some(small) => Engine::with_draft(model(&large()), model(small), config, now),
            None => Engine::new(model(&large()), config, now),
        };
        engine.err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert_eq!(
        refused(None, Speculation::Draft),
        "draft models is 0; it must be 1"
    );
    assert_eq!(
        refused(Some(&large()), Speculation::Off),
        "draft models is 1; it must be 0"
    );
    assert_eq!(
        refused(Some(&other), Speculation::Draft),
        "vocab of the draft model is 65; it must be 64"
    );
    assert_eq!(refused(Some(&large()), Speculation::Draft), "");
}
