//! Rotary position embedding. (Stub.)

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
    _spec: RopeSpec,
}

impl Rope {
    /// Frequencies from the specification.
    pub fn new(_spec: RopeSpec) -> Self {
        todo!()
    }
    /// Sines and cosines of one position into `table`, `(dims / 2, 2)` as (cos, sin).
    pub fn table(&self, _position: usize, _table: &mut [f32]) {
        todo!()
    }
    /// Turns `x`, `(heads, head_dim)`, by a position's table.
    pub fn apply(&self, _table: &[f32], _x: &mut [f32], _head_dim: usize) {
        todo!()
    }
}
