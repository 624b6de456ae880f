//! The control updates of a stream: those in effect, those that wait, and the last ones for readers.

use super::bounds::{check_update, require_count, require_unix_us};
use super::json_record::{DescriptionError, from_json, to_json};
use crate::streams::control_history::{TimedUpdate, UPDATES_RECORDED_MAX};
use engine::{INJECT_TOKENS_MAX, RequestUpdate, UPDATES_MAX};
use generate::update_record::UpdateFields;
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

    fn check(&self) -> Result<(), DescriptionError> {
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

/// Lists of [`RequestUpdate`]s.
mod update_list {
    use engine::RequestUpdate;
    use generate::update_record::UpdateFields;
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
