//! Draft tokens change the number of steps of an answer, and nothing else: not its tokens, their
//! log-probabilities or the end, and not the pages that are held or indexed afterwards.
//!
//! Promise (Engine): speculative decoding changes no token, log-probability or end, bit for bit, greedy and sampled,
//! whatever the acceptance rate (with AMX: with `model.deterministic: true`).
//! Also held by `engine/tests/it/drafting.rs`, `engine/tests/it/recurrent_drafts.rs`, `engine/tests/it/simulation`,
//! `millrace/tests/it/speculation.rs`.
//!
//! Promise (Engine): draft tokens never exceed the credit, take no page from another sequence, and leave pages and
//! prefix cache as they are without them (with recurrent layers they may take the least recently used checkpoints).
//! Also held by `engine/tests/it/recurrent_drafts.rs`.

use crate::forced::{Got, got};
use crate::support::{Answer, Asked, Bench, STEPS_MAX, model};
use engine::fake::FakeConfig;
use engine::{
    Choice, DryBreakers, EngineConfig, Request, SamplingParams, Speculation, StepReport,
    StopCondition,
};
use proptest::prelude::*;
use stream::{End, Stop};

/// A model whose answers repeat themselves.
fn habitual() -> FakeConfig {
    FakeConfig {
        habit: 0.9,
        tokens: 1..9,
        ..model()
    }
}

fn config(speculation: Speculation) -> EngineConfig {
    EngineConfig {
        speculation,
        draft_tokens: 6,
        ..EngineConfig::default()
    }
}

/// Two equal engines, one without draft tokens and one with them.
fn both(model: &FakeConfig) -> [Bench; 2] {
    [Speculation::Off, Speculation::PromptLookup]
        .map(|speculation| Bench::new(model.clone(), config(speculation)))
}

/// Various sampling parameters.
fn samplings(seed: u64) -> Vec<SamplingParams> {
    let greedy = SamplingParams {
        temperature: 0.0,
        seed,
        ..SamplingParams::default()
    };
    let warm = SamplingParams {
        temperature: 0.8,
        ..greedy.clone()
    };
    let everything = SamplingParams {
        top_k: 20,
        top_p: 0.95,
        min_p: 0.01,
        typical_p: 0.98,
        dry_multiplier: 0.5,
        dry_breakers: DryBreakers::new([vec![1], vec![2, 3]]),
        xtc_probability: 0.5,
        repetition_penalty: 1.05,
        presence_penalty: 0.1,
        frequency_penalty: 0.05,
        logit_bias: vec![(3, 1.5), (5, -2.0)],
        logprobs: true,
        top_logprobs: 4,
        ..warm.clone()
    };
    let greedy_too = SamplingParams {
        temperature: 0.0,
        ..everything.clone()
    };
    vec![greedy, warm, everything, greedy_too]
}

/// All answers of these requests.
fn answers(bench: &mut Bench, requests: Vec<(Request, usize)>) -> Vec<Got> {
    let mut asked: Vec<Asked> = requests
        .into_iter()
        .map(|(request, choices)| bench.ask(request, choices))
        .collect();
    bench.run();
    bench.assert_empty();
    let answers = asked.iter_mut().flat_map(|asked| &mut asked.answers);
    answers.map(got).collect()
}

#[test]
fn tokens_are_equal_with_and_without_draft_tokens_in_any_batch() {
    let mut accepted = 0;
    for seed in 0..12 {
        let [plain, guessed] = both(&FakeConfig {
            eos_probability: 0.01,
            ..habitual()
        })
        .map(|mut bench| {
            let mut requests = Vec::new();
            for (at, sampling) in samplings(seed).into_iter().enumerate() {
                let prompt: Vec<u32> = (0..3 + at as u32 * 5)
                    .map(|i| 1 + (i + seed as u32) % 8)
                    .collect();
                let request = Request {
                    sampling,
                    ..bench.request(&prompt, 50)
                };
                requests.push((request, 1 + (seed as usize + at) % 2));
            }
            let got = answers(&mut bench, requests);
            let stats = bench.handle.stats();
            (got, stats.tokens_drafted(), stats.tokens_accepted())
        });
        assert_eq!(plain.0, guessed.0, "seed {seed}");
        assert_eq!(plain.1, 0);
        accepted += guessed.2;
    }
    assert!(accepted > 300, "{accepted} guesses were right");
}

#[test]
fn accepted_draft_tokens_save_steps_and_are_counted() {
    let [plain, guessed] = both(&habitual()).map(|mut bench| {
        let mut asked = bench.ask(bench.request(&[1, 2, 3, 4, 5, 6, 7, 8], 100), 1);
        bench.run();
        let stats = bench.handle.stats();
        let progress = &asked.progress;
        assert_eq!(stats.tokens_drafted(), progress.drafted());
        assert_eq!(stats.tokens_accepted(), progress.accepted());
        assert_eq!(asked.answers[0].seen(), (100, Some(End::Length)));
        (
            stats.steps(),
            stats.rows(),
            stats.tokens_accepted(),
            stats.tokens_drafted(),
        )
    });
    assert_eq!(plain, (100, 107, 0, 0));
    let (steps, rows, accepted, drafted) = guessed;
    assert_eq!(steps + accepted, 100, "each right guess is a step less");
    assert_eq!(rows, steps + 7 + drafted);
    assert!(steps < 60, "{steps} steps");
}

/// A stop condition after this many tokens.
struct After(usize);

impl StopCondition for After {
    fn push(&mut self, _: u32) -> Option<u16> {
        self.0 -= 1;
        (self.0 == 0).then_some(7)
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn end_within_draft_tokens_is_exact_at_each_offset() {
    let prompt = [1, 2, 3, 4, 5, 6];
    let [mut plain, mut guessed] = both(&habitual());
    let whole = plain.answer(plain.request(&prompt, 40)).ids();
    let mut check = |label: String, ask: &dyn Fn(&Bench) -> (Request, Answer), end: Option<End>| {
        let [a, b] = [&mut plain, &mut guessed].map(|bench| {
            let (request, answer) = ask(bench);
            let mut asked = bench.submit(request, vec![answer]);
            bench.run();
            bench.assert_empty();
            got(&mut asked.answers[0])
        });
        assert_eq!(a, b, "{label}");
        assert!(
            end.is_none_or(|end| a.end == Some(end)),
            "{label}: {:?}",
            a.end
        );
        a
    };
    for count in 1..=whole.len() {
        let ids = check(
            format!("max_tokens {count}"),
            &|bench| {
                let mut request = bench.request(&prompt, count);
                let answer = bench.choice(&mut request);
                (request, answer)
            },
            Some(End::Length),
        )
        .ids;
        assert_eq!(ids, whole[..count]);
        let ids = check(
            format!("stop string after {count}"),
            &|bench| {
                let mut request = bench.request(&prompt, 41);
                let answer = bench.choice(&mut request);
                let choice: &mut Choice = &mut request.choices[0];
                choice.terminator = Some(Box::new(After(count)));
                (request, answer)
            },
            Some(End::Stop(Stop::StopString(7))),
        )
        .ids;
        assert_eq!(ids, whole[..count]);
    }
    let mut at_ends = 0;
    for eos in 1..9 {
        let Some(first) = whole.iter().position(|&id| id == eos) else {
            continue;
        };
        // After `skip` tokens the end is allowed, so that it falls at different places of a run.
        for skip in first..whole.len() {
            let end = check(
                format!("end token {eos}, not before {skip}"),
                &|bench| {
                    let mut request = bench.request(&prompt, 41);
                    request.eos = [eos].into();
                    request.sampling.min_tokens = skip as u32;
                    let answer = bench.choice(&mut request);
                    (request, answer)
                },
                None,
            )
            .end;
            at_ends += usize::from(end == Some(End::Stop(Stop::Eos)));
        }
    }
    assert!(at_ends > 100, "{at_ends} stopped at an end token");
    let stats = guessed.handle.stats();
    assert!(
        stats.tokens_accepted() > 1000,
        "{}",
        stats.tokens_accepted()
    );
}

#[test]
fn draft_tokens_stay_within_the_credit() {
    let prompt = [1, 2, 3, 4, 5, 6];
    let [mut plain, mut guessed] = both(&habitual());
    let whole = plain.answer(plain.request(&prompt, 60)).ids();
    for window in 1..=9 {
        let request = Request {
            credit_window: window,
            ..guessed.request(&prompt, 60)
        };
        let mut asked = guessed.ask(request, 1);
        let stats = |bench: &Bench| {
            let stats = bench.handle.stats();
            (stats.tokens_accepted(), stats.tokens_generated())
        };
        let before = stats(&guessed);
        let mut reads = 0;
        for _ in 0..STEPS_MAX {
            let report = guessed.step();
            let answer = &mut asked.answers[0];
            let unread = stats(&guessed).1 - before.1 - answer.tokens.len() as u64;
            assert!(unread <= window, "{unread} unread, the window is {window}");
            if report.rows == 0 {
                reads += 1;
                answer.read();
            }
            if answer.end.is_some() {
                break;
            }
        }
        assert_eq!(asked.answers[0].ids(), whole, "window {window}");
        let accepted = stats(&guessed).0 - before.0;
        assert_eq!(
            accepted > 0,
            window > 1,
            "{accepted} right at window {window}"
        );
        assert!(reads >= 60 / window, "the window was never full");
    }
}

#[test]
fn cancel_between_verifications_leaves_no_page() {
    let prompt = [1, 2, 3, 4, 5, 6];
    let [mut plain, mut guessed] = both(&habitual());
    let whole = plain.answer(plain.request(&prompt, 60)).ids();
    let mut lengths = Vec::new();
    for steps in 1..30 {
        let mut asked = guessed.ask(guessed.request(&prompt, 60), 1);
        guessed.steps(steps);
        guessed.handle.cancel(asked.id);
        guessed.run();
        guessed.assert_empty();
        let (count, end) = asked.answers[0].seen();
        assert!(matches!(end, Some(End::Cancelled | End::Length)));
        assert_eq!(asked.answers[0].ids(), whole[..count]);
        lengths.push(count);
    }
    assert!(lengths.is_sorted() && lengths.windows(2).any(|two| two[1] > two[0] + 1));
}

#[test]
fn draft_tokens_take_no_page_from_other_sequences() {
    let mut small = habitual();
    small.dims.pages = 14;
    let requests = |bench: &Bench| {
        let ask = |seed: u64| {
            let request = Request {
                sampling: samplings(seed)[seed as usize % 4].clone(),
                ..bench.request(&[1, 2, 3, 4, 5, 6 + seed as u32 % 3], 35)
            };
            (request, 1)
        };
        (0..8).map(ask).collect::<Vec<_>>()
    };
    let [plain, guessed] = both(&small).map(|mut bench| {
        let requests = requests(&bench);
        let got = answers(&mut bench, requests);
        (
            got,
            bench.handle.stats().preemptions(),
            bench.handle.stats().tokens_accepted(),
        )
    });
    assert_eq!(plain.0, guessed.0);
    assert!(plain.1 > 0 && guessed.1 > 0 && guessed.2 > 0, "{guessed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// After each step exactly the pages of the computed tokens are held; after each answer
    /// the same pages are indexed, so that the next prompt finds as many of them.
    #[test]
    fn pages_and_prefix_cache_are_as_without_guesses(
        prompts in prop::collection::vec(prop::collection::vec(1u32..9, 1..30), 1..6),
        seed in 0u64..1000,
        pages in 20usize..64,
        page_tokens in 1usize..7,
    ) {
        let mut model = habitual();
        (model.dims.pages, model.dims.page_tokens) = (pages.max(70 / page_tokens + 1), page_tokens);
        let [mut plain, mut guessed] = both(&model);
        for (at, prompt) in prompts.iter().enumerate() {
            let mut ends = Vec::new();
            for bench in [&mut plain, &mut guessed] {
                let mut request = bench.request(prompt, 40);
                request.sampling = samplings(seed + at as u64)[at % 2].clone();
                let mut asked = bench.ask(request, 1);
                while asked.answers[0].end.is_none() {
                    let StepReport { rows, .. } = bench.step();
                    let (own, end) = asked.answers[0].seen();
                    let positions = (prompt.len() + own - 1).div_ceil(page_tokens);
                    let held = bench.handle.stats().pages_used() as usize;
                    if own > 0 {
                        let expected = if end.is_some() { 0 } else { positions };
                        prop_assert_eq!(held, expected, "{} own tokens, {} rows", own, rows);
                    }
                }
                bench.run();
                let stats = bench.handle.stats();
                ends.push((
                    asked.answers[0].ids(),
                    stats.pages_free(),
                    stats.pages_cached(),
                    stats.prefix_hit_tokens(),
                ));
            }
            prop_assert_eq!(&ends[0], &ends[1]);
        }
    }
}
