//! The encoding of requests in records: prepared prompts, from which another process restores them, control updates,
//! and types without an encoding of their own.

use crate::images::DescriptionUsage;
use engine::{DryBreakers, RequestUpdate, SamplingParams};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Range;

/// A prepared prompt without the parts that follow from the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// Ids of the prompt.
    pub ids: Vec<u32>,
    /// Whether the answer's first token begins a text.
    #[serde(default)]
    pub at_text_start: bool,
    /// The prompt's text, emitted before the answer (`echo`).
    #[serde(default)]
    pub echo_text: Option<String>,
    /// The rendered conversation, from which the parsing of the answer follows; `None`: all text is content.
    #[serde(default)]
    pub text: Option<String>,
    /// Tool definitions in OpenAI's shape.
    #[serde(default, with = "verbatim::list")]
    pub tools: Vec<Value>,
    /// Rows of images among the ids, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRunRecord>,
    /// Work of the model that described images of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described: Option<Box<DescriptionUsage>>,
}

/// A run of rows of an image in a prepared prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRunRecord {
    /// Number of the image among those of the request.
    pub image: usize,
    /// Number of the run among those of the image.
    pub run: usize,
    /// Rows of the prompt.
    pub rows: Range<usize>,
    /// Rows and columns of the grid that the run is.
    pub grid: (u32, u32),
    /// Names the rows, in hexadecimal digits: another key means another image, encoder or preparation.
    pub key: String,
}

/// The encoding of [`RequestUpdate`]: `#[serde(with = "UpdateFields")]`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestUpdate", default = "RequestUpdate::default")]
pub struct UpdateFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inject: Vec<u32>,
}

/// The encoding of [`SamplingParams`]. Absent fields have the engine's defaults.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SamplingParams", default = "SamplingParams::default")]
pub(crate) struct SamplingFields {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    penalty_window: u32,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: u32,
    dry_window: u32,
    /// From `dry_sequence_breakers`, when the request is submitted.
    #[serde(skip)]
    dry_breakers: DryBreakers,
    xtc_probability: f32,
    xtc_threshold: f32,
    logit_bias: Vec<(u32, f32)>,
    seed: u64,
    min_tokens: u32,
    ignore_eos: bool,
    answered: u32,
    logprobs: bool,
    top_logprobs: u32,
}

/// The field that a prompt came in, as one of the names that parsers use.
pub(crate) mod prompt_field {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    const NAMES: [&str; 3] = ["messages", "prompt", "input"];

    pub(crate) fn serialize<S: Serializer>(
        field: &&'static str,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        field.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static str, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = NAMES.into_iter().find(|known| *known == name);
        known.ok_or_else(|| D::Error::custom(format!("{name:?} is no field of a prompt")))
    }
}

/// Shared text.
pub(crate) mod shared_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(
        text: &Arc<str>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        str::serialize(text, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Into::into)
    }

    /// Shared text that may be absent.
    pub(crate) mod option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};
        use std::sync::Arc;

        #[expect(clippy::ref_option, reason = "the signature is serde's")]
        pub(crate) fn serialize<S: Serializer>(
            text: &Option<Arc<str>>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            text.as_deref().serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Arc<str>>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            Ok(text.map(Into::into))
        }
    }
}

/// JSON of a client. Each value is parsed separately, so that serde_json's recursion limit counts from that value: a
/// deeply nested value of a body does not exceed the limit as a part of a record.
pub(crate) mod verbatim {
    use serde::de::{DeserializeOwned, Error};
    use serde::{Deserialize, Deserializer};
    use serde_json::value::RawValue;

    /// A value that is parsed from a text without the surrounding JSON.
    struct Verbatim<T>(T);

    impl<'de, T: DeserializeOwned> Deserialize<'de> for Verbatim<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let raw = Box::<RawValue>::deserialize(deserializer)?;
            let value = serde_json::from_str(raw.get());
            value.map(Self).map_err(D::Error::custom)
        }
    }

    /// One value.
    pub(crate) mod value {
        use super::Verbatim;
        use serde::de::DeserializeOwned;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            value: &impl Serialize,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            value.serialize(serializer)
        }

        pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<T, D::Error> {
            Verbatim::deserialize(deserializer).map(|value| value.0)
        }
    }

    /// A value that may be absent.
    pub(crate) mod option {
        use super::Verbatim;
        pub(crate) use super::value::serialize;
        use serde::de::DeserializeOwned;
        use serde::{Deserialize, Deserializer};

        pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<T>, D::Error> {
            let value = Option::<Verbatim<T>>::deserialize(deserializer)?;
            Ok(value.map(|value| value.0))
        }
    }

    /// A list of values.
    pub(crate) mod list {
        use super::Verbatim;
        pub(crate) use super::value::serialize;
        use serde::de::DeserializeOwned;
        use serde::{Deserialize, Deserializer};

        pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Vec<T>, D::Error> {
            let values = Vec::<Verbatim<T>>::deserialize(deserializer)?;
            Ok(values.into_iter().map(|value| value.0).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::request::GenerationParams;
    use engine::SamplingParams;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<GenerationParams, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The bits of a number after encoding and decoding.
    fn survive(value: f32) -> Option<[u32; 2]> {
        let params = GenerationParams {
            sampling: SamplingParams {
                temperature: value,
                logit_bias: vec![(1, value)],
                ..SamplingParams::default()
            },
            ..GenerationParams::default()
        };
        let json = serde_json::to_string(&params).expect("JSON");
        let sampling = read(&json).ok()?.sampling;
        Some([
            sampling.temperature.to_bits(),
            sampling.logit_bias[0].1.to_bits(),
        ])
    }

    fn check_bits(bits: u32) {
        let value = f32::from_bits(bits);
        let expected = value.is_finite().then_some([bits; 2]);
        assert_eq!(survive(value), expected, "{bits:#x}");
    }

    #[test]
    fn floats_at_the_edges_survive_json() {
        for exponent in 0..=255u32 {
            for mantissa in [0, 1, 2, 3, 0x40_0000, 0x55_5555, 0x7f_fffe, 0x7f_ffff] {
                for sign in [0, 1 << 31] {
                    check_bits(sign | exponent << 23 | mantissa);
                }
            }
        }
    }

    #[test]
    fn absent_params_have_defaults() {
        assert_eq!(read("{}").expect("params"), GenerationParams::default());
        let params = read(r#"{"sampling":{"top_k":5},"unknown":{}}"#).expect("params");
        let sampling = SamplingParams {
            top_k: 5,
            ..SamplingParams::default()
        };
        assert_eq!(params.sampling, sampling);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn floats_survive_json(bits in any::<u32>()) {
            check_bits(bits);
        }

        #[test]
        fn doubles_in_nested_json_survive(bits in any::<u64>()) {
            let value = serde_json::json!([f64::from_bits(bits)]);
            let again: serde_json::Value = serde_json::from_str(&value.to_string()).expect("JSON");
            prop_assert_eq!(again, value);
        }
    }
}
