//! A request for an engine: the record of the request, and the tokens so far.

use super::bytes::{Reader, push_bytes, push_ids, push_optional, push_varint};
use super::update::{push_update, take_update};
use super::{ContentIdentity, MessageError, VERSION, open_message};
use crate::names::InstanceId;
use engine::{CHOICES_MAX, RequestUpdate, UPDATES_MAX};

/// Bytes of a request: a record of 16 MiB, and tokens.
pub const RUN_BYTES_MAX: usize = 24 << 20;
/// Bytes of names and digests.
const TEXT_BYTES_MAX: usize = 512;

/// A choice so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunChoice {
    /// Ids of all items of the token log.
    pub ids: Vec<u32>,
    /// Whether the choice has ended, so that nothing is computed for it.
    pub has_ended: bool,
}

/// A request for an engine, new or continued after another engine's death.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The gateway's number of the request.
    pub handle: u64,
    /// How often the gateway placed the request, from 1 on.
    pub attempt: u32,
    /// The gateway, which gets the tokens.
    pub gateway: InstanceId,
    /// Name of the model.
    pub model_key: String,
    /// Content of the model: an engine with another one rejects the request.
    pub identity: ContentIdentity,
    /// The request as [`generate::remote_request::RemoteRequest`] in JSON.
    pub request: Vec<u8>,
    /// The choices, at most [`CHOICES_MAX`].
    pub choices: Vec<RunChoice>,
    /// Control updates in effect since the record was made, in order. Their injected tokens are among the tokens so far.
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
        let mut out = vec![VERSION];
        push_varint(&mut out, self.handle);
        push_varint(&mut out, self.attempt.into());
        push_varint(&mut out, self.gateway.0);
        for text in [self.model_key.as_str()]
            .into_iter()
            .chain(self.identity.parts())
        {
            if text.len() > TEXT_BYTES_MAX {
                return Err(MessageError::TooMany("bytes of a name", TEXT_BYTES_MAX));
            }
            push_bytes(&mut out, text.as_bytes());
        }
        push_optional(&mut out, self.deadline_ms);
        push_varint(&mut out, self.age_ms);
        out.push(u8::from(self.is_paused));
        push_bytes(&mut out, &self.request);
        push_varint(&mut out, self.choices.len() as u64);
        for choice in &self.choices {
            out.push(u8::from(choice.has_ended));
            push_ids(&mut out, &choice.ids);
        }
        push_varint(&mut out, self.updates.len() as u64);
        for update in &self.updates {
            push_update(&mut out, update);
        }
        match out.len() <= RUN_BYTES_MAX {
            true => Ok(out),
            false => Err(MessageError::TooMany("bytes", RUN_BYTES_MAX)),
        }
    }

    /// The request of these bytes.
    pub(super) fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut reader = open_message(message, "request", RUN_BYTES_MAX)?;
        let run = Self::take(&mut reader);
        run.filter(|_| reader.0.is_empty())
            .ok_or(MessageError::Malformed("request"))
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            handle: reader.take_u64()?,
            attempt: reader.take_u32()?,
            gateway: InstanceId(reader.take_u64()?),
            model_key: reader.take_text(TEXT_BYTES_MAX)?,
            identity: ContentIdentity {
                weights: reader.take_text(TEXT_BYTES_MAX)?,
                tokenizer: reader.take_text(TEXT_BYTES_MAX)?,
                template: reader.take_text(TEXT_BYTES_MAX)?,
                arithmetic: reader.take_text(TEXT_BYTES_MAX)?,
            },
            deadline_ms: reader.take_optional()?,
            age_ms: reader.take_u64()?,
            is_paused: reader.take_bool()?,
            request: reader.take_bytes(RUN_BYTES_MAX)?.to_vec(),
            choices: {
                let count = reader.take_count(CHOICES_MAX, 2)?;
                (0..count)
                    .map(|_| take_choice(reader))
                    .collect::<Option<_>>()?
            },
            updates: {
                let count = reader.take_count(UPDATES_MAX, 2)?;
                (0..count)
                    .map(|_| take_update(reader))
                    .collect::<Option<_>>()?
            },
        })
    }
}

fn take_choice(reader: &mut Reader<'_>) -> Option<RunChoice> {
    Some(RunChoice {
        has_ended: reader.take_bool()?,
        ids: reader.take_ids(RUN_BYTES_MAX)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
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
        fn requests_are_read_back_and_no_prefix_is_accepted(run in runs()) {
            let mut message = run.encode().unwrap();
            prop_assert_eq!(Run::decode(&message), Ok(run));
            for cut in 0..message.len() {
                prop_assert!(Run::decode(&message[..cut]).is_err());
            }
            message.push(0);
            prop_assert!(Run::decode(&message).is_err());
        }

        #[test]
        fn any_bytes_are_a_request_or_an_error(run in runs(), at: prop::sample::Index, byte: u8) {
            let mut message = run.encode().unwrap();
            let at = at.index(message.len());
            message[at] = byte;
            let _ = Run::decode(&message);
        }
    }

    #[test]
    fn parts_above_their_bounds_are_not_encoded() {
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
        }
    }
}
