//! The penalty against a slow reference that compares every two places.

use super::*;
use crate::sampler::uniform;
use crate::{DryBreakers, SamplingParams};

/// Logits after the penalty, from zeros.
fn penalized(tokens: &[u32], sampling: &SamplingParams) -> Vec<f32> {
    let mut logits = vec![0.0; 8];
    let mut counts = TokenCounts::new(logits.len());
    let context = SampleContext {
        sampling,
        tokens,
        prompt_tokens: 0,
        choice: 0,
        eos: &[],
        constraint: None,
    };
    Repetitions::new().apply_penalty(&mut logits, &mut counts, &context);
    assert!(counts.is_clean(), "scratch comes back clean");
    logits
}

/// Written from the definition: for each earlier place, how far the tokens before it equal the last tokens.
fn by_reference(tokens: &[u32], s: &SamplingParams, breakers: &[Vec<u32>]) -> Vec<f32> {
    let window = match s.dry_window as usize {
        0 => tokens.len(),
        window => window.min(tokens.len()),
    };
    let tokens = &tokens[tokens.len() - window..];
    let mut longest = [None; 8];
    // The tokens after the breaker that ends last.
    let ends = (0..tokens.len()).flat_map(|start| {
        let begins = move |breaker: &&Vec<u32>| tokens[start..].starts_with(breaker);
        breakers
            .iter()
            .filter(begins)
            .map(move |breaker| (start, start + breaker.len()))
    });
    // Of breakers that begin at one place the longest counts, and of all the one that begins last.
    let after = ends
        .max()
        .map_or(tokens.len(), |(_, end)| tokens.len() - end);
    for place in 1..tokens.len() {
        let common = tokens[..place].iter().rev().zip(tokens.iter().rev());
        let common = common.take_while(|(a, b)| a == b).count().min(after);
        if common >= s.dry_allowed_length as usize {
            let best: &mut Option<usize> = &mut longest[tokens[place] as usize];
            *best = (*best).max(Some(common));
        }
    }
    let allowed = s.dry_allowed_length as usize;
    let is_off = tokens.len() <= allowed || after < allowed;
    let penalty = |length: &Option<usize>| match length {
        Some(length) if !is_off => {
            let exponent = i32::try_from(length - allowed).expect("small");
            -(f64::from(s.dry_multiplier) * f64::from(s.dry_base).powi(exponent)) as f32
        }
        _ => 0.0,
    };
    longest.iter().map(penalty).collect()
}

fn params(multiplier: f32, allowed: u32, window: u32) -> SamplingParams {
    SamplingParams {
        dry_multiplier: multiplier,
        dry_base: 2.0,
        dry_allowed_length: allowed,
        dry_window: window,
        ..SamplingParams::default()
    }
}

#[test]
fn continuation_of_a_repetition_is_penalized() {
    let case = |label: &str, tokens: &[u32], s: &SamplingParams, expected: &[(usize, f32)]| {
        let mut want = vec![0.0; 8];
        for (token, penalty) in expected {
            want[*token] = -penalty;
        }
        assert_eq!(penalized(tokens, s), want, "{label}");
    };
    let tokens = [1, 2, 3, 4, 1, 2, 3];
    case("off", &tokens, &params(0.0, 2, 0), &[]);
    case("three in common", &tokens, &params(0.5, 2, 0), &[(4, 1.0)]);
    case(
        "exactly the allowed length",
        &tokens,
        &params(0.5, 3, 0),
        &[(4, 0.5)],
    );
    case(
        "shorter than the allowed length",
        &tokens,
        &params(0.5, 4, 0),
        &[],
    );
    case("outside of the window", &tokens, &params(0.5, 2, 4), &[]);
    case(
        "cut by the window",
        &tokens,
        &params(0.5, 2, 6),
        &[(4, 0.5)],
    );
    case(
        "the longest of a token counts",
        &[1, 2, 5, 3, 1, 2, 5, 1, 2],
        &params(1.0, 1, 0),
        &[(5, 2.0)],
    );
    case("no tokens", &[], &params(1.0, 0, 0), &[]);
    let same = [6; 40];
    case(
        "overflow is bounded",
        &same,
        &params(100.0, 1, 0),
        &[(6, 100.0 * 2f32.powi(38))],
    );
    let steep = SamplingParams {
        dry_base: 16.0,
        ..params(100.0, 1, 0)
    };
    case("a logit stays finite", &same, &steep, &[(6, PENALTY_MAX)]);
}

#[test]
fn breaker_ends_a_repetition() {
    let with = |breakers: &[Vec<u32>]| SamplingParams {
        dry_breakers: DryBreakers::new(breakers.to_vec()),
        ..params(1.0, 1, 0)
    };
    let tokens = [1, 2, 3, 4, 1, 2, 3];
    let at_4 = |s: &SamplingParams| penalized(&tokens, s)[4];
    assert_eq!(at_4(&with(&[])), -4.0);
    assert_eq!(at_4(&with(&[vec![2]])), -1.0, "only the 3 behind it");
    assert_eq!(at_4(&with(&[vec![3]])), 0.0, "nothing behind it");
    assert_eq!(at_4(&with(&[vec![1, 2]])), -1.0);
    assert_eq!(at_4(&with(&[vec![2, 4]])), -4.0, "not in the sequence");
}

#[test]
fn penalties_agree_with_the_slow_reference() {
    let mut state = 0;
    let mut number = move |below: f64| {
        state += 1;
        (uniform(5, 0, state) * below) as u32
    };
    for round in 0..400 {
        // Few different tokens repeat themselves more.
        let vocab = f64::from(2 + round % 6);
        let tokens: Vec<u32> = (0..number(60.0)).map(|_| number(vocab)).collect();
        let breakers: Vec<Vec<u32>> = (0..number(3.0))
            .map(|_| (0..=number(2.0)).map(|_| number(vocab)).collect())
            .collect();
        let s = SamplingParams {
            dry_breakers: DryBreakers::new(breakers.clone()),
            ..params(0.75, number(4.0), number(40.0))
        };
        let (fast, slow) = (penalized(&tokens, &s), by_reference(&tokens, &s, &breakers));
        assert_eq!(fast, slow, "round {round}: {tokens:?} {breakers:?} {s:?}");
    }
}
