//! A row's bits do not depend on other rows, on chunks, or on threads.

use super::{AttentionFixture, FixtureShape, LAYER, WorkPartition};
use crate::{Isa, KvKind, Pool};
use proptest::prelude::*;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// All levels with all storage formats of keys and values.
fn everywhere() -> impl Iterator<Item = (Isa, KvKind)> {
    Isa::available().flat_map(|isa| KvKind::ALL.map(|kind| (isa, kind)))
}

/// Each row alone on one thread against batches cut at `cuts` on several numbers of threads; rows that use AMX
/// against the AMX reference implementation.
fn check(plan: &FixtureShape, cuts: &[usize]) {
    for kind in KvKind::ALL {
        check_kind(
            &FixtureShape {
                kind,
                ..plan.clone()
            },
            cuts,
        );
    }
}

fn check_kind(plan: &FixtureShape, cuts: &[usize]) {
    let world = AttentionFixture::new(plan);
    let rows = world.rows.len();
    let reference_bits = reference_bits(&world);
    for isa in Isa::available() {
        let alone: Vec<u32> = (0..rows)
            .flat_map(|row| bits(&world.attend(isa, &mut Pool::new(1), row..row + 1)))
            .collect();
        for threads in [1, 2, 7] {
            let mut pool = Pool::new(threads);
            let mut start = 0;
            for end in cuts.iter().map(|cut| *cut % rows).chain([rows]) {
                if end <= start {
                    continue;
                }
                let together = bits(&world.attend(isa, &mut pool, start..end));
                let width = world.width();
                let use_amx = world.use_amx(isa, start..end);
                let wanted: Vec<u32> = (start..end)
                    .zip(use_amx)
                    .flat_map(|(row, use_amx)| {
                        let from = if use_amx { &reference_bits } else { &alone };
                        from[row * width..(row + 1) * width].to_vec()
                    })
                    .collect();
                assert!(
                    together == wanted,
                    "{isa}, {threads} threads, rows {start}..{end}: {plan:?}"
                );
                start = end;
            }
        }
    }
}

/// The bits of rows that use AMX; zeros for other rows.
#[cfg(target_arch = "x86_64")]
fn reference_bits(world: &AttentionFixture) -> Vec<u32> {
    let rows = 0..world.rows.len();
    let use_amx = world.use_amx(Isa::fastest(), rows.clone());
    let row_bits = |(row, use_amx)| {
        if use_amx {
            bits(&super::amx_reference::row(world, row))
        } else {
            vec![0; world.width()]
        }
    };
    rows.zip(use_amx).flat_map(row_bits).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn reference_bits(_: &AttentionFixture) -> Vec<u32> {
    Vec::new()
}

#[test]
fn batches_chunks_and_threads_change_no_bit() {
    let changes: [fn(&mut FixtureShape); 10] = [
        |_| {},
        |plan| plan.softcap = Some(4.0),
        |plan| plan.window = Some(11),
        |plan| plan.sinks = true,
        |plan| (plan.sinks, plan.window) = (true, Some(128)),
        |plan| (plan.window, plan.page_tokens) = (Some(515), 7),
        |plan| (plan.heads, plan.kv_heads, plan.head_dim) = (3, 1, 80),
        |plan| (plan.heads, plan.kv_heads) = (20, 1),
        |plan| plan.sees_later = true,
        |plan| (plan.window, plan.sees_later) = (Some(11), true),
    ];
    for change in changes {
        let plan = FixtureShape::of(&[0..40, 1030..1031, 530..533, 7..8, 505..520], change);
        check(&plan, &[]);
        check(&plan, &[1, 3, 17, 38, 41, 44]);
    }
}

/// One row with a long context on many threads is partitioned by KV splits and must equal the result of one
/// thread.
#[test]
fn kv_splits_of_long_contexts_change_no_bit() {
    for (window, one, all) in [(None, 8, 8), (Some(1300), 3, 4)] {
        let plan = FixtureShape::of(&[4000..4001, 2047..2050, 3..4], |plan| {
            (plan.heads, plan.kv_heads, plan.head_dim, plan.window) = (4, 1, 64, window);
            plan.sinks = window.is_some();
        });
        assert_eq!(
            AttentionFixture::new(&plan).choose_partition(7, 0..1),
            WorkPartition::PerSplit(one)
        );
        assert_eq!(
            AttentionFixture::new(&plan).choose_partition(7, 0..5),
            WorkPartition::PerSplit(all)
        );
        check(&plan, &[]);
        check(&plan, &[1, 2]);
    }
}

#[test]
fn partition_depends_on_the_work() {
    let world = |sequences: &[_]| AttentionFixture::new(&FixtureShape::of(sequences, |_| {}));
    assert_eq!(
        world(&[0..4]).choose_partition(4, 0..4),
        WorkPartition::CallerOnly,
        "not worth a meeting"
    );
    assert_eq!(
        world(&[0..200]).choose_partition(4, 0..200),
        WorkPartition::PerTile,
        "tiles enough"
    );
    assert_eq!(
        world(&[900..901]).choose_partition(1, 0..1),
        WorkPartition::CallerOnly,
        "nobody else"
    );
    assert_eq!(
        world(&[900..901]).choose_partition(4, 0..1),
        WorkPartition::PerSplit(2),
        "two heads for four workers"
    );
}

#[test]
fn non_finite_row_leaves_other_rows_unchanged() {
    for (isa, kind) in everywhere() {
        let plan = FixtureShape::of(&[500..520, 9..10], |plan| plan.kind = kind);
        let mut world = AttentionFixture::new(&plan);
        let clean = world.attend(isa, &mut Pool::new(2), 0..21);
        let width = world.width();
        world.q[5 * width..6 * width].fill(f32::NAN);
        world.q[7 * width..8 * width].fill(f32::INFINITY);
        let got = world.attend(isa, &mut Pool::new(2), 0..21);
        for row in (0..21).filter(|row| ![5, 7].contains(row)) {
            let part = row * width..(row + 1) * width;
            assert_eq!(bits(&got[part.clone()]), bits(&clean[part]), "{isa} {row}");
        }
        assert!(
            got[5 * width..6 * width].iter().all(|x| x.is_nan()),
            "{isa}"
        );
    }
}

/// Keys and values after a row's position may be anything.
#[test]
fn future_positions_are_invisible() {
    for (isa, kind) in everywhere() {
        let plan = FixtureShape::of(&[0..30], |plan| plan.kind = kind);
        let mut world = AttentionFixture::new(&plan);
        let before = world.attend(isa, &mut Pool::new(1), 0..30);
        let page = world.tables[1];
        let poison = vec![f32::NAN; 2 * 32];
        for slot in 4..16 {
            world.kv.store(LAYER, page, slot, &poison, &poison);
        }
        let after = world.attend(isa, &mut Pool::new(1), 0..30);
        let visible = 20 * world.width();
        assert_eq!(bits(&after[..visible]), bits(&before[..visible]), "{isa}");
        for (i, x) in after[visible..].iter().enumerate() {
            assert!(x.is_nan(), "{isa}: [{i}] of rows that see it: {x}");
        }
    }
}

/// Block tables without valid pages before every row's window: an access would panic.
#[test]
fn pages_before_the_window_are_not_touched() {
    for (isa, kind) in everywhere() {
        let plan = FixtureShape::of(&[2000..2010], |plan| {
            (plan.window, plan.kind) = (Some(100), kind);
        });
        let mut world = AttentionFixture::new(&plan);
        let wanted = bits(&world.attend(isa, &mut Pool::new(1), 0..10));
        let first_seen = (2001 - 100) / plan.page_tokens;
        world.tables[..first_seen].fill(u32::MAX);
        for threads in [1, 4] {
            let found = world.attend(isa, &mut Pool::new(threads), 0..10);
            assert_eq!(bits(&found), wanted, "{isa}, {kind}, {threads} threads");
        }
    }
}

#[test]
fn overflowing_keys_give_zeros_instead_of_nan() {
    // All scores are -inf, so the sum of weights is zero.
    for (isa, kind) in everywhere() {
        for rows in [3, 20] {
            let mut world =
                AttentionFixture::new(&FixtureShape::of(&[0..rows], |plan| plan.kind = kind));
            world.q.fill(f32::MAX);
            let low = vec![-1.0; 2 * 32];
            for at in 0..rows {
                let page = world.tables[at / 16];
                world.kv.store(LAYER, page, at % 16, &low, &low);
            }
            let out = world.attend(isa, &mut Pool::new(1), 0..rows);
            assert!(out.iter().all(|x| *x == 0.0), "{isa}, {rows} rows: {out:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn batch_cuts_change_no_bit(
        kv_heads in 1usize..4,
        group in 1usize..6,
        head_dim in (1usize..40).prop_map(|half| half * 2),
        page_tokens in 1usize..40,
        softcap in proptest::option::of(1.0f32..60.0),
        window in proptest::option::of(1usize..700),
        sinks: bool,
        sees_later: bool,
        sequences in proptest::collection::vec((0usize..1100, 1usize..20), 1..4),
        mut cuts in proptest::collection::vec(0usize..60, 0..4),
    ) {
        cuts.sort_unstable();
        let sequences = sequences.into_iter().map(|(first, rows)| first..first + rows).collect();
        let heads = kv_heads * group;
        let plan = FixtureShape { heads, kv_heads, head_dim, page_tokens, softcap, window, sees_later, sinks, sequences, ..FixtureShape::default() };
        check(&plan, &cuts);
    }
}
