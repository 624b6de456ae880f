//! All levels against f64 formulas, and bit-equality where it is guaranteed.

use super::{
    add_assign, add_scaled, clamped_swiglu_mul, exp_shifted, gelu_mul, quick_gelu_in_place,
    rms_norm, rms_norm_in_place, scale, silu_mul, softcap, squared_relu_mul,
};
use crate::Isa;
use proptest::prelude::*;

/// Lengths around the vector widths.
const LENGTHS: [usize; 12] = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 200, 2048];

/// Distance in units in the last place of `wanted`, as f32.
fn ulps(got: f32, wanted: f64) -> f64 {
    let rounded = wanted as f32;
    if f64::from(rounded).is_infinite() {
        return if got == rounded { 0.0 } else { f64::INFINITY };
    }
    if got == rounded || (got.is_nan() && rounded.is_nan()) {
        return 0.0;
    }
    let unit = f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
    (f64::from(got) - wanted).abs() / unit
}

fn noise(len: usize, scale: f32) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * scale)
        .collect()
}

/// Runs an element-wise operation on all levels and bounds its distance from the f64 formula.
fn check(
    bound_ulps: f64,
    values: &[f32],
    run: impl Fn(Isa, &mut [f32]),
    formula: impl Fn(f64) -> f64,
) {
    for isa in Isa::available() {
        let mut x = values.to_vec();
        run(isa, &mut x);
        for (got, from) in x.iter().zip(values) {
            let wanted = formula(f64::from(*from));
            let far = ulps(*got, wanted);
            assert!(
                far <= bound_ulps,
                "{isa}: f({from}) = {got}, not {wanted}: {far} ULP"
            );
        }
        // An element's result depends neither on its index nor on the length.
        for start in [1, 5, values.len() / 2] {
            let mut part = values[start..].to_vec();
            run(isa, &mut part);
            for (a, b) in part.iter().zip(&x[start..]) {
                assert_eq!(a.to_bits(), b.to_bits(), "{isa}");
            }
        }
    }
}

/// Values of all magnitudes between `-max` and `max`, denser near zero, and zero itself.
fn spread(max: f32) -> Vec<f32> {
    let mut values = vec![0.0, max, -max];
    for i in 0..20_000 {
        let x = max * (0.9995f32).powi(i) * if i % 2 == 0 { 1.0 } else { -1.0 };
        values.push(x);
    }
    values.extend(noise(20_011, max));
    values
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod functions {
    //! The functions that vector paths are built from.
    #![allow(unsafe_code)] // As in `arch`.

    use super::{check, spread};
    use crate::arch::lanes::{Lanes, exp, tanh};
    use crate::dispatch::by_isa;

    fn scalar_exp(x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = x.exp());
    }

    fn scalar_tanh(x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = x.tanh());
    }

    macro_rules! each {
        ($name:ident, $function:ident) => {
            /// # Safety
            /// As [`Lanes`].
            #[inline(always)]
            unsafe fn $name<L: Lanes>(x: &mut [f32]) {
                for x in x {
                    // SAFETY: the slice is one element long.
                    unsafe { $function(L::load_part(x, 1)).store_part(x, 1) }
                }
            }
        };
    }
    each!(vector_exp, exp);
    each!(vector_tanh, tanh);
    by_isa! { scalar_exp, vector_exp; fn exps(x: &mut [f32]) }
    by_isa! { scalar_tanh, vector_tanh; fn tanhs(x: &mut [f32]) }

    #[test]
    fn exp_is_within_its_bound() {
        let values: Vec<f32> = spread(110.0).into_iter().chain(spread(88.8)).collect();
        check(1.5, &values, exps, f64::exp);
        for isa in crate::Isa::available() {
            let mut x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -1e30, 1e30];
            exps(isa, &mut x);
            assert_eq!(x[..2], [0.0, f32::INFINITY], "{isa}");
            assert!(x[2].is_nan(), "{isa}");
            assert_eq!(x[3..], [1.0, 0.0, f32::INFINITY], "{isa}");
        }
    }

    #[test]
    fn tanh_is_within_its_bound() {
        check(3.0, &spread(12.0), tanhs, f64::tanh);
        check(3.0, &spread(0.7), tanhs, f64::tanh);
    }
}

#[test]
fn silu_is_within_5_ulp() {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let ones = vec![1.0; 50_000];
    check(
        5.0,
        &spread(80.0),
        |isa, x| silu_mul(isa, x, &ones[..x.len()]),
        silu,
    );
}

#[test]
fn clamped_swiglu_is_within_its_bound() {
    let swiglu = |x: f64| {
        let x = x.min(7.0);
        x / (1.0 + (-f64::from(1.702f32) * x).exp())
    };
    let zeros = vec![0.0; 50_000];
    // The argument of the exponential is rounded, so that the error grows with the argument.
    let run = |isa, x: &mut [f32]| clamped_swiglu_mul(isa, x, &zeros[..x.len()]);
    check(60.0, &spread(20.0), run, swiglu);
    for isa in Isa::available() {
        let ups = [-9.0, -7.0, -2.5, 0.0, 6.0, 7.0, 7.5, 1e30];
        let (mut one, mut all) = ([3.0; 8], [3.0; 8]);
        clamped_swiglu_mul(isa, &mut one, &[0.0; 8]);
        clamped_swiglu_mul(isa, &mut all, &ups);
        let factors = [-6.0, -6.0, -1.5, 1.0, 7.0, 8.0, 8.0, 8.0];
        for ((one, all), factor) in one.iter().zip(&all).zip(factors) {
            assert_eq!(one * factor, *all, "{isa}");
        }
        let mut x = [f32::INFINITY, f32::NAN, 1.0, -1e30];
        clamped_swiglu_mul(isa, &mut x, &[0.0, 0.0, f32::NAN, 0.0]);
        assert!(
            (6.99..7.0).contains(&x[0]) && x[1].is_nan() && x[2].is_nan(),
            "{isa}: {x:?}"
        );
        assert_eq!(x[3], 0.0, "{isa}");
    }
}

/// Quick-gelu of towers is within its bound at all levels, with the same bits at all levels with vectors.
#[test]
fn quick_gelu_is_within_its_bound() {
    // The argument of the exponential is rounded, so that the error grows with the argument.
    let formula = |x: f64| x / (1.0 + (-f64::from(1.702f32) * x).exp());
    check(60.0, &spread(20.0), quick_gelu_in_place, formula);
    let run = |isa| {
        let mut x = spread(60.0);
        quick_gelu_in_place(isa, &mut x);
        x.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    let all: Vec<_> = vector_levels().map(run).collect();
    assert!(all.iter().all(|found| *found == all[0]));
    for isa in Isa::available() {
        let mut x = [f32::INFINITY, f32::NAN, -1e30, 0.0];
        quick_gelu_in_place(isa, &mut x);
        assert_eq!(x[0], f32::INFINITY, "{isa}");
        assert!(x[1].is_nan(), "{isa}");
        assert_eq!(x[2..], [0.0, 0.0], "{isa}");
    }
}

#[test]
fn squared_relu_is_exact_and_hides_no_nan() {
    let ones = vec![1.0; 50_000];
    let run = |isa, x: &mut [f32]| squared_relu_mul(isa, x, &ones[..x.len()]);
    check(0.5, &spread(20.0), run, |x| x.max(0.0).powi(2));
    for isa in Isa::available() {
        let mut x = [f32::NAN, -1.0, 3.0, f32::INFINITY, f32::NEG_INFINITY, -0.0];
        squared_relu_mul(isa, &mut x, &[1.0, 1.0, -0.5, 1.0, 1.0, 1.0]);
        assert!(x[0].is_nan(), "{isa}");
        assert_eq!(x[1..], [0.0, -4.5, f32::INFINITY, 0.0, 0.0], "{isa}");
    }
}

#[test]
fn gelu_is_within_its_bound() {
    // The argument of e^u is rounded, so the relative error grows with |u|: bound by the value's size.
    let gelu =
        |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
    let ones = vec![1.0; 50_000];
    for isa in Isa::available() {
        let values = spread(12.0);
        let mut x = values.clone();
        gelu_mul(isa, &mut x, &ones[..values.len()]);
        for (got, from) in x.iter().zip(&values) {
            let wanted = gelu(f64::from(*from));
            let bound = 4e-7 * wanted.abs() * (1.0 + f64::from(from.abs()).powi(3)) + 1e-12;
            assert!(
                (f64::from(*got) - wanted).abs() <= bound,
                "{isa}: gelu({from}) = {got}, not {wanted}"
            );
        }
    }
}

#[test]
fn softcap_is_within_5_ulp() {
    for cap in [30.0f32, 50.0] {
        let formula = |x: f64| f64::from(cap) * (x / f64::from(cap)).tanh();
        check(5.0, &spread(400.0), |isa, x| softcap(isa, x, cap), formula);
    }
}

#[test]
fn scale_and_up_multiply_exactly() {
    check(
        0.5,
        &spread(3.0),
        |isa, x| scale(isa, x, 0.3),
        |x| x * f64::from(0.3f32),
    );
    for isa in Isa::available() {
        let (mut one, mut many) = (noise(100, 4.0), noise(100, 4.0));
        silu_mul(isa, &mut one, &[1.0; 100]);
        silu_mul(isa, &mut many, &noise(100, 3.0));
        for ((one, many), up) in one.iter().zip(&many).zip(noise(100, 3.0)) {
            assert_eq!(one * up, *many, "{isa}");
        }
    }
}

#[test]
fn extreme_scores_give_defined_results() {
    let values = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e30,
        -1e30,
        -0.0,
        1e-40,
    ];
    for isa in Isa::available() {
        let mut x = values;
        softcap(isa, &mut x, 30.0);
        assert_eq!(x[..2], [30.0, -30.0], "{isa}");
        assert!(x[2].is_nan(), "{isa}");
        assert_eq!(x[3..5], [30.0, -30.0], "{isa}");
        let mut x = values;
        silu_mul(isa, &mut x, &[1.0; 7]);
        assert_eq!(x[0], f32::INFINITY, "{isa}");
        assert!(x[2].is_nan(), "{isa}");
        assert_eq!((x[3], x[4]), (1e30, -0.0), "{isa}");
    }
}

#[test]
fn rms_norm_matches_the_f64_formula() {
    for isa in Isa::available() {
        for len in LENGTHS {
            let (x, weight) = (noise(len, 5.0), noise(len, 2.0));
            let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            let factor = 1.0 / (square / len as f64 + 1e-5).sqrt();
            let mut out = vec![9.0; len];
            rms_norm(isa, &x, &weight, 1e-5, &mut out);
            for ((got, x), weight) in out.iter().zip(&x).zip(&weight) {
                let wanted = f64::from(*x) * factor * f64::from(*weight);
                assert!(
                    (f64::from(*got) - wanted).abs() <= 2e-6 * wanted.abs(),
                    "{isa} {len}"
                );
            }
            let mut place = x.clone();
            rms_norm_in_place(isa, &mut place, &weight, 1e-5);
            assert_eq!(place, out, "{isa} {len}");
        }
    }
}

#[test]
fn add_is_exact() {
    for isa in Isa::available() {
        for len in LENGTHS {
            let (mut x, y) = (noise(len, 5.0), noise(len, 3.0));
            let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            add_assign(isa, &mut x, &y);
            assert_eq!(x, wanted, "{isa}");
        }
    }
}

#[test]
#[should_panic]
fn different_lengths_are_rejected() {
    add_assign(Isa::best(), &mut [0.0; 4], &[0.0; 3]);
}

/// Levels with vectors, without tiles.
fn vector_levels() -> impl Iterator<Item = Isa> {
    Isa::available().filter(|isa| isa.name() != "scalar" && isa.name() != "amx")
}

/// Promise (Arithmetic): AVX2, AVX-VNNI and AVX-512 give the same bits in kernels and whole models. NEON, with
/// dotprod and i8mm too, gives them in kernels; whole models have not run there yet. The scalar level gives them in
/// matmul, and is close elsewhere.
/// Also held by `kernels/src/matmul`, `kernels/src/attention`, `cpu/tests/it/invariance.rs ::
/// vector_levels_give_equal_bits`.
#[test]
fn vector_levels_give_equal_bits() {
    // FNV-1a of all bits. No test runs on two architectures at once, so the sum of one is written down for the other.
    const OF_ALL_ARCHITECTURES: u64 = 0xf348_223e_4d9d_ff7b;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for len in (1..200).chain([256, 576, 1000, 4096]) {
        let (x, up) = (noise(len, 3.0), noise(len + 1, 2.0));
        let run = |isa| {
            let mut y = x.clone();
            silu_mul(isa, &mut y, &up[..len]);
            clamped_swiglu_mul(isa, &mut y, &up[..len]);
            squared_relu_mul(isa, &mut y, &up[..len]);
            gelu_mul(isa, &mut y, &up[1..]);
            softcap(isa, &mut y, 20.0);
            let mut out = vec![0.0; len];
            rms_norm(isa, &y, &up[..len], 1e-5, &mut out);
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let mut all = vector_levels().map(|isa| (isa, run(isa)));
        let Some((_, wanted)) = all.next() else {
            return;
        };
        for (isa, found) in all {
            assert_eq!(found, wanted, "{isa}, {len} elements");
        }
        for bits in wanted {
            hash = (hash ^ u64::from(bits)).wrapping_mul(0x100_0000_01b3);
        }
    }
    assert_eq!(hash, OF_ALL_ARCHITECTURES, "{hash:#x}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn levels_agree(x in proptest::collection::vec(-50.0f32..50.0, 1..100)) {
        let up = noise(x.len(), 2.0);
        let run = |isa| {
            let mut y = x.clone();
            silu_mul(isa, &mut y, &up);
            clamped_swiglu_mul(isa, &mut y, &up);
            softcap(isa, &mut y, 20.0);
            gelu_mul(isa, &mut y, &up);
            let mut out = vec![0.0; x.len()];
            rms_norm(isa, &y, &up, 1e-3, &mut out);
            out
        };
        let wanted = run(Isa::scalar());
        let most = wanted.iter().fold(0.0f32, |a, b| a.max(b.abs()));
        for isa in Isa::available() {
            for (a, b) in run(isa).iter().zip(&wanted) {
                prop_assert!((a - b).abs() <= 1e-5 * most.max(1.0), "{} {} {}", isa, a, b);
            }
        }
    }
}

#[test]
fn exp_is_that_of_the_difference() {
    let values: Vec<f32> = spread(80.0).into_iter().filter(|x| *x <= 3.0).collect();
    let run = |isa, x: &mut [f32]| exp_shifted(isa, x, 3.0);
    check(2.0, &values, run, |x| f64::from(x as f32 - 3.0).exp());
}

#[test]
fn scaled_addition_rounds_twice_at_every_level() {
    for len in LENGTHS {
        let (x, y) = (noise(len, 3.0), noise(len, 7.0));
        for isa in Isa::available() {
            let mut found = x.clone();
            add_scaled(isa, &mut found, &y, 0.37);
            for ((found, x), y) in found.iter().zip(&x).zip(&y) {
                assert_eq!(found.to_bits(), (x + y * 0.37).to_bits(), "{isa}");
            }
        }
    }
}
