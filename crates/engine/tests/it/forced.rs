//! Forced tokens change the number of steps of an answer, and nothing else.
//!
//! Promise (Engine): forced tokens are verified several in one pass without changing tokens, log-probabilities or
//! ends, bit for bit, within credit and limits.

use crate::support::{Answer, Bench, STEPS_MAX, bench, model};
use engine::fake::{FakeConfig, FakeModel};
use engine::{
    Choice, Constraint, EngineConfig, FORCED_TOKENS_MAX, Request, SamplingParams, Speculation,
    StopCondition,
};
use proptest::prelude::*;
use stream::{End, FailCode, Stop};

/// A constraint of forced stretches, each followed by one token that is sampled from a few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretches {
    /// Tokens of a stretch, the sampled one included.
    stretch: usize,
    /// Tokens of the complete answer.
    len: usize,
    at: usize,
    /// Whether [`Constraint::forced`] names the forced tokens.
    tells: bool,
    panics_at: usize,
}

impl Stretches {
    fn only(&self, at: usize) -> Option<u32> {
        let forced = at < self.len && !at.is_multiple_of(self.stretch);
        forced.then_some(10 + (at % 7) as u32)
    }
}

impl Constraint for Stretches {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        match self.only(self.at) {
            Some(id) => allowed[0] |= 1 << id,
            // 20 to 31, not 0, which is the end.
            None => allowed[0] |= 0xfff0_0000,
        }
        true
    }

    fn accept(&mut self, token: u32) {
        assert!(self.only(self.at).is_none_or(|only| only == token));
        self.at += 1;
    }

    fn is_complete(&self) -> bool {
        self.at >= self.len
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        assert!(self.at != self.panics_at, "simulated");
        if self.tells {
            into.extend((self.at..).map_while(|at| self.only(at)).take(most));
        }
    }
}

pub(crate) fn stretches(stretch: usize, len: usize, tells: bool) -> Stretches {
    Stretches {
        stretch,
        len,
        at: 0,
        tells,
        panics_at: usize::MAX,
    }
}

/// Everything that a reader gets of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) ids: Vec<u32>,
    logprobs: Vec<u32>,
    side: Vec<(u32, u32)>,
    pub(crate) end: Option<End>,
}

pub(crate) fn got(answer: &mut Answer) -> Got {
    answer.read();
    let side = match answer.side {
        Some(_) => answer.alternatives(),
        None => Vec::new(),
    };
    Got {
        ids: answer.ids(),
        logprobs: answer.tokens.iter().map(|t| t.logprob.to_bits()).collect(),
        side: side.iter().map(|t| (t.id, t.logprob.to_bits())).collect(),
        end: answer.end,
    }
}

fn samplings(seed: u64) -> [SamplingParams; 3] {
    let greedy = SamplingParams {
        temperature: 0.0,
        seed,
        ..SamplingParams::default()
    };
    let warm = SamplingParams {
        temperature: 0.9,
        top_p: 0.9,
        logprobs: true,
        top_logprobs: 3,
        ..greedy.clone()
    };
    let everything = SamplingParams {
        top_k: 20,
        min_p: 0.01,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.05,
        logit_bias: vec![(21, 1.5), (12, -2.0)],
        min_tokens: 9,
        ..warm.clone()
    };
    [greedy, warm, everything]
}

/// Two equal benches: one for constraints that name forced tokens, one for those that do not.
fn both<T>(run: impl Fn(bool) -> T) -> (T, T) {
    (run(false), run(true))
}

fn ask(
    bench: &Bench,
    mut request: Request,
    rule: Stretches,
    choices: usize,
) -> crate::support::Asked {
    let answers = (0..choices).map(|_| bench.choice(&mut request)).collect();
    for choice in &mut request.choices {
        choice.constraint = Some(Box::new(rule));
    }
    bench.submit(request, answers)
}

#[test]
fn forced_tokens_save_steps_and_change_no_answer() {
    for (speculation, states) in [
        (Speculation::Off, 0),
        (Speculation::PromptLookup, 0),
        (Speculation::PromptLookup, 120),
    ] {
        let (plain, quick) = both(|tells| {
            let config = EngineConfig {
                speculation,
                ..EngineConfig::default()
            };
            let model = match states {
                0 => FakeModel::new(model()),
                _ => FakeModel::recurrent(model(), states),
            };
            let mut bench = Bench::with(Box::new(model), config);
            let mut asked = Vec::new();
            for (at, sampling) in samplings(7).into_iter().enumerate() {
                for stretch in [1, 2, 5, 12] {
                    let request = Request {
                        sampling: sampling.clone(),
                        ..bench.request(&[1, 2, 3, 4, 5], 40)
                    };
                    let rule = stretches(stretch, 37, tells);
                    asked.push(ask(&bench, request, rule, 1 + at % 2));
                    if at == 1 {
                        bench.steps(3);
                    }
                }
            }
            // One that has no form shares the batch.
            asked.push(bench.ask(bench.request(&[9, 8, 7], 30), 1));
            bench.run();
            bench.assert_empty();
            let got: Vec<_> = asked
                .iter_mut()
                .flat_map(|asked| &mut asked.answers)
                .map(got)
                .collect();
            let stats = bench.handle.stats();
            let tokens = stats.tokens_generated();
            (got, stats.steps(), tokens, stats.tokens_forced())
        });
        assert_eq!(plain.0, quick.0);
        assert_eq!((plain.2, plain.3), (quick.2, 0));
        assert!(quick.3 > 100, "{} were forced", quick.3);
        assert!(quick.1 < plain.1, "{} and {} steps", quick.1, plain.1);
    }
}

#[test]
fn forced_tokens_take_one_step() {
    let (plain, quick) = both(|tells| {
        let mut bench = bench_with_room();
        let request = bench.request(&[1, 2, 3], 90);
        let mut asked = ask(&bench, request, stretches(20, 80, tells), 1);
        bench.run();
        let stats = bench.handle.stats();
        let end = Some(End::Stop(Stop::Eos));
        assert_eq!(asked.answers[0].seen(), (80, end));
        (stats.steps(), stats.tokens_forced(), stats.rows())
    });
    assert_eq!(plain, (80, 0, 82));
    // One row more per stretch at most: the last stretch's end is the answer's.
    assert_eq!((quick.0, quick.1), (5, 76));
    assert!(quick.2 <= 83, "{} rows", quick.2);
}

/// Rows for long stretches, and no target time.
fn bench_with_room() -> Bench {
    let mut model = model();
    (model.dims.rows_max, model.dims.logit_rows_max) = (64, 64);
    let config = EngineConfig {
        step_target: None,
        ..EngineConfig::default()
    };
    Bench::new(model, config)
}

#[test]
fn forced_tokens_fit_in_the_step_time() {
    let mut bench = bench();
    let request = bench.request(&[1, 2, 3], 110);
    let mut asked = ask(&bench, request, stretches(100, 100, true), 1);
    let (mut most, mut least) = (0, usize::MAX);
    while asked.answers[0].seen().1.is_none() {
        let report = bench.step();
        (most, least) = (most.max(report.rows), least.min(report.rows));
    }
    assert!(least > 1 && most < 16, "{least} to {most} rows");
}

#[test]
fn forced_tokens_are_bounded() {
    let mut bench = bench_with_room();
    let request = bench.request(&[1, 2, 3], 110);
    let mut asked = ask(&bench, request, stretches(100, 100, true), 1);
    let mut most = 0;
    while asked.answers[0].seen().1.is_none() {
        most = most.max(bench.step().rows);
    }
    assert_eq!(most, 1 + FORCED_TOKENS_MAX);
}

/// A stop condition after this many tokens.
struct After(usize);

impl StopCondition for After {
    fn push(&mut self, _: u32) -> Option<u16> {
        self.0 -= 1;
        (self.0 == 0).then_some(3)
    }
}

#[test]
fn end_within_forced_tokens_is_exact() {
    for count in 1..30 {
        for stops in [false, true] {
            let (plain, quick) = both(|tells| {
                let mut bench = bench_with_room();
                let max_tokens = if stops { 40 } else { count };
                let mut request = bench.request(&[1, 2], max_tokens);
                let answer = bench.choice(&mut request);
                let choice: &mut Choice = &mut request.choices[0];
                choice.constraint = Some(Box::new(stretches(8, 100, tells)));
                choice.terminator = stops.then(|| Box::new(After(count)) as Box<dyn StopCondition>);
                let mut asked = bench.submit(request, vec![answer]);
                bench.run();
                bench.assert_empty();
                got(&mut asked.answers[0])
            });
            assert_eq!(plain, quick, "{count}");
            assert_eq!(plain.ids.len(), count);
            let end = if stops {
                End::Stop(Stop::StopString(3))
            } else {
                End::Length
            };
            assert_eq!(plain.end, Some(end));
        }
    }
}

#[test]
fn end_of_sequence_among_forced_tokens_ends_the_choice() {
    for eos in 10..17 {
        let (plain, quick) = both(|tells| {
            let mut bench = bench_with_room();
            let mut request = bench.request(&[1, 2], 40);
            request.eos = [eos].into();
            let mut asked = ask(&bench, request, stretches(20, 100, tells), 1);
            bench.run();
            got(&mut asked.answers[0])
        });
        assert_eq!(plain, quick);
        assert_eq!(plain.end, Some(End::Stop(Stop::Eos)));
    }
}

#[test]
fn forced_tokens_stay_within_the_credit() {
    for window in 1..12 {
        let mut bench = bench_with_room();
        let request = Request {
            credit_window: window,
            ..bench.request(&[1, 2], 60)
        };
        let mut asked = ask(&bench, request, stretches(9, 50, true), 1);
        let mut longest = 0;
        for _ in 0..STEPS_MAX {
            let report = bench.step();
            let answer = &mut asked.answers[0];
            let unread = bench.handle.stats().tokens_generated() - answer.tokens.len() as u64;
            assert!(unread <= window, "{unread} unread of {window}");
            longest = longest.max(report.tokens);
            if report.rows == 0 {
                answer.read();
            }
            if answer.end.is_some() {
                break;
            }
        }
        assert_eq!(asked.answers[0].seen().0, 50);
        assert!(longest as u64 <= window && (window < 3 || longest > 1));
    }
}

#[test]
fn cancel_between_forced_steps_leaves_no_page() {
    let mut bench = bench_with_room();
    let request = bench.request(&[1, 2], 60);
    let mut whole = ask(&bench, request, stretches(9, 50, true), 1);
    bench.run();
    let whole = got(&mut whole.answers[0]).ids;
    for steps in 1..6 {
        let request = bench.request(&[1, 2], 60);
        let mut asked = ask(&bench, request, stretches(9, 50, true), 1);
        bench.steps(steps);
        bench.handle.cancel(asked.id);
        bench.run();
        bench.assert_empty();
        let (count, end) = asked.answers[0].seen();
        assert_eq!(end, Some(End::Cancelled));
        assert_eq!(asked.answers[0].ids(), whole[..count]);
    }
}

#[test]
fn panicking_constraint_ends_its_request_only() {
    crate::support::quiet_expected_panics();
    let mut bench = bench_with_room();
    let mut other = bench.ask(bench.request(&[5, 6], 20), 1);
    let rule = Stretches {
        panics_at: 3,
        ..stretches(1, 30, true)
    };
    let request = bench.request(&[1, 2], 60);
    let mut asked = ask(&bench, request, rule, 1);
    bench.run();
    bench.assert_empty();
    let failed = Some(End::Failed(FailCode::Panic));
    assert_eq!(asked.answers[0].seen(), (3, failed));
    assert_eq!(other.answers[0].seen(), (20, Some(End::Length)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With few pages and rows, many requests and prompts longer than a step, answers are equal.
    #[test]
    fn whoever_shares_the_engine(
        asks in prop::collection::vec((1usize..40, 1usize..14, 1usize..40, 0usize..3), 1..9),
        seed in 0u64..100,
        pages in 24usize..64,
        rows in 3usize..24,
    ) {
        let (plain, quick) = both(|tells| {
            let mut config: FakeConfig = model();
            config.dims.pages = pages;
            (config.dims.rows_max, config.dims.logit_rows_max) = (rows, rows);
            let settings = EngineConfig { step_tokens: rows, ..EngineConfig::default() };
            let mut bench = Bench::new(config, settings);
            let mut asked = Vec::new();
            for (at, &(prompt, stretch, len, sampling)) in asks.iter().enumerate() {
                let prompt: Vec<u32> = (0..prompt as u32).map(|i| 1 + i % 5).collect();
                let request = Request {
                    sampling: samplings(seed)[sampling].clone(),
                    ..bench.request(&prompt, 45)
                };
                asked.push(ask(&bench, request, stretches(stretch, len, tells), 1 + at % 2));
                bench.steps(at % 3);
            }
            bench.run();
            bench.assert_empty();
            let answers = asked.iter_mut().flat_map(|asked| &mut asked.answers);
            answers.map(got).collect::<Vec<_>>()
        });
        prop_assert_eq!(plain, quick);
    }
}
