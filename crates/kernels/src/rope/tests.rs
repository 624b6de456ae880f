use super::{Rope, RopePairs, RopeSpec, Yarn};

fn plain(dims: usize, pairs: RopePairs) -> RopeSpec {
    RopeSpec {
        dims,
        theta: 10_000.0,
        freq_scale: 1.0,
        factors: None,
        magnitude: 1.0,
        pairs,
        yarn: None,
    }
}

fn turned(spec: RopeSpec, position: usize, x: &[f32], head_dim: usize) -> Vec<f32> {
    let rope = Rope::new(spec);
    let mut table = vec![0.0; rope.table_len()];
    rope.table(position, &mut table);
    let mut x = x.to_vec();
    rope.apply(&table, &mut x, head_dim);
    x
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} {b}");
    }
}

#[test]
fn position_zero_changes_nothing() {
    let x: Vec<f32> = (0..16).map(|i| i as f32).collect();
    for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
        assert_eq!(turned(plain(8, pairs), 0, &x, 8), x);
    }
}

#[test]
fn pairs_rotate_by_position_times_frequency() {
    // theta 10000, 4 dims: frequencies 1 and 0.01. The fifth and sixth elements pass through.
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let (a, b) = (3.0f32, 0.03f32);
    let adjacent = [
        a.cos() - 2.0 * a.sin(),
        a.sin() + 2.0 * a.cos(),
        3.0 * b.cos() - 4.0 * b.sin(),
        3.0 * b.sin() + 4.0 * b.cos(),
        5.0,
        6.0,
    ];
    close(&turned(plain(4, RopePairs::Adjacent), 3, &x, 6), &adjacent);
    let halves = [
        a.cos() - 3.0 * a.sin(),
        2.0 * b.cos() - 4.0 * b.sin(),
        a.sin() + 3.0 * a.cos(),
        2.0 * b.sin() + 4.0 * b.cos(),
        5.0,
        6.0,
    ];
    close(&turned(plain(4, RopePairs::Halves), 3, &x, 6), &halves);
}

#[test]
fn scale_factors_and_magnitude_apply() {
    let x = [1.0, 0.0, 1.0, 0.0];
    let spec = RopeSpec {
        freq_scale: 0.25,
        factors: Some(vec![2.0, 0.5]),
        magnitude: 3.0,
        ..plain(4, RopePairs::Adjacent)
    };
    let (a, b) = (8.0f32 * 0.25 / 2.0, 8.0f32 * 0.01 * 0.25 / 0.5);
    let wanted = [3.0 * a.cos(), 3.0 * a.sin(), 3.0 * b.cos(), 3.0 * b.sin()];
    close(&turned(spec, 8, &x, 4), &wanted);
}

#[test]
fn far_positions_keep_their_angle() {
    let position = 1_000_003;
    let turned = turned(plain(2, RopePairs::Adjacent), position, &[1.0, 0.0], 2);
    let angle = position as f64;
    close(&turned, &[angle.cos() as f32, angle.sin() as f32]);
}

/// Values computed independently with ggml's formula: dims 8, theta 10000, scale 1/4, context 4096, betas 32
/// and 1: the ramp begins at pair floor(1.31) = 1 and ends at ceil(2.81) = 3.
#[test]
fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
    let yarn = Yarn {
        ext_factor: 1.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncated: true,
        original_context: 4096,
    };
    let spec = RopeSpec {
        freq_scale: 0.25,
        yarn: Some(yarn),
        ..plain(8, RopePairs::Adjacent)
    };
    let rope = Rope::new(spec.clone());
    let wanted = [1.0, 0.1, 0.01 * (0.25 * 0.5 + 0.5), 0.001 * 0.25];
    for (got, wanted) in rope.frequencies.iter().zip(wanted) {
        assert!(
            (got - wanted).abs() < 1e-9 * wanted.max(1e-3),
            "{got} {wanted}"
        );
    }
    assert!((rope.magnitude - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-7);

    // 8 ln(4096 / (32 * 2 pi)) / (2 ln(10000)) and 8 ln(4096 / (2 pi)) / (2 ln(10000)).
    let between = Rope::new(RopeSpec {
        yarn: Some(Yarn {
            truncated: false,
            ..yarn
        }),
        ..spec.clone()
    });
    let kept = 1.0 - (2.0 - 1.309_030_1) / (2.814_180_1 - 1.309_030_1);
    let wanted = 0.01 * (0.25 * (1.0 - kept) + kept);
    assert!(
        (between.frequencies[2] - wanted).abs() < 1e-8,
        "{}",
        between.frequencies[2]
    );

    let off = Yarn {
        ext_factor: 0.0,
        attn_factor: 2.0,
        ..yarn
    };
    let linear = Rope::new(RopeSpec {
        yarn: Some(off),
        ..spec.clone()
    });
    let plain = Rope::new(RopeSpec { yarn: None, ..spec });
    assert_eq!(linear.frequencies, plain.frequencies);
    assert!((linear.magnitude - 2.0).abs() < 1e-12);
}

#[test]
#[should_panic(expected = "one factor per pair")]
fn factors_of_another_length_are_rejected() {
    Rope::new(RopeSpec {
        factors: Some(vec![1.0]),
        ..plain(4, RopePairs::Halves)
    });
}
