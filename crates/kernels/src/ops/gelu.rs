//! The activation gelu by the error function, of towers.
//!
//! One implementation for all levels, in plain arithmetic that compilers vectorize; so all levels have the same bits.

/// Numerator of the error function's quotient, by rising powers of `x^2`, and denominator. Beyond 4 the function is 1 in f32.
/// Source: Eigen, `MathFunctionsImpl.h` (`generic_fast_erf_float`).
const NUMERATOR: [f32; 7] = [
    -1.609_603_4e-2,
    -2.954_6e-3,
    -7.349_906_3e-4,
    -5.692_506_3e-5,
    -2.101_024e-6,
    2.770_681_4e-8,
    -2.726_142_3e-10,
];
const DENOMINATOR: [f32; 5] = [
    -1.426_474e-2,
    -7.373_329_2e-3,
    -1.682_827e-3,
    -2.133_740_6e-4,
    -1.456_607_2e-5,
];
const ERF_MAX: f32 = 4.0;

/// `x = x * (1 + erf(x / sqrt(2))) / 2`.
pub fn gelu_erf_in_place(x: &mut [f32]) {
    for x in x {
        *x *= 0.5 * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

fn erf(x: f32) -> f32 {
    let x = x.clamp(-ERF_MAX, ERF_MAX);
    let square = x * x;
    let polynomial = |of: &[f32]| of.iter().rfold(0.0, |sum, factor| sum * square + factor);
    x * polynomial(&NUMERATOR) / polynomial(&DENOMINATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By its series, which converges in f64 for the arguments of the tests.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn gelu_by_the_error_function_is_its_definition() {
        for step in -500..=500 {
            let x = step as f32 / 100.0;
            let mut found = [x];
            gelu_erf_in_place(&mut found);
            let wide = f64::from(x);
            let wanted = wide * 0.5 * (1.0 + erf_by_series(wide / 2f64.sqrt()));
            assert!(
                (f64::from(found[0]) - wanted).abs() < 2e-6,
                "{x}: {found:?}, {wanted}"
            );
        }
        let mut far = [-50.0, 50.0, 0.0];
        gelu_erf_in_place(&mut far);
        assert!(far[0].abs() < 1e-5 && (far[1] - 50.0).abs() < 1e-4 && far[2] == 0.0);
    }
}
