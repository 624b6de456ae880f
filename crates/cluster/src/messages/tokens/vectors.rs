//! Vectors of embeddings in a message of tokens.

use super::super::{MESSAGE_BYTES_MAX, MessageError};
use super::Attempt;
use super::bytes::{Reader, push_f32, push_varint};

/// Entries of a vector. Models with longer hidden states give no embeddings to gateways.
pub const VECTOR_ENTRIES_MAX: usize = 1 << 16;

/// Vectors by attempt. Flat lists, reused from message to message.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorList {
    ranges: Vec<(Attempt, (usize, usize))>,
    entries: Vec<f32>,
}

impl VectorList {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.entries.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// # Errors
    /// The length is 0 or above [`VECTOR_ENTRIES_MAX`].
    pub(super) fn check(vector: &[f32]) -> Result<(), MessageError> {
        match vector.len() {
            0 => Err(MessageError::Malformed("vector")),
            1..=VECTOR_ENTRIES_MAX => Ok(()),
            _ => Err(MessageError::TooMany(
                "entries of a vector",
                VECTOR_ENTRIES_MAX,
            )),
        }
    }

    pub(super) fn push(&mut self, attempt: Attempt, vector: &[f32]) {
        let begin = self.entries.len();
        self.entries.extend_from_slice(vector);
        self.ranges.push((attempt, (begin, self.entries.len())));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Attempt, &[f32])> {
        let ranges = self.ranges.iter();
        ranges.map(|&(attempt, (begin, end))| (attempt, &self.entries[begin..end]))
    }

    /// Appends the vectors.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        push_varint(out, self.ranges.len() as u64);
        for (attempt, vector) in self.iter() {
            push_varint(out, attempt.handle);
            push_varint(out, attempt.attempt.into());
            push_varint(out, vector.len() as u64);
            vector.iter().for_each(|&entry| push_f32(out, entry));
        }
    }

    /// Adds the vectors of a message.
    pub(super) fn take(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        for _ in 0..reader.take_count(MESSAGE_BYTES_MAX, 7)? {
            let attempt = Attempt {
                handle: reader.take_u64()?,
                attempt: reader.take_u32()?,
            };
            let len = reader.take_count(VECTOR_ENTRIES_MAX, 4)?;
            let begin = self.entries.len();
            for _ in 0..len {
                self.entries.push(reader.take_f32()?);
            }
            self.ranges.push((attempt, (begin, begin + len)));
            (len > 0).then_some(())?;
        }
        Some(())
    }
}
