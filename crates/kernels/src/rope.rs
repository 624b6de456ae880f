//! Rotary position embedding (RoPE).
//!
//! Angles are `position * frequency`, computed in f64 and turned into sine and cosine before the rounding to
//! f32. ggml accumulates the angle in f32 instead, which at position 100,000 is off by some thousandths of a
//! radian in the fastest dimensions; both agree to f32 precision at short positions.

#[cfg(test)]
mod tests;

use std::f64::consts::TAU;

/// Pairing of the elements that rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(2i, 2i + 1)`: llama in GGUF.
    Adjacent,
    /// `(i, i + dims / 2)`: NeoX; qwen, gemma, phi.
    Halves,
}

/// YaRN's interpolation between scaled and unscaled frequencies (arXiv 2309.00071, as computed by ggml).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Weight of the interpolation: 1 for YaRN, 0 for plain linear scaling.
    pub ext_factor: f32,
    /// Multiplied into sine and cosine, beside [`RopeSpec::magnitude`].
    pub attn_factor: f32,
    /// Dimensions with more rotations than this over the original context keep their frequency.
    pub beta_fast: f32,
    /// Dimensions with fewer rotations than this are fully scaled.
    pub beta_slow: f32,
    /// Whether the ramp between these bounds begins and ends at whole pairs, as ggml computes it.
    pub truncated: bool,
    /// Context length of the training before the extension.
    pub original_context: usize,
}

/// Parameters of a rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Elements of a head that are rotated; the rest pass through.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f32,
    /// Multiplied with the position (linear scaling: 1 / factor).
    pub freq_scale: f32,
    /// Divides each frequency (llama 3's and phi 3's `rope_freqs`), `dims / 2` of them.
    pub factors: Option<Vec<f32>>,
    /// Multiplied into sine and cosine (attention factor of longrope / yarn).
    pub magnitude: f32,
    /// Pairing of the elements.
    pub pairs: RopePairs,
    /// YaRN's interpolation; `None` scales all dimensions alike.
    pub yarn: Option<Yarn>,
}

/// Precomputed frequencies of a rotary embedding.
pub struct Rope {
    pairs: RopePairs,
    /// Radians per position, `(dims / 2)`.
    frequencies: Vec<f64>,
    magnitude: f64,
}

impl Rope {
    /// Computes the frequencies.
    ///
    /// # Panics
    /// If `dims` is odd, or `factors` does not have `dims / 2` elements.
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

    /// Length of a table: `dims`.
    pub fn table_len(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Writes the cosines and sines of one position into `table`, `(dims / 2, 2)` as (cos, sin).
    ///
    /// # Panics
    /// If `table` is not [`Rope::table_len`] long.
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

    /// Rotates `x`, `(heads, head_dim)`, by a position's table.
    ///
    /// # Panics
    /// If `table` is not [`Rope::table_len`] long, or `head_dim` is shorter than the table.
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

/// The share of a pair's unscaled frequency that YaRN keeps: 1 for fast pairs, 0 for slow ones.
fn ramp(spec: &RopeSpec, yarn: &Yarn, pair: usize) -> f64 {
    let dims = spec.dims as f64;
    let pair_with_turns = |turns: f32| {
        let context = yarn.original_context as f64;
        dims * (context / (f64::from(turns) * TAU)).ln() / (2.0 * f64::from(spec.theta).ln())
    };
    let bounds = [yarn.beta_fast, yarn.beta_slow].map(pair_with_turns);
    let [low, high] = if yarn.truncated {
        [bounds[0].floor(), bounds[1].ceil()]
    } else {
        bounds
    };
    let (low, high) = (low.max(0.0), high.min(dims - 1.0));
    1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

/// Factor of sine and cosine: YaRN sharpens attention with the scaling factor.
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
