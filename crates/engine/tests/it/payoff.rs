//! The gain of draft tokens: tokens of the same distribution, sooner where many are accepted and rows are cheap,
//! and no later elsewhere.

use crate::support::{Bench, model};
use engine::fake::FakeConfig;
use engine::{EngineConfig, SamplingParams, Speculation};
use std::time::Duration;

fn config(speculation: Speculation) -> EngineConfig {
    EngineConfig {
        speculation,
        draft_tokens: 6,
        ..EngineConfig::default()
    }
}

#[test]
fn token_distribution_is_equal_with_and_without_draft_tokens() {
    // Other seeds with guesses than without, so that nothing is alike but the distribution.
    let model = FakeConfig {
        tokens: 1..6,
        habit: 0.5,
        ..model()
    };
    let [mut plain, mut guessed] = [Speculation::Off, Speculation::PromptLookup]
        .map(|speculation| Bench::new(model.clone(), config(speculation)));
    let draws = 6000;
    let histogram = |bench: &mut Bench, first: u64| {
        let mut counts = vec![[0f64; 6]; 5];
        for seed in first..first + draws {
            let mut request = bench.request(&[1, 2, 3, 4, 5, 1, 2, 3, 4, 5], 5);
            request.sampling = SamplingParams {
                temperature: 2.0,
                seed,
                ..SamplingParams::default()
            };
            let ids = bench.answer(request).ids();
            for (at, id) in ids.into_iter().enumerate() {
                counts[at][id as usize] += 1.0;
            }
        }
        counts
    };
    let (a, b) = (histogram(&mut plain, 0), histogram(&mut guessed, 1_000_000));
    let stats = guessed.handle.stats();
    let (accepted, drafted) = (stats.tokens_accepted(), stats.tokens_drafted());
    assert!(accepted > draws / 10, "{accepted} of {drafted} right");
    assert!(
        drafted - accepted > draws / 10,
        "{accepted} of {drafted} right"
    );
    for (at, (a, b)) in a.iter().zip(&b).enumerate() {
        let differ = a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>();
        let variation = differ / 2.0 / draws as f64;
        assert!(variation < 0.035, "token {at}: total variation {variation}");
        // Two samples of one distribution, 4 degrees of freedom: 18.5 at one in a thousand.
        let pairs = a.iter().zip(b).filter(|(a, b)| *a + *b > 0.0);
        let squared: f64 = pairs.map(|(a, b)| (a - b).powi(2) / (a + b)).sum();
        assert!(squared < 18.5, "token {at}: chi-squared {squared}");
    }
}

/// Tokens per millisecond and draft tokens, on a machine with this time per row.
fn speed(model: &FakeConfig, speculation: Speculation, row: Duration) -> (f64, u64) {
    let mut bench = Bench::new(model.clone(), config(speculation));
    let start = bench.now;
    for seed in 0..20u32 {
        let mut asked = bench.ask(bench.request(&[1 + seed % 8, 2, 3, 4], 100), 1);
        while asked.answers[0].seen().1.is_none() {
            let report = bench.engine.step(bench.now);
            bench.now += Duration::from_millis(10) + row * report.rows as u32;
        }
    }
    let ms = (bench.now - start).as_secs_f64() * 1e3;
    let stats = bench.handle.stats();
    (stats.tokens_generated() as f64 / ms, stats.tokens_drafted())
}

#[test]
fn draft_tokens_are_used_where_they_pay() {
    let cases = [
        ("cheap rows, good guesses", 0.95, 500, 1.8, f64::MAX),
        ("dear rows, good guesses", 0.95, 100_000, 0.98, 1.1),
        ("bad guesses", 0.1, 2000, 0.98, 1.1),
    ];
    for (label, habit, row_us, least, most) in cases {
        let model = FakeConfig {
            habit,
            tokens: 1..9,
            ..model()
        };
        let row = Duration::from_micros(row_us);
        let (plain, _) = speed(&model, Speculation::Off, row);
        let (guessed, drafted) = speed(&model, Speculation::PromptLookup, row);
        let gain = guessed / plain;
        assert!((least..most).contains(&gain), "{label}: {gain}");
        assert!(drafted > 0, "{label}: never tried");
    }
}
