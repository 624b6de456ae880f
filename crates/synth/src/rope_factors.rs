//! Divisors of the rope's frequencies of a synthetic model.

use super::spec::{RopeScaling, SynthSpec};
use weights::config::Architecture;

/// Divisors of the rope's frequencies, if the model has any.
pub(super) fn rope_factors(spec: &SynthSpec) -> Vec<(&'static str, Vec<f32>)> {
    if spec.architecture == Architecture::Gemma4 {
        return vec![("rope_freqs.weight", spec.proportional_factors())];
    }
    let dims = spec.rope.dims.unwrap_or(spec.head_dim);
    match spec.rope.scaling {
        RopeScaling::Llama3 {
            factor,
            original_context,
        } => {
            let factors = llama3_factors(spec.rope.base, dims, factor, original_context);
            vec![("rope_freqs.weight", factors)]
        }
        RopeScaling::Longrope { .. } => {
            let half = dims / 2;
            let rising = |from: f32, to: f32| {
                (0..half)
                    .map(|i| from + (to - from) * i as f32 / half as f32)
                    .collect()
            };
            vec![
                ("rope_factors_long.weight", rising(1.1, 24.0)),
                ("rope_factors_short.weight", rising(1.0, 2.0)),
            ]
        }
        _ => Vec::new(),
    }
}

/// Llama 3.1's rule (as in its `config.json`: low 1, high 4): wavelengths beyond the original context are
/// divided by `factor`, wavelengths below a quarter of the context are kept, wavelengths between are
/// interpolated.
fn llama3_factors(base: f32, dims: u32, factor: f32, original_context: u32) -> Vec<f32> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let (factor, context) = (f64::from(factor), f64::from(original_context));
    (0..dims / 2)
        .map(|i| {
            let exponent = f64::from(2 * i) / f64::from(dims);
            let wavelength = std::f64::consts::TAU * f64::from(base).powf(exponent);
            if wavelength < context / HIGH {
                1.0
            } else if wavelength > context / LOW {
                factor as f32
            } else {
                let smooth = (context / wavelength - LOW) / (HIGH - LOW);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            }
        })
        .collect()
}
