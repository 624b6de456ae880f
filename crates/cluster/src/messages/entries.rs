//! Messages that are entries of one gateway.

use super::bytes::{Reader, push_varint};
use super::{MESSAGE_BYTES_MAX, MessageError, VERSION, open_message};
use crate::names::InstanceId;

/// The form of a message with entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryForm {
    /// The message, in errors.
    pub(super) name: &'static str,
    /// The entries, in errors.
    pub(super) entries: &'static str,
    pub(super) entries_max: usize,
    /// Bytes of the shortest entry.
    pub(super) entry_bytes_min: usize,
}

impl EntryForm {
    pub(super) fn encode<E>(
        self,
        gateway: InstanceId,
        entries: &[E],
        push: impl Fn(&mut Vec<u8>, &E),
    ) -> Result<Vec<u8>, MessageError> {
        if entries.len() > self.entries_max {
            return Err(MessageError::TooMany(self.entries, self.entries_max));
        }
        let mut out = vec![VERSION];
        push_varint(&mut out, gateway.0);
        push_varint(&mut out, entries.len() as u64);
        for entry in entries {
            push(&mut out, entry);
        }
        match out.len() <= MESSAGE_BYTES_MAX {
            true => Ok(out),
            false => Err(MessageError::TooMany("bytes", MESSAGE_BYTES_MAX)),
        }
    }

    pub(super) fn decode<E>(
        self,
        message: &[u8],
        take: impl Fn(&mut Reader<'_>) -> Option<E>,
    ) -> Result<(InstanceId, Vec<E>), MessageError> {
        let mut reader = open_message(message, self.name, MESSAGE_BYTES_MAX)?;
        let mut take_all = || {
            let gateway = InstanceId(reader.take_u64()?);
            let count = reader.take_count(self.entries_max, self.entry_bytes_min)?;
            let entries = (0..count).map(|_| take(&mut reader));
            Some((gateway, entries.collect::<Option<_>>()?))
        };
        let request = take_all();
        request
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::Malformed(self.name))
    }
}
