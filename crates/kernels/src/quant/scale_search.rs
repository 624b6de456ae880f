//! Search for the scale whose levels are closest to given weights.
//!
//! Levels spread from the smallest weight to the largest are wasted where a few weights lie far out. So
//! slightly wider and narrower spreads are tried; in each trial every weight takes its nearest level, the best
//! scale (and shift) for these levels follows from least squares, and the trial with the smallest error wins.
//! Weights with a large magnitude count more, since their errors are multiplied into larger products. The
//! method and the trial widths are those of ggml's `make_qkx2_quants` and `make_qx_quants` (`ggml-quants.c`).

/// Trials on either side of the even spread.
const TRIALS: i32 = 10;
/// Change of the spread from trial to trial, in levels.
const DELTA: f32 = 0.1;

/// Scale and downward shift for quants `0..=quant_max`, so that `scale * quant - shift` approximates the
/// weights. `extent` is the minimum and maximum of the weights and zero.
pub(super) fn scale_and_shift(quant_max: f32, extent: (f32, f32), weights: &[f32]) -> (f32, f32) {
    let (low, high) = extent;
    if high <= low {
        return (0.0, -low);
    }
    let even = ((high - low) / quant_max, low);
    let typical = root_mean_square(weights);
    let importance = |weight: f32| typical + weight.abs();
    let quant_value = |inverse: f32, low: f32, weight: f32| {
        round_ties_even((weight - low) * inverse).clamp(0.0, quant_max)
    };
    let error = |(scale, low): (f32, f32), inverse: f32, from: f32| -> f32 {
        let one = |&weight: &f32| {
            let off = scale * quant_value(inverse, from, weight) + low - weight;
            importance(weight) * off * off
        };
        weights.iter().map(one).sum()
    };
    let mut best = even;
    let mut least = error(even, 1.0 / even.0, low);
    for trial in -TRIALS..=TRIALS {
        let inverse = (quant_max + DELTA * trial as f32) / (high - low);
        let mut sums = RegressionSums::default();
        for &weight in weights {
            sums.add(
                importance(weight),
                quant_value(inverse, low, weight),
                weight,
            );
        }
        let Some(fitted) = sums.fit_line() else {
            continue;
        };
        let found = error(fitted, inverse, low);
        if found < least {
            (best, least) = (fitted, found);
        }
    }
    (best.0, -best.1)
}

/// The step for quants `-zero..zero`, so that `step * quant` approximates the weights. `even` maps the weight
/// with the largest magnitude to the level with the largest magnitude.
pub(super) fn fit_step(zero: f32, even: f32, weights: &[f32]) -> f32 {
    if even == 0.0 {
        return 0.0;
    }
    let mut best = (even, 0.0);
    for trial in -TRIALS..=TRIALS {
        let inverse = (zero + DELTA * trial as f32) / (zero * even);
        // With w the square of the weight, the smallest error has the largest (Σ w x c)² / Σ w c².
        let (mut along, mut square) = (0.0f32, 0.0f32);
        for &weight in weights {
            let quant_value = round_ties_even(weight * inverse).clamp(-zero, zero - 1.0);
            let importance = weight * weight;
            along += importance * weight * quant_value;
            square += importance * quant_value * quant_value;
        }
        if square > 0.0 && along * along > best.1 * square {
            best = (along / square, along * along / square);
        }
    }
    best.0
}

/// Weighted sums for the linear regression of weights on quants.
#[derive(Default)]
struct RegressionSums {
    importance: f32,
    quant_value: f32,
    code_code: f32,
    weight: f32,
    code_weight: f32,
}

impl RegressionSums {
    fn add(&mut self, importance: f32, quant_value: f32, weight: f32) {
        self.importance += importance;
        self.quant_value += importance * quant_value;
        self.code_code += importance * quant_value * quant_value;
        self.weight += importance * weight;
        self.code_weight += importance * quant_value * weight;
    }

    /// Scale, and the level of quant 0, which is never above zero.
    fn fit_line(&self) -> Option<(f32, f32)> {
        let spread = self.importance * self.code_code - self.quant_value * self.quant_value;
        if spread <= 0.0 {
            return None;
        }
        let scale = (self.importance * self.code_weight - self.weight * self.quant_value) / spread;
        let low = (self.code_code * self.weight - self.quant_value * self.code_weight) / spread;
        match low {
            low if low <= 0.0 => Some((scale, low)),
            _ => Some((self.code_weight / self.code_code, 0.0)),
        }
    }
}

fn root_mean_square(weights: &[f32]) -> f32 {
    let squares: f32 = weights.iter().map(|weight| weight * weight).sum();
    (squares / weights.len() as f32).sqrt()
}

/// Rounds to the nearest integer, ties to even, for magnitudes below four million: f32 has no fractions above
/// 2^23, so adding and subtracting that much rounds. (`round` is a function call on x86-64 without SSE 4.1.)
fn round_ties_even(number: f32) -> f32 {
    const NO_HALVES: f32 = 12_582_912.0;
    (number + NO_HALVES) - NO_HALVES
}
