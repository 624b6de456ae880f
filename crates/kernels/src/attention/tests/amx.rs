//! Long runs of rows on AMX. Without AMX nothing is tested.

use super::oracle::exact;
use super::{AttentionFixture, FixtureShape, LAYER, amx_reference};
use crate::{Isa, KvKind, Pool};

/// Shapes with different tiles, and runs with arbitrary starts and ends.
fn plans() -> Vec<(&'static str, FixtureShape)> {
    let long = [37..69, 1019..1045, 505..521];
    let mut plans = Vec::new();
    for head_dim in [8, 20, 64, 80, 96, 128, 256] {
        let plan = FixtureShape::of(&[11..43, 520..540], |plan| plan.head_dim = head_dim);
        plans.push(("a head's elements", plan));
    }
    for (heads, kv_heads) in [(2, 2), (3, 1), (8, 2), (16, 2), (130, 1)] {
        let plan = FixtureShape::of(&[11..43, 520..553], |plan| {
            (plan.heads, plan.kv_heads) = (heads, kv_heads);
        });
        plans.push(("heads of a group", plan));
    }
    for page_tokens in [1, 7, 16, 32, 48, 300, 512] {
        let plan = FixtureShape::of(&long, |plan| plan.page_tokens = page_tokens);
        plans.push(("positions of a page", plan));
    }
    for window in [1, 16, 100, 513] {
        let plan = FixtureShape::of(&long, |plan| {
            (plan.window, plan.page_tokens) = (Some(window), 32);
        });
        plans.push(("a window", plan));
    }
    for window in [None, Some(16), Some(100)] {
        let plan = FixtureShape::of(&long, |plan| {
            (plan.window, plan.sees_later) = (window, true);
        });
        plans.push(("later positions", plan));
    }
    plans.push((
        "a cap",
        FixtureShape::of(&long, |plan| plan.softcap = Some(5.0)),
    ));
    plans.push((
        "more than a workspace's",
        FixtureShape::of(&[3..303], |_| {}),
    ));
    let of_kind = |(label, plan): &(&'static str, FixtureShape), kind| {
        let plan = FixtureShape {
            kind,
            ..plan.clone()
        };
        (*label, plan)
    };
    let all = plans
        .iter()
        .flat_map(|plan| KvKind::ALL.map(|kind| of_kind(plan, kind)));
    all.collect()
}

/// The largest distance from the exact results.
fn farthest(found: &[f32], exact: &[f64]) -> f64 {
    let far = found
        .iter()
        .zip(exact)
        .map(|(a, b)| (f64::from(*a) - b).abs());
    far.fold(0.0, f64::max)
}

#[test]
fn amx_attention_matches_the_reference_bits_near_the_exact_result() {
    let Some(isa) = Isa::amx() else { return };
    for (label, plan) in plans() {
        let world = AttentionFixture::new(&plan);
        let rows = 0..world.rows.len();
        assert!(
            world
                .use_amx(isa, rows.clone())
                .iter()
                .all(|use_amx| *use_amx),
            "{label}"
        );
        let wanted: Vec<u32> = rows
            .clone()
            .flat_map(|row| amx_reference::row(&world, row))
            .map(f32::to_bits)
            .collect();
        let exact = exact(&world);
        for threads in [1, 3] {
            let found = world.attend(isa, &mut Pool::new(threads), rows.clone());
            let same = found.iter().map(|x| x.to_bits()).eq(wanted.iter().copied());
            assert!(same, "{label}, {threads} threads: {plan:?}");
            // Weights and values are rounded to eight bits each: values are up to 2, the mean is small.
            let far = farthest(&found, &exact);
            assert!(far <= 8e-3, "{label}: {far} for {plan:?}");
        }
    }
}

/// Keys with a large common part, as in models with key biases: the common part cancels in the scores.
#[test]
fn scores_with_cancellation_keep_precision() {
    let Some(isa) = Isa::amx() else { return };
    let mut world = AttentionFixture::new(&FixtureShape::of(&[100..140], |plan| {
        (plan.heads, plan.kv_heads, plan.head_dim) = (2, 1, 64);
    }));
    for key in world.stored[0].0.chunks_exact_mut(64) {
        key[0] += 150.0;
        key[33] += 150.0;
    }
    // The query is nearly orthogonal to the common part: terms of about 800, scores of about 1.
    for query in world.q.chunks_exact_mut(64) {
        query[0] = 41.0 + query[0] * 0.01;
        query[33] = -41.0 + query[33] * 0.01;
    }
    let (keys, values) = world.stored[0].clone();
    for (at, (key, value)) in keys
        .chunks_exact(64)
        .zip(values.chunks_exact(64))
        .enumerate()
    {
        world
            .kv
            .store(LAYER, world.tables[at / 16], at % 16, key, value);
    }
    let exact = exact(&world);
    let [tiled, steady] = [isa, Isa::best()]
        .map(|isa| farthest(&world.attend(isa, &mut Pool::new(1), 0..40), &exact));
    // Keys and queries rounded to bf16 once would give other results.
    let mut rounded = AttentionFixture::new(&FixtureShape::of(&[100..140], |plan| {
        (plan.heads, plan.kv_heads, plan.head_dim) = (2, 1, 64);
    }));
    rounded.q = world.q.iter().map(|x| amx_reference::nearest(*x)).collect();
    let keys = keys.iter().map(|x| amx_reference::nearest(*x)).collect();
    rounded.stored = vec![(keys, values)];
    let once = self::exact(&rounded);
    let once = once
        .iter()
        .zip(&exact)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(
        steady < 1e-3 && tiled < 2e-2,
        "{steady} steady, {tiled} on tiles"
    );
    assert!(once > 0.2, "the test tells nothing: rounded once {once}");
}

/// One element of one value is NaN: only rows that see the element change; other rows see zero.
#[test]
fn non_finite_values_affect_only_rows_that_see_them() {
    let Some(isa) = Isa::amx() else { return };
    let (dim, element, bad_at) = (64, 37, 45);
    let windows = [None, Some(8)].into_iter();
    for (window, kind) in windows.flat_map(|window| KvKind::ALL.map(|kind| (window, kind))) {
        // A NaN makes the scale of its scale group NaN.
        let with_it = match kind {
            KvKind::F16 => element..element + 1,
            KvKind::Q8_0 | KvKind::Q4_0 => 32..64,
        };
        let with = |value: f32| {
            let mut world = AttentionFixture::new(&FixtureShape::of(&[21..75], |plan| {
                (plan.heads, plan.kv_heads, plan.head_dim) = (4, 2, dim);
                (plan.window, plan.kind) = (window, kind);
            }));
            let part = bad_at * 2 * dim..(bad_at + 1) * 2 * dim;
            let (keys, values) = &mut world.stored[0];
            values[part.start..][with_it.clone()].fill(0.0);
            values[part.start + element] = value;
            let (key, value) = (keys[part.clone()].to_vec(), values[part].to_vec());
            world
                .kv
                .store(LAYER, world.tables[bad_at / 16], bad_at % 16, &key, &value);
            world.attend(isa, &mut Pool::new(2), 0..54)
        };
        let (zero, bad) = (with(0.0), with(f32::NAN));
        for (i, (bad, zero)) in bad.iter().zip(&zero).enumerate() {
            let (row, head, e) = (21 + i / (4 * dim), i / dim % 4, i % dim);
            let sees = row >= bad_at && window.is_none_or(|window| row < bad_at + window);
            if sees && head < 2 && with_it.contains(&e) {
                assert!(bad.is_nan(), "{window:?}, row {row}, [{e}]: {bad}");
            } else {
                assert_eq!(
                    bad.to_bits(),
                    zero.to_bits(),
                    "{window:?}, row {row}, [{e}]"
                );
            }
        }
    }
}
