//! Sampling parameters that a model's publisher recommends: `general.sampling.*` of a GGUF, `generation_config.json` beside
//! safetensors, or the parameters of a model of Ollama's. A value that no request may have is left out.

use server::{SamplingDefaults, SamplingParameter};
use std::path::Path;
use weights::gguf::{Gguf, Value};

use SamplingParameter::{
    FrequencyPenalty, MinP, PenaltyWindow, PresencePenalty, RepetitionPenalty, Temperature, TopK,
    TopP,
};

/// GGUF's names, behind `general.sampling.`
const OF_GGUF: [(&str, SamplingParameter); 6] = [
    ("temp", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("penalty_repeat", RepetitionPenalty),
    ("penalty_last_n", PenaltyWindow),
];
/// Names of `generation_config.json`. `do_sample` has no effect, as in vLLM and llama.cpp.
const OF_SAFETENSORS: [(&str, SamplingParameter); 5] = [
    ("temperature", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("repetition_penalty", RepetitionPenalty),
];
const OF_OLLAMA: [(&str, SamplingParameter); 8] = [
    ("temperature", Temperature),
    ("top_k", TopK),
    ("top_p", TopP),
    ("min_p", MinP),
    ("repeat_penalty", RepetitionPenalty),
    ("repeat_last_n", PenaltyWindow),
    ("presence_penalty", PresencePenalty),
    ("frequency_penalty", FrequencyPenalty),
];

/// The recommendation in a GGUF's metadata.
pub(super) fn of_gguf(gguf: &Gguf) -> SamplingDefaults {
    #[expect(clippy::cast_precision_loss, reason = "larger counts are left out")]
    let number = |value: Value<'_>| match value {
        Value::F32(number) => Some(f64::from(number)),
        Value::F64(number) => Some(number),
        integer => integer.integer().map(|number| number as f64),
    };
    let value = |name: &str| {
        gguf.get(&format!("general.sampling.{name}"))
            .and_then(number)
    };
    recommended("general.sampling", &OF_GGUF, value)
}

/// The recommendation in `generation_config.json`.
pub(super) fn of_generation_config(path: &Path, config: &serde_json::Value) -> SamplingDefaults {
    let origin = path.display().to_string();
    recommended(&origin, &OF_SAFETENSORS, |name| config[name].as_f64())
}

/// The recommendation in the parameters of a model of Ollama's.
pub(crate) fn of_ollama(path: &Path, parameters: &serde_json::Value) -> SamplingDefaults {
    let origin = path.display().to_string();
    recommended(&origin, &OF_OLLAMA, |name| parameters[name].as_f64())
}

fn recommended(
    origin: &str,
    names: &[(&str, SamplingParameter)],
    value: impl Fn(&str) -> Option<f64>,
) -> SamplingDefaults {
    let mut found = SamplingDefaults::default();
    for &(name, parameter) in names {
        let Some(value) = value(name) else { continue };
        if let Err(why) = found.set(parameter, value) {
            tracing::warn!("{origin}: {name} {why}: the recommendation is left out");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weights::gguf::GgufWriter;

    #[test]
    fn recommendation_of_a_gguf_is_read_in_every_type() {
        let mut writer = GgufWriter::new();
        writer
            .f32("general.sampling.temp", 0.6)
            .value("general.sampling.top_p", Value::F64(0.9))
            .value("general.sampling.top_k", Value::I32(64))
            .u32("general.sampling.penalty_last_n", 128)
            .f32("general.sampling.penalty_repeat", -1.0)
            .str("general.sampling.min_p", "0.1");
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).expect("a header");
        let found = of_gguf(&Gguf::from_bytes(bytes).expect("a file"));
        let rows: Vec<_> = found.named_values().collect();
        let want = [
            ("temperature", "0.6"),
            ("top_k", "64"),
            ("top_p", "0.9"),
            ("repeat_last_n", "128"),
        ];
        assert_eq!(rows, want.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn invalid_recommendation_is_left_out() {
        let config = json!({
            "do_sample": false, "temperature": 0.6, "top_k": 20, "top_p": 1.5, "min_p": "0.1",
            "repetition_penalty": null,
        });
        let found = of_generation_config(Path::new("g.json"), &config);
        let want = SamplingDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            ..SamplingDefaults::default()
        };
        assert_eq!(found, want);
        let parameters = json!({"stop": ["<|im_end|>"], "temperature": 1, "repeat_penalty": 1.5});
        let found = of_ollama(Path::new("p"), &parameters);
        let numbers = (found.temperature, found.repetition_penalty, found.top_k);
        assert_eq!(numbers, (Some(1.0), Some(1.5), None));
    }
}
