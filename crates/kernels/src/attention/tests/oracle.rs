//! Attention against softmax attention in f64.
//!
//! Promise (Arithmetic): attention sinks: the weights of a row are those of a softmax over its scores and the sink,
//! on every instruction set, for every division of the prompt and of the work, in f16, 8 and 4 bits.
//! Also held by `kernels/src/attention/tests/invariance.rs`, `cpu/tests/it/gpt_oss.rs`, `cpu/tests/it/experts.rs`,
//! `cpu/tests/it/goldens.rs`.

use super::{AttentionFixture, FixtureShape};
use crate::kv::quantize_nibble_group;
use crate::{Isa, KvKind, Pool, QueryRow};
use half::f16;
use proptest::prelude::*;

/// Permitted distance for values up to 2 and scores of moderate size.
const BOUND: f64 = 1e-5;
/// Permitted distance for int8 keys: queries are rounded to 1/32,768 of their largest element.
const BOUND_INT8: f64 = 1e-3;
/// Permitted distance for AMX, where weights and values are rounded to bf16: half a unit in the eighth bit of
/// each, and scores within 0.001.
const BOUND_AMX: f64 = 1e-2;
/// Permitted distance of int8 from f16 for values up to 2: keys of up to 3 in steps of 1/127, times queries of
/// up to 2, change a weight by some per cent.
const BOUND_KINDS: f64 = 0.04;
/// Permitted distance of 4 bits from f16, as above, in steps of 1/8.
const BOUND_KINDS_4_BITS: f64 = 0.7;

/// Keys or values after storage, `(_, head_dim)`.
fn kept(kind: KvKind, values: &[f32], head_dim: usize) -> Vec<f64> {
    if kind == KvKind::F16 {
        return values.iter().map(|x| f16::from_f32(*x).to_f64()).collect();
    }
    if kind == KvKind::Q4_0 {
        let groups = values.chunks(head_dim).flat_map(|head| head.chunks(32));
        let group = |group: &[f32]| {
            let (scale, quants) = quantize_nibble_group(group);
            let quants = quants.into_iter().take(group.len());
            quants.map(move |quant| f64::from(f32::from(quant) * scale.to_f32()))
        };
        return groups.flat_map(group).collect();
    }
    let quanta = values.chunks(head_dim).flat_map(|head| head.chunks(32));
    quanta
        .flat_map(|group| {
            let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let scale = f16::from_f32(most / 127.0).to_f32();
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let quant = move |x: &f32| (x * inverse).clamp(-127.0, 127.0).round_ties_even();
            group.iter().map(move |x| f64::from(quant(x) * scale))
        })
        .collect()
}

/// One row of attention in f64, over stored keys and values.
fn naive(world: &AttentionFixture, kept: &[(Vec<f64>, Vec<f64>)], row: usize) -> Vec<f64> {
    let shape = world.kv.shape();
    let (dim, heads, params) = (shape.head_dim, world.params.heads, &world.params);
    let (k, v) = &kept[world.sequence[row]];
    let QueryRow { position, end, .. } = world.rows[row];
    let sees = |at: &usize| {
        let window = params.window;
        window.is_none_or(|window| position <= at + window.before && *at <= position + window.after)
    };
    let start = (0..end).find(sees).expect("itself");
    let end = (start..end).take_while(sees).count() + start;
    let mut out = Vec::new();
    for head in 0..heads {
        let query = &world.q[(row * heads + head) * dim..][..dim];
        let of = |at: usize| (at * shape.kv_heads + head / (heads / shape.kv_heads)) * dim;
        let scores: Vec<f64> = (start..end)
            .map(|at| {
                let dot: f64 = (0..dim).map(|d| f64::from(query[d]) * k[of(at) + d]).sum();
                let score = dot * f64::from(params.scale);
                params.softcap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            })
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let sink = params.sinks.map(|sinks| f64::from(sinks[head]) - max);
        let sum: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, f64::exp);
        out.extend((0..dim).map(|d| {
            let weighted = (start..end).zip(&weights).map(|(at, w)| w * v[of(at) + d]);
            weighted.sum::<f64>() / sum
        }));
    }
    out
}

/// All levels and several numbers of threads match the oracle, for all storage formats.
fn check(label: &str, plan: &FixtureShape) {
    for kind in KvKind::ALL {
        check_kind(
            label,
            &FixtureShape {
                kind,
                ..plan.clone()
            },
        );
    }
}

/// The exact results of all rows.
pub(super) fn exact(world: &AttentionFixture) -> Vec<f64> {
    let shape = world.kv.shape();
    let keep = |values: &[f32]| kept(shape.kind, values, shape.head_dim);
    let kept: Vec<_> = world
        .stored
        .iter()
        .map(|(k, v)| (keep(k), keep(v)))
        .collect();
    (0..world.rows.len())
        .flat_map(|row| naive(world, &kept, row))
        .collect()
}

fn check_kind(label: &str, plan: &FixtureShape) {
    let (label, world) = (
        format!("{label}, {}", plan.kind),
        AttentionFixture::new(plan),
    );
    let rows = world.rows.len();
    let wanted = exact(&world);
    for isa in Isa::available() {
        let use_amx = world.use_amx(isa, 0..rows);
        for threads in [1, 3] {
            let got = world.attend(isa, &mut Pool::new(threads), 0..rows);
            assert_eq!(got.len(), wanted.len());
            for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                let far = (f64::from(*got) - wanted).abs();
                let bound = match plan.kind {
                    _ if use_amx[i / world.width()] => BOUND_AMX,
                    KvKind::Q8_0 | KvKind::Q4_0 => BOUND_INT8,
                    KvKind::F16 => BOUND,
                };
                assert!(
                    far <= bound,
                    "{label}, {isa}, {threads} threads, [{i}]: {got}, not {wanted}"
                );
            }
        }
    }
}

#[test]
fn attention_matches_f64_softmax() {
    let use_amx = [0..40, 100..101, 530..531, 7..8, 20..29];
    check("a prompt", &FixtureShape::of(&[0..70], |_| {}));
    check("one token", &FixtureShape::of(&[0..1], |_| {}));
    check("a mixed batch", &FixtureShape::of(&use_amx, |_| {}));
    check(
        "capped",
        &FixtureShape::of(&use_amx, |plan| plan.softcap = Some(5.0)),
    );
    check("long", &FixtureShape::of(&[1500..1530, 1023..1025], |_| {}));
    check(
        "sinks",
        &FixtureShape::of(&use_amx, |plan| plan.sinks = true),
    );
    check(
        "sinks and a window over splits",
        &FixtureShape::of(&[1500..1530, 1023..1025], |plan| {
            (plan.sinks, plan.window) = (true, Some(700));
        }),
    );
    check(
        "no groups",
        &FixtureShape::of(&[0..33], |plan| (plan.heads, plan.kv_heads) = (3, 3)),
    );
    check(
        "one kv head",
        &FixtureShape::of(&[500..520], |plan| (plan.heads, plan.kv_heads) = (24, 1)),
    );
}

/// The distance of int8 from f16 is bounded, and not zero; that of 4 bits, too, and larger.
#[test]
fn eight_bits_are_near_f16_and_four_bits_less_so() {
    let sequences = [0..40, 100..101, 1030..1031, 7..8, 20..29];
    for head_dim in [32, 64, 80, 128] {
        let of = |kind| {
            let world = AttentionFixture::new(&FixtureShape::of(&sequences, |plan| {
                (plan.kind, plan.head_dim) = (kind, head_dim);
            }));
            world.attend(Isa::best(), &mut Pool::new(2), 0..world.rows.len())
        };
        let (f16, int8) = (of(KvKind::F16), of(KvKind::Q8_0));
        let farthest = |kind: &[f32]| {
            let far = f16.iter().zip(kind);
            let far = far.map(|(a, b)| f64::from((a - b).abs()));
            far.fold(0.0, f64::max)
        };
        let far = farthest(&int8);
        assert!(
            far > 0.0 && far <= BOUND_KINDS,
            "head_dim {head_dim}: {far}"
        );
        let farther = farthest(&of(KvKind::Q4_0));
        assert!(
            farther > far && farther <= BOUND_KINDS_4_BITS,
            "head_dim {head_dim}: {farther}"
        );
    }
}

#[test]
fn positions_before_the_window_are_invisible() {
    let use_amx = [0..40, 100..101, 530..531, 7..8, 20..29];
    for window in [1, 9, 33, 4096] {
        check(
            "a window",
            &FixtureShape::of(&use_amx, |plan| plan.window = Some(window)),
        );
    }
    let both = |plan: &mut FixtureShape| (plan.window, plan.softcap) = (Some(33), Some(2.0));
    check("window and cap", &FixtureShape::of(&use_amx, both));
    let splits = [600..650, 1100..1101];
    check(
        "over splits",
        &FixtureShape::of(&splits, |plan| plan.window = Some(550)),
    );
}

#[test]
fn later_positions_are_visible_to_rows_that_see_them() {
    let whole = [0..40, 0..1, 0..9, 0..530];
    for window in [None, Some(1), Some(2), Some(9), Some(64), Some(4096)] {
        check(
            "whole texts",
            &FixtureShape::of(&whole, |plan| {
                (plan.window, plan.sees_later) = (window, true);
            }),
        );
    }
}

#[test]
fn every_page_size_works() {
    for page_tokens in [1, 5, 24, 32, 300, 512] {
        let label = format!("pages of {page_tokens}");
        let sequences = [0..20, 290..320, 700..712];
        check(
            &label,
            &FixtureShape::of(&sequences, |plan| plan.page_tokens = page_tokens),
        );
    }
}

#[test]
fn every_head_dim_works() {
    for head_dim in [2, 16, 20, 32, 48, 64, 80, 96, 128, 256] {
        let label = format!("head_dim {head_dim}");
        check(
            &label,
            &FixtureShape::of(&[0..18, 530..532], |plan| plan.head_dim = head_dim),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_shapes_match_f64_softmax(
        kv_heads in 1usize..4,
        group in 1usize..6,
        head_dim in (1usize..40).prop_map(|half| half * 2),
        page_tokens in 1usize..40,
        softcap in proptest::option::of(1.0f32..60.0),
        window in proptest::option::of(1usize..700),
        sinks: bool,
        sees_later: bool,
        sequences in proptest::collection::vec((0usize..700, 1usize..12), 1..4),
    ) {
        let sequences = sequences.into_iter().map(|(first, rows)| first..first + rows).collect();
        let heads = kv_heads * group;
        check("random", &FixtureShape { heads, kv_heads, head_dim, page_tokens, softcap, window, sees_later, sinks, sequences, ..FixtureShape::default() });
    }
}
