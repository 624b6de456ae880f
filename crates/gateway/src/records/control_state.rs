//! The control updates of a stream: those in effect, those that wait, and the last ones for readers.

use super::bounds::require_unix_us;
use super::json_record::{DescriptionError, from_json, to_json};
use engine::{INJECT_TOKENS_MAX, RequestUpdate, UPDATES_MAX};
use generate::request_record::UpdateFields;
use generate::value_bounds::{InvalidValue, check_update, require_count};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The control updates of a stream: the body of [`journal::Record::Steered`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlState {
    /// Control updates since the opening, also those that are not the engine's (pauses, a stop).
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

impl ControlState {
    /// The body of [`journal::Record::Steered`].
    ///
    /// # Errors
    /// The updates that wait are too long.
    pub fn encode(&self) -> Result<Vec<u8>, DescriptionError> {
        to_json::<Self>(self, journal::SAMPLING_BYTES_MAX)
    }

    /// The updates of a body. All values are within the bounds of an update.
    ///
    /// # Errors
    /// A field has another type, or a value that an update cannot have.
    pub fn decode(body: &[u8]) -> Result<Self, DescriptionError> {
        let state: Self = from_json(body, journal::SAMPLING_BYTES_MAX)?;
        state.check()?;
        Ok(state)
    }

    /// The first `applied` updates since the opening are in effect: their parameters hold, and their tokens are in the
    /// logs.
    pub(crate) fn mark_applied(&mut self, applied: u64) {
        while self.applied < applied && !self.pending.is_empty() {
            let update = self.pending.remove(0);
            self.applied += 1;
            self.in_effect.override_with(&update);
        }
    }

    fn check(&self) -> Result<(), InvalidValue> {
        check_update("in_effect", &self.in_effect, 0)?;
        // As many wait for the next step as wait for the first tokens of their requests.
        require_count("pending", self.pending.len(), 2 * UPDATES_MAX)?;
        for update in &self.pending {
            check_update("pending", update, INJECT_TOKENS_MAX)?;
        }
        require_count("history", self.history.len(), UPDATES_RECORDED_MAX)?;
        for entry in &self.history {
            require_unix_us("history.at_unix_us", entry.at_unix_us)?;
        }
        Ok(())
    }
}

/// Updates of a stream that are kept: the last ones.
pub(crate) const UPDATES_RECORDED_MAX: usize = 64;

/// The fields of a control update. Fields that the client did not set are absent.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ControlUpdate {
    /// Generated tokens of all choices at the time of the update. The update takes effect at a later token.
    pub(crate) after_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<bool>,
    #[serde(skip_serializing_if = "is_not")]
    pub(crate) stop: bool,
    #[serde(skip_serializing_if = "is_not")]
    pub(crate) end_thinking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frequency_penalty: Option<f32>,
    /// Number of injected tokens. Injected tokens are part of the output.
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) injected: usize,
}

impl ControlUpdate {
    /// The update that the engine received.
    pub(crate) fn new(steer: &RequestUpdate) -> Self {
        Self {
            temperature: steer.temperature,
            top_k: steer.top_k,
            top_p: steer.top_p,
            min_p: steer.min_p,
            repetition_penalty: steer.repetition_penalty,
            presence_penalty: steer.presence_penalty,
            frequency_penalty: steer.frequency_penalty,
            injected: steer.inject.len(),
            ..Self::default()
        }
    }
}

/// A control update with its wall time, for records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TimedUpdate {
    /// Wall time of the update.
    pub(crate) at_unix_us: u64,
    /// The update.
    pub(crate) update: ControlUpdate,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_not(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Lists of [`RequestUpdate`]s.
mod update_list {
    use engine::RequestUpdate;
    use generate::request_record::UpdateFields;
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

#[cfg(test)]
mod tests;
