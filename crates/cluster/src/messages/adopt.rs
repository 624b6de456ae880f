//! Requests of a gateway for attempts of an earlier owner of a stream, and the answers.

use super::bytes::{Reader, push_bytes, push_ids, push_varint};
use super::entries::EntryForm;
use super::update::{push_update, take_update};
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION, open_message};
use crate::names::InstanceId;
use engine::RequestUpdate;
use engine::remote::StreamChoice;

/// Choices in one message.
pub const ADOPTIONS_MAX: usize = 256;

const FORM: EntryForm = EntryForm {
    name: "adoption",
    entries: "adoptions",
    entries_max: ADOPTIONS_MAX,
    entry_bytes_min: 24,
};

/// A choice that the gateway continues, and the name that the attempt is to have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdoptEntry {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that the engine's becomes; no other engine is asked with this number.
    pub attempt: u32,
    /// The choice.
    pub choice: StreamChoice,
    /// Processes that have continued the stream before.
    pub generation: u64,
    /// Control updates in effect, merged, without their injected tokens.
    pub in_effect: RequestUpdate,
    /// Ids of all items of the choice's log that the gateway has.
    pub ids: Vec<u32>,
}

/// A gateway asks an engine for attempts that another process had submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdoptRequest {
    /// The gateway.
    pub gateway: InstanceId,
    /// At most [`ADOPTIONS_MAX`].
    pub entries: Vec<AdoptEntry>,
}

/// Answer of an engine about a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Adoption {
    /// The engine does not compute the choice.
    Unknown = 0,
    /// The attempt is the gateway's, and runs or has ended.
    Adopted = 1,
    /// The attempt is the gateway's, and is paused.
    AdoptedPaused = 2,
    /// The engine has other tokens or other updates than the gateway: the attempt is dropped.
    Differs = 3,
}

/// The answer for one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptAnswer {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt.
    pub attempt: u32,
    /// Fate of the choice.
    pub adoption: Adoption,
}

impl AdoptRequest {
    /// Bytes.
    ///
    /// # Errors
    /// There are more than [`ADOPTIONS_MAX`] entries or [`MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        FORM.encode(self.gateway, &self.entries, |out, entry| {
            push_varint(out, entry.handle);
            push_varint(out, entry.attempt.into());
            push_bytes(out, &entry.choice.stream.to_be_bytes());
            push_varint(out, entry.choice.prompt.into());
            push_varint(out, entry.choice.choice.into());
            push_varint(out, entry.generation);
            push_update(out, &entry.in_effect);
            push_ids(out, &entry.ids);
        })
    }

    /// The request of these bytes.
    ///
    /// # Errors
    /// The bytes are no such request, one of another version, or above a bound.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let (gateway, entries) = FORM.decode(message, take_entry)?;
        Ok(Self { gateway, entries })
    }
}

fn take_entry(reader: &mut Reader<'_>) -> Option<AdoptEntry> {
    let (handle, attempt) = (reader.take_u64()?, reader.take_u32()?);
    let stream = u128::from_be_bytes(reader.take_bytes(16)?.try_into().ok()?);
    Some(AdoptEntry {
        handle,
        attempt,
        choice: StreamChoice {
            stream,
            prompt: reader.take_u32()?,
            choice: reader.take_u32()?,
        },
        generation: reader.take_u64()?,
        in_effect: take_update(reader)?,
        ids: reader.take_ids(MESSAGE_BYTES_MAX)?,
    })
}

/// The bytes of an engine's answers.
pub fn encode_adoptions(answers: &[AdoptAnswer]) -> Vec<u8> {
    let mut out = vec![VERSION];
    push_varint(&mut out, answers.len() as u64);
    for answer in answers {
        push_varint(&mut out, answer.handle);
        push_varint(&mut out, answer.attempt.into());
        out.push(answer.adoption as u8);
    }
    out
}

/// The answers of these bytes.
///
/// # Errors
/// The bytes are no such answers, ones of another version, or more than [`ADOPTIONS_MAX`].
pub fn decode_adoptions(message: &[u8]) -> Result<Vec<AdoptAnswer>, MessageError> {
    let mut reader = open_message(message, "adoptions", MESSAGE_BYTES_MAX)?;
    let mut take = || {
        let count = reader.take_count(ADOPTIONS_MAX, 3)?;
        let answers = (0..count).map(|_| {
            Some(AdoptAnswer {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
                adoption: match reader.take_u8()? {
                    0 => Adoption::Unknown,
                    1 => Adoption::Adopted,
                    2 => Adoption::AdoptedPaused,
                    3 => Adoption::Differs,
                    _ => return None,
                },
            })
        });
        answers.collect::<Option<Vec<_>>>()
    };
    let answers = take();
    answers
        .filter(|_| reader.0.is_empty())
        .ok_or(MessageError::Malformed("adoptions"))
}

#[cfg(test)]
mod tests {
    use super::super::update::tests::updates;
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = AdoptRequest> {
        let ids = proptest::collection::vec(any::<u32>(), 0..6);
        let names = any::<(u64, u32, u128, u32, u32, u64)>();
        let entry = (names, updates(), ids).prop_map(|(names, in_effect, ids)| AdoptEntry {
            handle: names.0,
            attempt: names.1,
            choice: StreamChoice {
                stream: names.2,
                prompt: names.3,
                choice: names.4,
            },
            generation: names.5,
            in_effect,
            ids,
        });
        let entries = proptest::collection::vec(entry, 0..5);
        (any::<u64>(), entries).prop_map(|(gateway, entries)| AdoptRequest {
            gateway: InstanceId(gateway),
            entries,
        })
    }

    proptest! {
        #[test]
        fn adoptions_are_read_back_and_no_prefix_is_accepted(
            request in requests(),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let mut bytes = request.encode().unwrap();
            prop_assert_eq!(AdoptRequest::decode(&bytes), Ok(request));
            for cut in 0..bytes.len() {
                prop_assert!(AdoptRequest::decode(&bytes[..cut]).is_err());
            }
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = AdoptRequest::decode(&bytes);
        }

        #[test]
        fn answers_are_read_back_and_other_bytes_are_an_error(
            names in proptest::collection::vec(any::<(u64, u32)>(), 0..6),
            mut bytes: Vec<u8>,
        ) {
            use Adoption::{Adopted, AdoptedPaused, Differs, Unknown};
            let all = [Unknown, Adopted, AdoptedPaused, Differs];
            let answers = names.iter().zip(all.into_iter().cycle());
            let answers: Vec<_> = answers
                .map(|(&(handle, attempt), adoption)| AdoptAnswer { handle, attempt, adoption })
                .collect();
            let message = encode_adoptions(&answers);
            prop_assert_eq!(decode_adoptions(&message), Ok(answers));
            for cut in 0..message.len() {
                prop_assert!(decode_adoptions(&message[..cut]).is_err());
            }
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = decode_adoptions(&bytes);
        }
    }

    #[test]
    fn entries_above_the_bounds_are_not_encoded() {
        let many = AdoptRequest {
            entries: vec![AdoptEntry::default(); ADOPTIONS_MAX + 1],
            ..AdoptRequest::default()
        };
        let long = AdoptRequest {
            entries: vec![AdoptEntry {
                ids: vec![u32::MAX; MESSAGE_BYTES_MAX / 5],
                ..AdoptEntry::default()
            }],
            ..AdoptRequest::default()
        };
        for request in [many, long] {
            assert!(matches!(request.encode(), Err(MessageError::TooMany(..))));
        }
    }
}
