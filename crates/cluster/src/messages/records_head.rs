//! The beginning of a message with a stream's records: which owner sent it, and as which of its messages.

use super::MessageError;
use super::encoding::{InstanceNumber, push_message, take_message};
use crate::names::InstanceId;
use serde::{Deserialize, Serialize};

/// Bytes of the longest head.
pub const RECORDS_HEAD_BYTES_MAX: usize = 1 + 5 * 10;

/// The head. The records follow, in the encoding of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsHead {
    /// Grows with each owner of the stream.
    pub generation: u64,
    /// The owner.
    #[serde(with = "InstanceNumber")]
    pub instance: InstanceId,
    /// Counts the messages of this owner for the stream, from 1 on.
    pub number: u64,
    /// Handle of the last record's copy of the stream.
    pub handle: u64,
    /// Hash of the API key whose stream it is, so that another key is rejected before any record is read.
    pub key: u64,
}

impl RecordsHead {
    /// Appends the head.
    pub fn encode_into(self, out: &mut Vec<u8>) {
        push_message(out, &self);
    }

    /// The head of a message, and the records.
    ///
    /// # Errors
    /// The message is of another version, or too short.
    pub fn decode(message: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        take_message(message, "records", usize::MAX)
    }

    /// Whether the same owner sent both.
    pub fn has_owner_of(self, other: Self) -> bool {
        (self.generation, self.instance) == (other.generation, other.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_back_and_no_prefix_is_one() {
        let head = RecordsHead {
            generation: 300,
            instance: InstanceId(u64::MAX),
            number: 1,
            handle: 1 << 20,
            key: u64::MAX,
        };
        let mut bytes = Vec::new();
        head.encode_into(&mut bytes);
        let length = bytes.len();
        assert!(length <= RECORDS_HEAD_BYTES_MAX);
        bytes.extend_from_slice(b"records");
        assert_eq!(RecordsHead::decode(&bytes), Ok((head, &b"records"[..])));
        for cut in 0..length {
            assert!(RecordsHead::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 9;
        assert_eq!(RecordsHead::decode(&bytes), Err(MessageError::Version(9)));
    }
}
