//! Requests for tokens that did not arrive. The answer is a [`super::TokenBatch`].

use super::encoding::{InstanceNumber, at_most, decode_message, push_bounded};
use super::{MESSAGE_BYTES_MAX, MessageError};
use crate::names::InstanceId;
use engine::CHOICES_MAX;
use serde::{Deserialize, Serialize};

/// Requests in one message.
pub const READS_MAX: usize = 1024;

/// The tokens that arrived of one attempt of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadEntry {
    /// The gateway's number of the request.
    pub handle: u64,
    /// The attempt that is read.
    pub attempt: u32,
    /// By choice: items of the log that arrived.
    #[serde(deserialize_with = "at_most::<_, _, CHOICES_MAX>")]
    pub have: Vec<u32>,
}

/// A gateway asks an engine for the tokens after those that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The gateway.
    #[serde(with = "InstanceNumber")]
    pub gateway: InstanceId,
    /// At most [`READS_MAX`].
    #[serde(deserialize_with = "at_most::<_, _, READS_MAX>")]
    pub entries: Vec<ReadEntry>,
}

impl ReadRequest {
    /// Bytes.
    ///
    /// # Errors
    /// There are more than [`READS_MAX`] entries or [`super::MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.entries.len() > READS_MAX {
            return Err(MessageError::TooMany("reads", READS_MAX));
        }
        let mut out = Vec::new();
        push_bounded(&mut out, self, MESSAGE_BYTES_MAX)?;
        Ok(out)
    }

    /// The request of these bytes.
    ///
    /// # Errors
    /// The bytes are no such request, one of another version, or above a bound.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        decode_message(message, "read request", MESSAGE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::push_message;
    use super::super::encoding::tests::assert_checked;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn read_requests_are_read_back_and_other_bytes_are_checked(
            gateway: u64,
            entries in proptest::collection::vec((any::<u64>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..4)), 0..9),
        ) {
            let entries = entries.into_iter();
            let entries = entries.map(|(handle, attempt, have)| ReadEntry { handle, attempt, have });
            let request = ReadRequest { gateway: InstanceId(gateway), entries: entries.collect() };
            let bytes = request.encode().unwrap();
            assert_checked(&bytes, ReadRequest::decode, ReadRequest::encode);
            prop_assert_eq!(ReadRequest::decode(&bytes), Ok(request));
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
        let mut message = Vec::new();
        push_message(&mut message, &request);
        let malformed = Err(MessageError::Malformed("read request"));
        assert_eq!(ReadRequest::decode(&message), malformed);
    }
}
