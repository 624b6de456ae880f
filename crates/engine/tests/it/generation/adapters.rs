//! Adapters change the tokens of their requests, and only requests with equal adapters and scales share cached prompts.

use super::{model, prompt};
use crate::support::{Answer, Bench};
use engine::{AdapterSet, EngineConfig};

fn set(given: &[(usize, f32)]) -> AdapterSet {
    AdapterSet::new(given.iter().copied()).expect("a set")
}

/// Runs a request with these adapters. Returns its cached prompt tokens and its answers.
fn adapted(
    bench: &mut Bench,
    prompt: &[u32],
    adapters: AdapterSet,
    choices: usize,
) -> (u64, Vec<Vec<u32>>) {
    let mut request = bench.request(prompt, 5);
    request.adapters = adapters;
    let mut asked = bench.ask(request, choices);
    bench.run();
    asked.answers.iter_mut().for_each(Answer::read);
    let ids = asked.answers.iter().map(Answer::ids).collect();
    (asked.progress.cached_tokens(), ids)
}

/// The answer in an engine that computes nothing else.
fn alone(prompt: &[u32], adapters: AdapterSet) -> Vec<Vec<u32>> {
    let mut bench = Bench::new(model(64), EngineConfig::default());
    adapted(&mut bench, prompt, adapters, 1).1
}

#[test]
fn cached_prompt_is_shared_with_equal_adapters_and_scales_only() {
    let mut bench = Bench::new(model(256), EngineConfig::default());
    let long = prompt(1, 41);
    let sets = [
        AdapterSet::NONE,
        set(&[(0, 1.0)]),
        set(&[(0, 0.5)]),
        set(&[(0, -0.5)]),
        set(&[(1, 1.0)]),
        set(&[(0, 1.0), (1, 1.0)]),
    ];
    for cached in [0, 40] {
        for adapters in sets {
            let (found, ids) = adapted(&mut bench, &long, adapters, 1);
            assert_eq!(found, cached, "{adapters:?}");
            assert_eq!(ids, alone(&long, adapters), "{adapters:?}");
        }
    }
    let mut all = sets.map(|adapters| alone(&long, adapters)).to_vec();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), sets.len(), "adapters change the tokens");
    bench.assert_empty();
}

#[test]
fn choices_share_their_prompt_with_adapters() {
    let mut bench = Bench::new(model(256), EngineConfig::default());
    let (_, ids) = adapted(&mut bench, &prompt(1, 41), set(&[(2, 1.0)]), 4);
    assert_eq!(ids.len(), 4);
    assert_eq!(bench.handle.stats().prompt_tokens_computed(), 41);
}
