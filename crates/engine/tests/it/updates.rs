//! Updates of running requests: effective from the next token on, and not before.
//!
//! Promise (Engine): a running stream with updated sampling, or injected tokens, continues as a fresh request over
//! the same transcript would; its replay is the same.
//! Also held by `server/tests/it/control.rs`.

use crate::support::{Bench, bench, model};
use engine::{EngineConfig, Request, RequestUpdate, SamplingParams, Speculation, UpdateRejected};
use stream::End;

const PROMPT: [u32; 5] = [3, 1, 4, 1, 5];

fn hot() -> SamplingParams {
    SamplingParams {
        temperature: 1.5,
        seed: 4,
        ..SamplingParams::default()
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..hot()
    }
}

/// The answer of a fresh request that continues `begun`.
fn after(begun: &[u32], sampling: SamplingParams, max_tokens: usize) -> Vec<u32> {
    let mut bench = bench();
    let request = Request {
        sampling: SamplingParams {
            answered: begun.len() as u32,
            ..sampling
        },
        ..bench.request(&[&PROMPT, begun].concat(), max_tokens)
    };
    bench.answer(request).ids()
}

fn ask(bench: &Bench, max_tokens: usize, choices: usize) -> crate::support::Asked {
    let request = Request {
        sampling: hot(),
        ..bench.request(&PROMPT, max_tokens)
    };
    bench.ask(request, choices)
}

#[test]
fn update_takes_effect_at_the_next_token_and_injects_in_order() {
    let speculating = EngineConfig {
        speculation: Speculation::PromptLookup,
        ..EngineConfig::default()
    };
    for config in [EngineConfig::default(), speculating] {
        for at in 1..8 {
            for inject in [vec![], vec![9], vec![9, 10, 11, 12, 13, 14, 15]] {
                for cold in [false, true] {
                    let mut bench = Bench::new(model(), config);
                    let mut asked = ask(&bench, 30, 1);
                    bench.run_until(|bench| bench.engine.stats().tokens_generated() >= at);
                    let answer = &mut asked.answers[0];
                    answer.read();
                    let begun = [answer.ids(), inject.clone()].concat();
                    let steer = RequestUpdate {
                        temperature: cold.then_some(0.0),
                        inject: inject.clone(),
                        ..RequestUpdate::default()
                    };
                    bench.handle.update(asked.id, steer).expect("taken");
                    bench.run();
                    answer.read();
                    let sampling = if cold { greedy() } else { hot() };
                    let rest = after(&begun, sampling, 30 - begun.len());
                    assert_eq!(answer.ids(), [begun, rest].concat(), "at {at}, {inject:?}");
                    assert_eq!(answer.end, Some(End::Length));
                    bench.assert_empty();
                }
            }
        }
    }
}

#[test]
fn update_waits_for_the_first_token_of_every_choice() {
    let mut bench = bench();
    let mut asked = ask(&bench, 12, 3);
    let steer = RequestUpdate {
        inject: vec![9, 10],
        ..RequestUpdate::default()
    };
    bench.handle.update(asked.id, steer.clone()).expect("taken");
    bench.run();
    for answer in &mut asked.answers {
        answer.read();
        assert_eq!(answer.ids()[1..3], [9, 10], "after the first");
        assert_eq!(answer.tokens.len(), 12);
    }
    bench
        .handle
        .update(asked.id, steer)
        .expect("nobody is there to hear it");
    bench.run();
    bench.assert_empty();
}

#[test]
fn injected_tokens_may_end_a_choice_and_invalid_updates_are_rejected() {
    let mut bench = bench();
    let mut asked = ask(&bench, 6, 1);
    bench.run_until(|bench| bench.engine.stats().tokens_generated() >= 2);
    let told = |inject: Vec<u32>, temperature: Option<f32>| RequestUpdate {
        inject,
        temperature,
        ..RequestUpdate::default()
    };
    let refused = |steer: RequestUpdate, words: &str| match bench.handle.update(asked.id, steer) {
        Err(UpdateRejected::Invalid(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(told(vec![64], None), "inject names token 64");
    refused(told(vec![1; 1025], None), "at most 1024");
    refused(told(vec![], Some(-1.0)), "temperature is -1");
    bench
        .handle
        .update(asked.id, told(vec![7; 100], None))
        .expect("taken");
    bench.run();
    let answer = &mut asked.answers[0];
    answer.read();
    assert_eq!((answer.tokens.len(), answer.end), (6, Some(End::Length)));
    assert_eq!(answer.ids()[2..], [7; 4]);
    bench.assert_empty();
}
