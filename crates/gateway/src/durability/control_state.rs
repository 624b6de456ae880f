//! The control updates of a stream: those in effect, those that wait, and the last ones for readers.

use super::bounds;
use super::json_record::{DescriptionError, from_json, to_json};
use crate::streams::control_history::ControlUpdate;
use engine::RequestUpdate;
use serde::{Deserialize, Serialize};

/// The control updates of a stream: the body of [`journal::Record::Steered`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlState {
    /// Updates that were accepted since the opening.
    pub count: u64,
    /// Updates of the engine's parameters and tokens whose effect is in the logs.
    pub applied: u64,
    /// Sampling parameters in effect that differ from the request's; nothing to inject.
    #[serde(with = "UpdateFields")]
    pub in_effect: RequestUpdate,
    /// Updates that were accepted and are not in effect, in order.
    #[serde(with = "update_list")]
    pub pending: Vec<RequestUpdate>,
    /// The last updates, as the stream's description reports them.
    pub(crate) history: Vec<TimedUpdate>,
}

/// A control update with its wall time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TimedUpdate {
    /// Wall time of the update.
    pub(crate) at_unix_us: u64,
    /// The update.
    pub(crate) update: ControlUpdate,
}

impl ControlState {
    /// The body of [`journal::Record::Steered`].
    ///
    /// # Errors
    /// The updates that wait are too long.
    pub fn encode(&self) -> Result<Vec<u8>, DescriptionError> {
        to_json(self, journal::SAMPLING_BYTES_MAX)
    }

    /// The updates of a body. All values are within the bounds of an update.
    ///
    /// # Errors
    /// A field has another type, or a value that an update cannot have.
    pub fn decode(body: &[u8]) -> Result<Self, DescriptionError> {
        let state: Self = from_json(body, journal::SAMPLING_BYTES_MAX)?;
        bounds::check_control_state(&state)?;
        Ok(state)
    }
}

/// The encoding of [`RequestUpdate`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestUpdate", default = "RequestUpdate::default")]
struct UpdateFields {
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

/// Lists of [`RequestUpdate`]s.
mod update_list {
    use super::UpdateFields;
    use engine::RequestUpdate;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Encoded<'a>(#[serde(with = "UpdateFields")] &'a RequestUpdate);

    #[derive(Deserialize)]
    struct Decoded(#[serde(with = "UpdateFields")] RequestUpdate);

    pub(super) fn serialize<S: Serializer>(
        updates: &[RequestUpdate],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(updates.iter().map(Encoded))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<RequestUpdate>, D::Error> {
        let updates = Vec::<Decoded>::deserialize(deserializer)?;
        Ok(updates.into_iter().map(|update| update.0).collect())
    }
}
