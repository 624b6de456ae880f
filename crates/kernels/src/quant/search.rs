//! Scales whose levels come closest to given weights, by trying.
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

/// The scale and the shift downwards for codes `0..=code_max`, such that `scale * code - shift` comes
/// close to the weights. `extent` is the lowest and the highest of the weights and zero.
pub(super) fn scale_and_shift(code_max: f32, extent: (f32, f32), weights: &[f32]) -> (f32, f32) {
    let (low, high) = extent;
    if high <= low {
        return (0.0, -low);
    }
    let even = ((high - low) / code_max, low);
    let typical = root_mean_square(weights);
    let heft = |weight: f32| typical + weight.abs();
    let code = |inverse: f32, low: f32, weight: f32| {
        nearest((weight - low) * inverse).clamp(0.0, code_max)
    };
    let error = |(scale, low): (f32, f32), inverse: f32, from: f32| -> f32 {
        let one = |&weight: &f32| {
            let off = scale * code(inverse, from, weight) + low - weight;
            heft(weight) * off * off
        };
        weights.iter().map(one).sum()
    };
    let mut best = even;
    let mut least = error(even, 1.0 / even.0, low);
    for trial in -TRIALS..=TRIALS {
        let inverse = (code_max + DELTA * trial as f32) / (high - low);
        let mut sums = Sums::default();
        for &weight in weights {
            sums.add(heft(weight), code(inverse, low, weight), weight);
        }
        let Some(fitted) = sums.line() else {
            continue;
        };
        let found = error(fitted, inverse, low);
        if found < least {
            (best, least) = (fitted, found);
        }
    }
    (best.0, -best.1)
}

/// The step for codes `-zero..zero`, such that `step * code` comes close to the weights. `even` puts
/// the weight farthest out on the level farthest out.
pub(super) fn step(zero: f32, even: f32, weights: &[f32]) -> f32 {
    if even == 0.0 {
        return 0.0;
    }
    let mut best = (even, 0.0);
    for trial in -TRIALS..=TRIALS {
        let inverse = (zero + DELTA * trial as f32) / (zero * even);
        // With w the square of the weight: the least error has the largest (Σ w x c)² / Σ w c².
        let (mut along, mut square) = (0.0f32, 0.0f32);
        for &weight in weights {
            let code = nearest(weight * inverse).clamp(-zero, zero - 1.0);
            let heft = weight * weight;
            along += heft * weight * code;
            square += heft * code * code;
        }
        if square > 0.0 && along * along > best.1 * square {
            best = (along / square, along * along / square);
        }
    }
    best.0
}

/// What least squares needs to put a line through codes and weights.
#[derive(Default)]
struct Sums {
    heft: f32,
    code: f32,
    code_code: f32,
    weight: f32,
    code_weight: f32,
}

impl Sums {
    fn add(&mut self, heft: f32, code: f32, weight: f32) {
        self.heft += heft;
        self.code += heft * code;
        self.code_code += heft * code * code;
        self.weight += heft * weight;
        self.code_weight += heft * code * weight;
    }

    /// Scale, and the level of code 0, which is never above zero.
    fn line(&self) -> Option<(f32, f32)> {
        let spread = self.heft * self.code_code - self.code * self.code;
        if spread <= 0.0 {
            return None;
        }
        let scale = (self.heft * self.code_weight - self.weight * self.code) / spread;
        let low = (self.code_code * self.weight - self.code * self.code_weight) / spread;
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
fn nearest(number: f32) -> f32 {
    const NO_HALVES: f32 = 12_582_912.0;
    (number + NO_HALVES) - NO_HALVES
}
