//! Rotary position embedding.
//!
//! Angles are `position * frequency`, computed in f64 and turned into sine and cosine before the
//! rounding to f32. ggml multiplies the angle up in f32 instead, which at position 100,000 is off by
//! some thousandths of a radian in the fastest dimensions; both agree to f32 at short positions.

#[cfg(test)]
mod tests;

use std::f64::consts::TAU;

/// Which two elements turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(2i, 2i + 1)`: llama in GGUF.
    Adjacent,
    /// `(i, i + dims / 2)`: NeoX; qwen, gemma, phi.
    Halves,
}

/// How YaRN mixes stretched and unstretched frequencies (arXiv 2309.00071, as ggml computes it).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How much of the mix is applied: 1 for YaRN, 0 for plain linear scaling.
    pub ext_factor: f32,
    /// Multiplied into sine and cosine, beside [`RopeSpec::magnitude`].
    pub attn_factor: f32,
    /// Dimensions that turn more often than this over the original context keep their frequency.
    pub beta_fast: f32,
    /// Dimensions that turn less often than this are fully stretched.
    pub beta_slow: f32,
    /// Positions the model was trained on before it was stretched.
    pub original_context: usize,
}

/// What a rope depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Elements of a head that turn; the rest pass through.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f32,
    /// Position is multiplied by this (linear scaling: 1 / factor).
    pub freq_scale: f32,
    /// Divides each frequency (llama 3's and phi 3's `rope_freqs`), `dims / 2` of them.
    pub factors: Option<Vec<f32>>,
    /// Multiplied into sine and cosine (attention factor of longrope / yarn).
    pub magnitude: f32,
    /// Which elements turn together.
    pub pairs: RopePairs,
    /// YaRN's mix of `freq_scale` and none; `None` scales every dimension alike.
    pub yarn: Option<Yarn>,
}

/// Precomputed frequencies.
pub struct Rope {
    pairs: RopePairs,
    /// Radians per position, `(dims / 2)`.
    frequencies: Vec<f64>,
    magnitude: f64,
}

impl Rope {
    /// Frequencies from the specification.
    ///
    /// # Panics
    /// If `dims` is odd, or there are factors but not `dims / 2` of them.
    #[expect(clippy::needless_pass_by_value, reason = "a specification is used up")]
    pub fn new(spec: RopeSpec) -> Self {
        assert!(spec.dims.is_multiple_of(2), "elements turn in pairs");
        let half = spec.dims / 2;
        if let Some(factors) = &spec.factors {
            assert_eq!(factors.len(), half, "one factor per pair");
        }
        Self {
            pairs: spec.pairs,
            frequencies: (0..half).map(|pair| frequency(&spec, pair)).collect(),
            magnitude: magnitude(&spec),
        }
    }

    /// Elements of a table: `dims`.
    pub fn table_len(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Sines and cosines of one position into `table`, `(dims / 2, 2)` as (cos, sin).
    ///
    /// # Panics
    /// If `table` has another length than [`Rope::table_len`].
    pub fn table(&self, position: usize, table: &mut [f32]) {
        assert_eq!(table.len(), self.table_len());
        for (turn, frequency) in table
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(&self.frequencies)
        {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            *turn = [(cos * self.magnitude) as f32, (sin * self.magnitude) as f32];
        }
    }

    /// Turns `x`, `(heads, head_dim)`, by a position's table.
    ///
    /// # Panics
    /// If `table` has another length than [`Rope::table_len`], or `head_dim` is less than that.
    pub fn apply(&self, table: &[f32], x: &mut [f32], head_dim: usize) {
        let dims = self.table_len();
        assert!(table.len() == dims && dims <= head_dim && x.len().is_multiple_of(head_dim));
        let turns = table.as_chunks::<2>().0;
        for head in x.chunks_exact_mut(head_dim) {
            let head = &mut head[..dims];
            match self.pairs {
                RopePairs::Adjacent => turn_adjacent(turns, head),
                RopePairs::Halves => turn_halves(turns, head),
            }
        }
    }
}

fn turn_adjacent(turns: &[[f32; 2]], head: &mut [f32]) {
    for ([cos, sin], pair) in turns.iter().zip(head.as_chunks_mut::<2>().0) {
        let [a, b] = *pair;
        *pair = [a * cos - b * sin, a * sin + b * cos];
    }
}

fn turn_halves(turns: &[[f32; 2]], head: &mut [f32]) {
    let (first, second) = head.split_at_mut(head.len() / 2);
    for (([cos, sin], a), b) in turns.iter().zip(first).zip(second) {
        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
    }
}

/// Radians per position of one pair.
fn frequency(spec: &RopeSpec, pair: usize) -> f64 {
    let exponent = -2.0 * pair as f64 / spec.dims as f64;
    let factor = spec
        .factors
        .as_ref()
        .map_or(1.0, |factors| f64::from(factors[pair]));
    let unscaled = f64::from(spec.theta).powf(exponent) / factor;
    let scaled = unscaled * f64::from(spec.freq_scale);
    let Some(yarn) = &spec.yarn else {
        return scaled;
    };
    let kept = ramp(spec, yarn, pair) * f64::from(yarn.ext_factor);
    scaled * (1.0 - kept) + unscaled * kept
}

/// How much of a pair's unscaled frequency YaRN keeps: 1 for fast pairs, 0 for slow ones.
fn ramp(spec: &RopeSpec, yarn: &Yarn, pair: usize) -> f64 {
    let dims = spec.dims as f64;
    let pair_with_turns = |turns: f32| {
        let context = yarn.original_context as f64;
        dims * (context / (f64::from(turns) * TAU)).ln() / (2.0 * f64::from(spec.theta).ln())
    };
    let low = pair_with_turns(yarn.beta_fast).floor().max(0.0);
    let high = pair_with_turns(yarn.beta_slow).ceil().min(dims - 1.0);
    1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

/// What sine and cosine are multiplied by: YaRN sharpens attention as it stretches.
fn magnitude(spec: &RopeSpec) -> f64 {
    let given = f64::from(spec.magnitude);
    spec.yarn.as_ref().map_or(given, |yarn| {
        let stretched = if yarn.ext_factor == 0.0 {
            1.0
        } else {
            1.0 - 0.1 * f64::from(spec.freq_scale).ln()
        };
        given * f64::from(yarn.attn_factor) * stretched
    })
}
