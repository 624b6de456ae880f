//! A request for an engine: the record of the request, and the tokens so far.

use super::encoding::{InstanceNumber, at_most, byte_string, decode_message, push_bounded};
use super::update::update_list;
use super::{ContentIdentity, MessageError};
use crate::names::InstanceId;
use engine::{CHOICES_MAX, RequestUpdate, UPDATES_MAX};
use serde::{Deserialize, Serialize};

/// Bytes of a request: a record of 16 MiB, and tokens.
pub const RUN_BYTES_MAX: usize = 24 << 20;
/// Bytes of names and digests.
const TEXT_BYTES_MAX: usize = 512;

/// A choice so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunChoice {
    /// Ids of all items of the token log.
    pub ids: Vec<u32>,
    /// Whether the choice has ended, so that nothing is computed for it.
    pub has_ended: bool,
}

/// A request for an engine, new or continued after another engine's death.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The gateway's number of the request.
    pub handle: u64,
    /// How often the gateway placed the request, from 1 on.
    pub attempt: u32,
    /// The gateway, which gets the tokens.
    #[serde(with = "InstanceNumber")]
    pub gateway: InstanceId,
    /// Name of the model.
    pub model_key: String,
    /// Content of the model: an engine with another one rejects the request.
    pub identity: ContentIdentity,
    /// The request as [`generate::remote_request::RemoteRequest`] in JSON.
    #[serde(with = "byte_string")]
    pub request: Vec<u8>,
    /// The choices, at most [`CHOICES_MAX`].
    #[serde(deserialize_with = "at_most::<_, _, CHOICES_MAX>")]
    pub choices: Vec<RunChoice>,
    /// Control updates in effect since the record was made, in order. Their injected tokens are among the tokens so far.
    #[serde(with = "update_list")]
    pub updates: Vec<RequestUpdate>,
    /// Time until the request has to be done, milliseconds.
    pub deadline_ms: Option<u64>,
    /// Time since the request arrived, milliseconds.
    pub age_ms: u64,
    /// Whether the request is paused.
    pub is_paused: bool,
}

impl Run {
    /// All bytes, for [`super::run_part`].
    pub(super) fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.choices.len() > CHOICES_MAX {
            return Err(MessageError::TooMany("choices", CHOICES_MAX));
        }
        if self.updates.len() > UPDATES_MAX {
            return Err(MessageError::TooMany("updates", UPDATES_MAX));
        }
        self.check_names()?;
        let mut out = Vec::new();
        push_bounded(&mut out, self, RUN_BYTES_MAX)?;
        Ok(out)
    }

    /// The request of these bytes.
    pub(super) fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let run: Self = decode_message(message, "request", RUN_BYTES_MAX)?;
        run.check_names()?;
        Ok(run)
    }

    fn check_names(&self) -> Result<(), MessageError> {
        let mut names = self.identity.parts().into_iter().chain([&*self.model_key]);
        if names.any(|name| name.len() > TEXT_BYTES_MAX) {
            return Err(MessageError::TooMany("bytes of a name", TEXT_BYTES_MAX));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::encoding::push_message;
    use super::super::encoding::tests::assert_checked;
    use super::super::update::tests::updates;
    use super::*;
    use proptest::prelude::*;

    pub(in super::super) fn runs() -> impl Strategy<Value = Run> {
        let ids = proptest::collection::vec(any::<u32>(), 0..9);
        let choice = (ids, any::<bool>()).prop_map(|(ids, has_ended)| RunChoice { ids, has_ended });
        let choices = proptest::collection::vec(choice, 0..4);
        let updates = proptest::collection::vec(updates(), 0..3);
        let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), any::<bool>());
        let request = proptest::collection::vec(any::<u8>(), 0..50);
        let deadline = proptest::option::of(0..u64::MAX);
        (numbers, choices, updates, request, deadline).prop_map(
            |((handle, attempt, gateway, is_paused), choices, updates, request, deadline_ms)| Run {
                handle,
                attempt,
                gateway: InstanceId(gateway),
                model_key: "model".into(),
                identity: ContentIdentity {
                    tokenizer: "5a".into(),
                    ..ContentIdentity::default()
                },
                request,
                choices,
                updates,
                deadline_ms,
                age_ms: handle,
                is_paused,
            },
        )
    }

    proptest! {
        #[test]
        fn requests_are_read_back_and_other_bytes_are_checked(run in runs()) {
            let message = run.encode().unwrap();
            assert_checked(&message, Run::decode, Run::encode);
            prop_assert_eq!(Run::decode(&message), Ok(run));
        }
    }

    #[test]
    fn parts_above_their_bounds_are_neither_encoded_nor_decoded() {
        let rows = [
            Run {
                choices: vec![RunChoice::default(); CHOICES_MAX + 1],
                ..Run::default()
            },
            Run {
                updates: vec![RequestUpdate::default(); UPDATES_MAX + 1],
                ..Run::default()
            },
            Run {
                model_key: "x".repeat(TEXT_BYTES_MAX + 1),
                ..Run::default()
            },
            Run {
                request: vec![0; RUN_BYTES_MAX],
                ..Run::default()
            },
        ];
        for run in rows {
            assert!(matches!(run.encode(), Err(MessageError::TooMany(..))));
            let mut message = Vec::new();
            push_message(&mut message, &run);
            assert!(Run::decode(&message).is_err());
        }
    }
}
