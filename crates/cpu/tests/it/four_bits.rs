//! Keys and values in 4 bits: heads are rotated before they are stored, and what attention computes is rotated back.
//!
//! Promise (Arithmetic): keys and values that are stored in 4 bits are rotated together with the queries, and the
//! result of attention is rotated back.
//! Also held by `kernels/src/ops.rs`, `cpu/src/decoder/rotation.rs`.

use crate::support::{ids, load, logits};
use model::Forward;

/// One model for each way to attention: heads of one width, heads that are a power of two and a rest, layers that read the
/// keys of others, latents.
const MODELS: [&str; 4] = [
    "tiny-llama",
    "tiny-llama head_dim=48",
    "tiny-gemma4",
    "tiny-deepseek2",
];

/// Cosine of logits with keys and values of 4 bits to those with f16, over all positions.
fn cosine(model: &str) -> f64 {
    let of = |kv: &str| {
        let mut model = load(&format!("x preset={model} mix=F32 kv={kv}"), 2);
        let vocab = model.dims().vocab;
        logits(&mut model, &ids(7, 96, vocab), 0).concat()
    };
    let (exact, four) = (of("f16"), of("q4_0"));
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    dot(&exact, &four) / (dot(&exact, &exact) * dot(&four, &four)).sqrt()
}

#[test]
fn logits_of_4_bits_are_near_those_of_f16() {
    for model in MODELS {
        let cosine = cosine(model);
        // Random weights: 0.84 to 0.98. With queries or results that are not rotated: -0.01 to 0.5.
        assert!(cosine > 0.7, "{model}: {cosine}");
    }
}
