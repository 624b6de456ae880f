//! Parts of the encoding of requests: types without an encoding of their own, and nested JSON.

use engine::SamplingParams;
use serde::{Deserialize, Serialize};

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
    use crate::request::PromptField;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    const NAMES: [PromptField; 3] = ["messages", "prompt", "input"];

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature is serde's"
    )]
    pub(crate) fn serialize<S: Serializer>(
        field: &PromptField,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        field.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PromptField, D::Error> {
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

/// JSON of a client. Each value is parsed by itself, with a recursion limit of its own: a value that is nested as deeply
/// as a body may be does not exceed the limit for being a part of a record.
pub(crate) mod verbatim {
    use serde::de::{DeserializeOwned, Error};
    use serde::{Deserialize, Deserializer};
    use serde_json::value::RawValue;

    /// A value that is parsed from its own text.
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
