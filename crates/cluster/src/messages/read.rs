//! Requests for tokens that did not arrive. The answer is a [`super::TokenBatch`].

use super::MessageError;
use super::bytes::{Reader, push_ids, push_varint};
use super::entries::EntryForm;
use crate::names::InstanceId;
use engine::CHOICES_MAX;

/// Requests in one message.
pub const READS_MAX: usize = 1024;

const FORM: EntryForm = EntryForm {
    name: "read request",
    entries: "reads",
    entries_max: READS_MAX,
    entry_bytes_min: 3,
};

/// The tokens that arrived of one attempt of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadEntry {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that is read.
    pub attempt: u32,
    /// By choice: items of the log that arrived.
    pub have: Vec<u32>,
}

/// A gateway asks an engine for the tokens after those that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// The gateway.
    pub gateway: InstanceId,
    /// At most [`READS_MAX`].
    pub entries: Vec<ReadEntry>,
}

impl ReadRequest {
    /// Bytes.
    ///
    /// # Errors
    /// There are more than [`READS_MAX`] entries or [`super::MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        FORM.encode(self.gateway, &self.entries, |out, entry| {
            push_varint(out, entry.handle);
            push_varint(out, entry.attempt.into());
            push_ids(out, &entry.have);
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

fn take_entry(reader: &mut Reader<'_>) -> Option<ReadEntry> {
    Some(ReadEntry {
        handle: reader.take_u64()?,
        attempt: reader.take_u32()?,
        have: reader.take_ids(CHOICES_MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn read_requests_are_read_back_and_no_prefix_is_accepted(
            gateway: u64,
            entries in proptest::collection::vec((any::<u64>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..4)), 0..9),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let entries = entries.into_iter();
            let entries = entries.map(|(handle, attempt, have)| ReadEntry { handle, attempt, have });
            let request = ReadRequest { gateway: InstanceId(gateway), entries: entries.collect() };
            let mut bytes = request.encode().unwrap();
            prop_assert_eq!(ReadRequest::decode(&bytes), Ok(request));
            for cut in 0..bytes.len() {
                prop_assert!(ReadRequest::decode(&bytes[..cut]).is_err());
            }
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = ReadRequest::decode(&bytes);
        }
    }

    #[test]
    fn too_many_entries_are_rejected() {
        let request = ReadRequest {
            entries: vec![ReadEntry::default(); READS_MAX + 1],
            ..ReadRequest::default()
        };
        let too_many = MessageError::TooMany("reads", READS_MAX);
        assert_eq!(request.encode(), Err(too_many));
    }
}
