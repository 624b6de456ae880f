//! Requests for tokens that did not arrive. The answer is a [`super::TokenBatch`].

use super::bytes::{push_ids, push_varint};
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION, open_message};
use crate::names::InstanceId;
use engine::CHOICES_MAX;

/// Requests in one message.
pub const READS_MAX: usize = 1024;

/// What arrived of one attempt of a request.
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
    /// There are more than [`READS_MAX`] entries or [`MESSAGE_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.entries.len() > READS_MAX {
            return Err(MessageError::TooMany("reads", READS_MAX));
        }
        let mut out = vec![VERSION];
        push_varint(&mut out, self.gateway.0);
        push_varint(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            push_varint(&mut out, entry.handle);
            push_varint(&mut out, entry.attempt.into());
            push_ids(&mut out, &entry.have);
        }
        match out.len() <= MESSAGE_BYTES_MAX {
            true => Ok(out),
            false => Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX)),
        }
    }

    /// The request of these bytes.
    ///
    /// # Errors
    /// The bytes are no such request, one of another version, or above a bound.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let mut reader = open_message(message, "read request", MESSAGE_BYTES_MAX)?;
        let mut take = || {
            let gateway = InstanceId(reader.take_u64()?);
            let count = reader.take_count(READS_MAX, 3)?;
            let entries = (0..count).map(|_| {
                Some(ReadEntry {
                    handle: reader.take_u64()?,
                    attempt: reader.take_u32()?,
                    have: reader.take_ids(CHOICES_MAX)?,
                })
            });
            let entries = entries.collect::<Option<_>>()?;
            Some(Self { gateway, entries })
        };
        let request = take();
        request
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::Malformed("read request"))
    }
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
