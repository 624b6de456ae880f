//! Results against softmax attention written out in f64.

use super::{Plan, World};
use crate::{Isa, Pool};
use half::f16;
use proptest::prelude::*;

/// Largest distance allowed, for values up to 2 and scores up to a few tens.
const BOUND: f64 = 1e-5;

/// One row of attention in f64, over keys and values as f16.
fn naive(world: &World, row: usize) -> Vec<f64> {
    let shape = world.kv.shape();
    let (dim, heads, params) = (shape.head_dim, world.params.heads, &world.params);
    let (k, v) = &world.stored[world.sequence[row]];
    let end = world.rows[row].position + 1;
    let start = params
        .window
        .map_or(0, |window| end.saturating_sub(window.max(1)));
    let half = |x: f32| f16::from_f32(x).to_f64();
    let mut out = Vec::new();
    for head in 0..heads {
        let query = &world.q[(row * heads + head) * dim..][..dim];
        let of = |at: usize| (at * shape.kv_heads + head / (heads / shape.kv_heads)) * dim;
        let scores: Vec<f64> = (start..end)
            .map(|at| {
                let dot: f64 = (0..dim)
                    .map(|d| f64::from(query[d]) * half(k[of(at) + d]))
                    .sum();
                let score = dot * f64::from(params.scale);
                params.softcap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            })
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..dim).map(|d| {
            let weighted = (start..end)
                .zip(&weights)
                .map(|(at, w)| w * half(v[of(at) + d]));
            weighted.sum::<f64>() / sum
        }));
    }
    out
}

/// Every level and some numbers of threads give the oracle's rows.
fn check(label: &str, plan: &Plan) {
    let world = World::new(plan);
    let rows = world.rows.len();
    let wanted: Vec<f64> = (0..rows).flat_map(|row| naive(&world, row)).collect();
    for isa in Isa::available() {
        for threads in [1, 3] {
            let got = world.attend(isa, &mut Pool::new(threads), 0..rows);
            assert_eq!(got.len(), wanted.len());
            for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                let far = (f64::from(*got) - wanted).abs();
                assert!(
                    far <= BOUND,
                    "{label}, {isa}, {threads} threads, [{i}]: {got}, not {wanted}"
                );
            }
        }
    }
}

#[test]
fn attention_is_what_the_formula_says() {
    let plain = Plan::default;
    let many = vec![0..40, 100..101, 530..531, 7..8, 20..29];
    for (label, plan) in [
        (
            "a prompt",
            Plan {
                sequences: vec![0..70],
                ..plain()
            },
        ),
        (
            "one token",
            Plan {
                sequences: vec![0..1],
                ..plain()
            },
        ),
        (
            "a mixed batch",
            Plan {
                sequences: many.clone(),
                ..plain()
            },
        ),
        (
            "capped",
            Plan {
                sequences: many.clone(),
                softcap: Some(5.0),
                ..plain()
            },
        ),
        (
            "a window",
            Plan {
                sequences: many.clone(),
                window: Some(9),
                ..plain()
            },
        ),
        (
            "a window of one",
            Plan {
                sequences: many.clone(),
                window: Some(1),
                ..plain()
            },
        ),
        (
            "a window beyond",
            Plan {
                sequences: many.clone(),
                window: Some(4096),
                ..plain()
            },
        ),
        (
            "window and cap",
            Plan {
                sequences: many,
                window: Some(33),
                softcap: Some(2.0),
                ..plain()
            },
        ),
        (
            "a window over spans",
            Plan {
                sequences: vec![600..650, 1100..1101],
                window: Some(550),
                ..plain()
            },
        ),
        (
            "long",
            Plan {
                sequences: vec![1500..1530, 1023..1025],
                ..plain()
            },
        ),
        (
            "one kv head",
            Plan {
                heads: 24,
                kv_heads: 1,
                sequences: vec![500..520],
                ..plain()
            },
        ),
        (
            "no groups",
            Plan {
                heads: 3,
                kv_heads: 3,
                sequences: vec![0..33],
                ..plain()
            },
        ),
        (
            "odd pages",
            Plan {
                page_tokens: 5,
                sequences: vec![0..20, 600..612],
                ..plain()
            },
        ),
        (
            "pages of one",
            Plan {
                page_tokens: 1,
                sequences: vec![0..20, 70..75],
                ..plain()
            },
        ),
        (
            "large pages",
            Plan {
                page_tokens: 512,
                sequences: vec![0..20, 700..712],
                ..plain()
            },
        ),
        (
            "odd large pages",
            Plan {
                page_tokens: 300,
                sequences: vec![290..320, 700..712],
                ..plain()
            },
        ),
        (
            "wide heads",
            Plan {
                head_dim: 256,
                sequences: vec![30..50],
                ..plain()
            },
        ),
    ] {
        check(label, &plan);
    }
}

#[test]
fn every_head_dim_works() {
    for head_dim in [2, 16, 20, 32, 48, 64, 80, 96, 128] {
        let plan = Plan {
            head_dim,
            sequences: vec![0..18, 530..532],
            ..Plan::default()
        };
        check(&format!("head_dim {head_dim}"), &plan);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_shape_is_what_the_formula_says(
        kv_heads in 1usize..4,
        group in 1usize..6,
        head_dim in (1usize..40).prop_map(|half| half * 2),
        page_tokens in 1usize..40,
        softcap in proptest::option::of(1.0f32..60.0),
        window in proptest::option::of(1usize..700),
        sequences in proptest::collection::vec((0usize..700, 1usize..12), 1..4),
    ) {
        let sequences = sequences.into_iter().map(|(first, rows)| first..first + rows).collect();
        let heads = kv_heads * group;
        check("random", &Plan { heads, kv_heads, head_dim, page_tokens, softcap, window, sequences });
    }
}
