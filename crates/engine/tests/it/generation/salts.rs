//! Only requests with equal salts share cached prompts.
//!
//! Promise (Admission and keys): cached prompts of one key are computed again for another: `cached_tokens` is 0, in
//! every API. The same key, a shared cache and equal `cache_salt`s find them, and choices of a request share their
//! prompt under any salt.
//! Also held by `engine/src/pages/tests.rs`, `engine/tests/it/simulation`, `server/tests/it/doors/prefix_cache.rs`.

use super::{alone, greedy, model, prompt};
use crate::support::{Answer, Bench};
use engine::{CacheSalt, EngineConfig, SamplingParams};

/// Runs a request under this salt. Returns its cached prompt tokens and its answers.
fn salted(bench: &mut Bench, prompt: &[u32], salt: u128, choices: usize) -> (u64, Vec<Vec<u32>>) {
    let mut request = bench.request(prompt, 5);
    request.terms.salt = CacheSalt(salt);
    let mut asked = bench.ask(request, choices);
    bench.run();
    asked.answers.iter_mut().for_each(Answer::read);
    let ids = asked.answers.iter().map(Answer::ids).collect();
    (asked.progress.cached_tokens(), ids)
}

#[test]
fn cached_prompt_is_shared_under_equal_salts_only() {
    let mut bench = Bench::new(model(256), EngineConfig::default());
    let long = prompt(1, 41);
    let expected = alone(&long, 5, &greedy());
    for (label, salt, cached) in [
        ("the first", 7, 0),
        ("another salt", 8, 0),
        ("no salt", 0, 0),
        ("the first salt again", 7, 40),
        ("the other salt again", 8, 40),
        ("no salt again", 0, 40),
    ] {
        let (found, ids) = salted(&mut bench, &long, salt, 1);
        assert_eq!(found, cached, "{label}");
        assert_eq!(ids, std::slice::from_ref(&expected), "{label}");
    }
    assert_eq!(bench.handle.stats().prompt_tokens_computed(), 3 * 41 + 3);
    bench.assert_empty();
}

#[test]
fn choices_share_their_prompt_under_a_salt() {
    let mut bench = Bench::new(model(256), EngineConfig::default());
    let (_, ids) = salted(&mut bench, &prompt(1, 41), 7, 4);
    assert_eq!(ids.len(), 4);
    assert_eq!(bench.handle.stats().prompt_tokens_computed(), 41);
}

#[test]
fn tokens_are_equal_under_any_salt() {
    // Pages for all choices; and so few that some are preempted and computed again.
    for pages in [64, 40] {
        let [unsalted, salted] = [0, 7].map(|salt| {
            let mut bench = Bench::new(model(pages), EngineConfig::default());
            let mut request = bench.request(&prompt(3, 30), 40);
            request.sampling = SamplingParams {
                seed: 7,
                ..SamplingParams::default()
            };
            request.terms.salt = CacheSalt(salt);
            let mut asked = bench.ask(request, 4);
            bench.run();
            asked.answers.iter_mut().for_each(Answer::read);
            let ids: Vec<_> = asked.answers.iter().map(Answer::ids).collect();
            let stats = bench.handle.stats();
            let counts = [
                stats.prompt_tokens_computed(),
                stats.prefix_hit_tokens(),
                stats.preemptions(),
            ];
            (ids, counts)
        });
        assert_eq!(unsalted, salted, "{pages} pages");
        assert_eq!(pages == 40, salted.1[2] > 0, "{pages} pages: preemptions");
    }
}
