//! The encoding of control updates.

use super::encoding::at_most;
use engine::{INJECT_TOKENS_MAX, RequestUpdate, UPDATES_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The fields of [`RequestUpdate`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestUpdate")]
struct Fields {
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(deserialize_with = "at_most::<_, _, INJECT_TOKENS_MAX>")]
    inject: Vec<u32>,
}

#[derive(Serialize)]
struct Encoded<'a>(#[serde(with = "Fields")] &'a RequestUpdate);

#[derive(Deserialize)]
struct Decoded(#[serde(with = "Fields")] RequestUpdate);

/// One update: `#[serde(with = "boxed_update")]`.
pub(super) mod boxed_update {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        update: &RequestUpdate,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Fields::serialize(update, serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<RequestUpdate>, D::Error> {
        Fields::deserialize(deserializer).map(Box::new)
    }
}

/// At most [`UPDATES_MAX`] updates: `#[serde(with = "update_list")]`.
pub(super) mod update_list {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        updates: &[RequestUpdate],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(updates.iter().map(Encoded))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RequestUpdate>, D::Error> {
        let updates = at_most::<_, Decoded, UPDATES_MAX>(deserializer)?;
        Ok(updates.into_iter().map(|update| update.0).collect())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use engine::RequestUpdate;

    pub(in super::super) fn updates() -> impl Strategy<Value = RequestUpdate> {
        let float = || proptest::option::of(-9.0_f32..9.0);
        let floats = (float(), float(), float(), float(), float(), float());
        let ids = proptest::collection::vec(any::<u32>(), 0..5);
        (floats, any::<Option<u32>>(), ids).prop_map(|(floats, top_k, inject)| RequestUpdate {
            temperature: floats.0,
            top_k,
            top_p: floats.1,
            min_p: floats.2,
            repetition_penalty: floats.3,
            presence_penalty: floats.4,
            frequency_penalty: floats.5,
            inject,
        })
    }
}
