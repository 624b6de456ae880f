//! From a prompt to tokens: one request, many requests, with enough pages and with too few.

mod adapters;
mod salts;

use crate::support::{Answer, Bench, Random};
use engine::fake::FakeConfig;
use engine::{EngineConfig, Phase, Request, SamplingParams};
use model::Dims;
use stream::{End, Stop};

fn model(pages: usize) -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 64,
            context_max: 128,
            page_tokens: 4,
            pages,
            rows_max: 32,
            logit_rows_max: 16,
        },
        tokens: 1..64,
        ..FakeConfig::default()
    }
}

fn prompt(seed: u64, len: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..len).map(|_| 1 + random.below(63) as u32).collect()
}

/// The tokens of the request alone in an engine with enough pages.
fn alone(prompt: &[u32], max_tokens: usize, sampling: &SamplingParams) -> Vec<u32> {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let request = Request {
        sampling: sampling.clone(),
        ..bench.request(prompt, max_tokens)
    };
    bench.answer(request).ids()
}

#[test]
fn request_gets_its_tokens_and_one_end() {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let answer = bench.answer(bench.request(&[1, 2, 3], 10));
    assert_eq!(answer.tokens.len(), 10);
    assert_eq!(answer.end, Some(End::Length));
    assert!(answer.tokens.iter().all(|token| token.logprob.is_nan()));
    bench.assert_empty();
}

/// An answer that is cut anywhere and requested again with its beginning continues as without the cut.
///
/// Promise (Engine): an answer that is continued after a cut (`answered`) has the same tokens.
#[test]
fn continued_answer_has_the_tokens_of_an_uncut_one() {
    let hot = SamplingParams {
        temperature: 1.2,
        seed: 9,
        top_k: 20,
        repetition_penalty: 1.3,
        presence_penalty: 0.7,
        frequency_penalty: 0.4,
        penalty_window: 12,
        ..SamplingParams::default()
    };
    for sampling in [greedy(), hot] {
        let prompt = prompt(5, 11);
        let whole = alone(&prompt, 24, &sampling);
        for cut in 0..whole.len() {
            let begun = [&prompt, &whole[..cut]].concat();
            let rest = SamplingParams {
                answered: cut as u32,
                ..sampling.clone()
            };
            let rest = alone(&begun, whole.len() - cut, &rest);
            assert_eq!(rest, whole[cut..], "cut at {cut}");
        }
    }
}

#[test]
fn tokens_are_equal_for_any_prefill_chunks() {
    let prompt = prompt(1, 100);
    let whole = alone(&prompt, 20, &greedy());
    for step_tokens in [2, 3, 7, 31] {
        let config = EngineConfig {
            step_tokens,
            ..EngineConfig::default()
        };
        let mut bench = Bench::new(model(64), config);
        let answer = bench.answer(bench.request(&prompt, 20));
        assert_eq!(answer.ids(), whole, "{step_tokens} tokens per step");
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    }
}

#[test]
fn answer_ends_at_the_context_length() {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let answer = bench.answer(bench.request(&prompt(1, 120), 50));
    assert_eq!((answer.tokens.len(), answer.end), (8, Some(End::Length)));
}

#[test]
fn decodes_continue_beside_a_long_prompt() {
    let config = EngineConfig {
        step_tokens: 8,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(128), config);
    let mut runs = bench.ask(bench.request(&[5], 60), 1);
    bench.step();
    let _giant = bench.ask(bench.request(&prompt(1, 100), 1), 1);
    for tokens in 2..20 {
        bench.step();
        runs.answers[0].read();
        assert_eq!(runs.answers[0].tokens.len(), tokens, "a token in each step");
    }
}

#[test]
fn short_prompt_finishes_before_an_earlier_long_one() {
    let config = EngineConfig {
        step_tokens: 8,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(128), config);
    let giant = bench.ask(bench.request(&prompt(1, 120), 1), 1);
    bench.step();
    let mut short = bench.ask(bench.request(&[1, 2, 3, 4], 1), 1);
    bench.step();
    short.answers[0].read();
    assert_eq!(short.answers[0].end, Some(End::Length));
    assert_eq!(
        giant.progress.prompt_done(),
        8 + 4,
        "the giant has the other half"
    );
    assert_eq!(giant.progress.phase(), Phase::Prefilling);
}

#[test]
fn tokens_are_equal_when_pages_are_short() {
    let mut bench = Bench::new(model(24), EngineConfig::default());
    let mut all: Vec<_> = (0..8)
        .map(|i| {
            (
                i,
                bench.ask(bench.request(&prompt(i, 10 + i as usize), 60), 1),
            )
        })
        .collect();
    bench.run();
    assert!(
        bench.handle.stats().preemptions() > 0,
        "the shortage was none"
    );
    for (i, asked) in &mut all {
        asked.answers[0].read();
        let expected = alone(&prompt(*i, 10 + *i as usize), 60, &greedy());
        assert_eq!(asked.answers[0].ids(), expected, "request {i}");
    }
    bench.assert_empty();
}

#[test]
fn choices_share_the_prompt_and_sample_independently() {
    for (pages, shared) in [(64, true), (40, false)] {
        let mut bench = Bench::new(model(pages), EngineConfig::default());
        let sampling = SamplingParams {
            seed: 7,
            ..SamplingParams::default()
        };
        let request = Request {
            sampling: sampling.clone(),
            ..bench.request(&prompt(3, 30), 40)
        };
        let mut asked = bench.ask(request, 4);
        bench.step();
        if shared {
            // 7 full pages and one begun, for all four.
            assert_eq!(bench.handle.stats().pages_used(), 8);
        }
        bench.run();
        asked.answers.iter_mut().for_each(Answer::read);
        let ids: Vec<_> = asked.answers.iter().map(Answer::ids).collect();
        assert_eq!(ids[0], alone(&prompt(3, 30), 40, &sampling));
        assert!(
            (1..4).all(|i| ids[i] != ids[0]),
            "each choice has its own numbers"
        );
        assert_eq!(
            bench.handle.stats().preemptions() > 0,
            !shared,
            "{pages} pages"
        );
        bench.assert_empty();
    }
}

#[test]
fn common_prefix_is_computed_once() {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let long = prompt(1, 41);
    let expected = alone(&long, 5, &greedy());
    let first = bench.answer(bench.request(&long, 5));
    assert_eq!(first.ids(), expected);
    let computed = bench.handle.stats().prompt_tokens_computed();
    assert_eq!(computed, 41);
    for (label, prompt, cached) in [
        ("the same", &long[..], 40),
        ("its last token ends a page", &long[..40], 36),
        ("a part of it", &long[..22], 20),
    ] {
        let mut asked = bench.ask(bench.request(prompt, 5), 1);
        bench.run();
        asked.answers[0].read();
        assert_eq!(asked.progress.cached_tokens(), cached, "{label}");
        assert_eq!(asked.progress.prompt_done(), prompt.len() as u64, "{label}");
        assert_eq!(
            asked.answers[0].ids(),
            alone(prompt, 5, &greedy()),
            "{label}"
        );
    }
    assert_eq!(bench.handle.stats().prefix_hit_tokens(), 40 + 36 + 20);
}

#[test]
fn no_page_is_cached_without_a_prefix_cache() {
    let config = EngineConfig {
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(64), config);
    for _ in 0..2 {
        bench.answer(bench.request(&prompt(1, 40), 5));
    }
    assert_eq!(bench.handle.stats().prefix_hit_tokens(), 0);
    assert_eq!(bench.handle.stats().pages_cached(), 0);
}

#[test]
fn sequences_take_turns_when_there_are_more_than_rows() {
    let mut bench = Bench::new(model(256), EngineConfig::default());
    // 16 rows of logits per step.
    let mut all: Vec<_> = (0..40)
        .map(|i| (i, bench.ask(bench.request(&prompt(i, 3), 30), 1)))
        .collect();
    bench.run();
    for (i, asked) in &mut all {
        asked.answers[0].read();
        assert_eq!(
            asked.answers[0].ids(),
            alone(&prompt(*i, 3), 30, &greedy()),
            "request {i}"
        );
    }
}

#[test]
fn requests_run_in_order_with_one_sequence() {
    let config = EngineConfig {
        sequences_max: 1,
        step_tokens: 1,
        ..EngineConfig::default()
    };
    let mut narrow = model(64);
    (narrow.dims.rows_max, narrow.dims.logit_rows_max) = (1, 1);
    let mut bench = Bench::new(narrow, config);
    let mut all: Vec<_> = (0..5)
        .map(|i| (i, bench.ask(bench.request(&prompt(i, 6), 5), 1)))
        .collect();
    bench.run();
    for (i, asked) in &mut all {
        asked.answers[0].read();
        let expected = alone(&prompt(*i, 6), 5, &greedy());
        assert_eq!(asked.answers[0].ids(), expected, "request {i}");
    }
}

#[test]
fn progress_times_are_in_order() {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let asked = bench.ask(bench.request(&prompt(1, 60), 5), 1);
    assert_eq!(asked.progress.phase(), Phase::Queued);
    bench.step();
    assert_eq!(asked.progress.phase(), Phase::Prefilling);
    bench.step();
    assert_eq!(asked.progress.phase(), Phase::Running);
    assert!(asked.progress.first_token_ns() > 0, "known roughly at once");
    bench.run();
    let ms = |ns: u64| ns / 1_000_000;
    let p = &asked.progress;
    // Steps begin at 1, 2, 3 ... ms; the token of step 2 is there when step 3 begins.
    assert_eq!(
        [p.started_ns(), p.first_token_ns(), p.ended_ns()].map(ms),
        [1, 3, 7]
    );
    assert_eq!(p.phase(), Phase::Ended);
}

#[test]
fn end_of_sequence_token_is_not_in_the_log() {
    let model = FakeConfig {
        eos_probability: 0.2,
        ..model(64)
    };
    let mut bench = Bench::new(model.clone(), EngineConfig::default());
    let answer = bench.answer(bench.request(&[1, 2, 3], 100));
    assert_eq!(answer.end, Some(End::Stop(Stop::Eos)));
    assert!(answer.tokens.iter().all(|token| token.id != 0));

    let ignoring = Request {
        sampling: SamplingParams {
            ignore_eos: true,
            ..greedy()
        },
        ..bench.request(&[1, 2, 3], 100)
    };
    let all = bench.answer(ignoring);
    assert_eq!((all.tokens.len(), all.end), (100, Some(End::Length)));
    assert_eq!(all.ids()[..answer.tokens.len()], answer.ids());
    assert_eq!(all.ids()[answer.tokens.len()], 0, "an ordinary token");
}

#[test]
fn alternatives_are_appended_before_their_token() {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    let request = Request {
        sampling: SamplingParams {
            logprobs: true,
            top_logprobs: 3,
            ..greedy()
        },
        ..bench.request(&[1, 2, 3], 10)
    };
    let mut answer = bench.answer(request);
    let alternatives = answer.alternatives();
    assert_eq!(alternatives.len(), 30);
    for (token, top) in answer.tokens.iter().zip(alternatives.chunks(3)) {
        assert_eq!(
            (top[0].id, top[0].logprob),
            (token.id, token.logprob),
            "greedy"
        );
        assert!(top.is_sorted_by(|a, b| a.logprob >= b.logprob));
    }
}
