//! ScaleKind whose levels come closest to given weights, by trying.
//!
//! Spreading the levels from the lowest weight to the highest wastes them where a few weights lie far
//! out. So the spread is tried a little wider and narrower; each time every weight takes its nearest
//! level, the scale (and shift) that suits these levels best follows from least squares, and the
//! trial with the least error is kept. Heavier weights count more, as what is lost in them is
//! multiplied into larger products. The idea, and how much wider and narrower, are those of ggml's
//! `make_qkx2_quants` and `make_qx_quants` (`ggml-quants.c`).

/// Trials to either side of the even spread.
const TRIALS: i32 = 10;
/// Levels that a trial is wider or narrower than the one before.
const DELTA: f32 = 0.1;

/// The scale and the shift downwards for quants `0..=quant_max`, such that `scale * quant_value - shift` comes
/// close to the weights. `extent` is the lowest and the highest of the weights and zero.
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

/// The step for quants `-zero..zero`, such that `step * quant_value` comes close to the weights. `even` puts
/// the weight farthest out on the level farthest out.
pub(super) fn fit_step(zero: f32, even: f32, weights: &[f32]) -> f32 {
    if even == 0.0 {
        return 0.0;
    }
    let mut best = (even, 0.0);
    for trial in -TRIALS..=TRIALS {
        let inverse = (zero + DELTA * trial as f32) / (zero * even);
        // With w the square of the weight: the least error has the largest (Σ w x c)² / Σ w c².
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

/// What least squares needs to put a line through quants and weights.
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

    /// Scale, and the level of quant_value 0, which is never above zero.
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

/// The nearest whole number, ties to even, of one below four million: there f32 has no halves above
/// 2^23, so adding and taking away that much rounds. (`round` is a call on x86-64 without SSE 4.1.)
fn round_ties_even(number: f32) -> f32 {
    const NO_HALVES: f32 = 12_582_912.0;
    (number + NO_HALVES) - NO_HALVES
}
