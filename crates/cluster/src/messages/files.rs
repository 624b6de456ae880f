//! Files that requests name by their digests, such as images: what an engine lacks of them, and their parts.

use super::encoding::{at_most, byte_string, decode_message, push_bounded, push_message};
use super::{MESSAGE_BYTES_MAX, MessageError};
use serde::{Deserialize, Serialize};

/// Bytes of a file in one message.
pub const FILE_PART_BYTES: usize = 512 << 10;
/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 256 << 20;
/// Files of one request.
pub const FILES_MAX: usize = 1024;

/// The name of a file: SHA-256 of the bytes.
pub type FileDigest = [u8; 32];

/// A message of a gateway about files for an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileMessage {
    /// Which of these files does the engine lack? Those that it has are kept for a while.
    Lacking(#[serde(deserialize_with = "at_most::<_, _, FILES_MAX>")] Vec<FileDigest>),
    /// A part of a file: all parts but the last have [`FILE_PART_BYTES`].
    Part {
        /// The file.
        digest: FileDigest,
        /// Bytes of the whole file.
        bytes: u64,
        /// Number of the part.
        part: u32,
        /// The part.
        #[serde(with = "byte_string")]
        data: Vec<u8>,
    },
}

/// The answer of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// Places of the files that the engine lacks among those that were named.
    Lacks(#[serde(deserialize_with = "at_most::<_, _, FILES_MAX>")] Vec<u32>),
    /// The part was taken; the file is whole where it was the last one that was missing, or had come from another gateway.
    Taken {
        /// Whether no part is missing.
        is_whole: bool,
    },
    /// There is no room for the file now.
    Full,
    /// The message is none that the engine can read.
    Invalid,
}

impl FileMessage {
    /// The message with this part of a file.
    pub fn part(digest: FileDigest, file: &[u8], part: usize) -> Self {
        let start = (part * FILE_PART_BYTES).min(file.len());
        let end = (start + FILE_PART_BYTES).min(file.len());
        Self::Part {
            digest,
            bytes: file.len() as u64,
            part: u32::try_from(part).unwrap_or(u32::MAX),
            data: file[start..end].to_vec(),
        }
    }

    /// Bytes.
    ///
    /// # Errors
    /// The message is longer than its bound.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let mut out = Vec::new();
        push_bounded(&mut out, self, MESSAGE_BYTES_MAX)?;
        Ok(out)
    }

    /// The message of these bytes.
    ///
    /// # Errors
    /// The bytes are no message, or a part that its file cannot have.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        let decoded = decode_message(message, "file", MESSAGE_BYTES_MAX)?;
        if let Self::Part {
            bytes, part, data, ..
        } = &decoded
        {
            let is_within = part_bytes(*bytes, *part).is_some_and(|len| len == data.len());
            if !is_within {
                return Err(MessageError::Malformed("part of a file"));
            }
        }
        Ok(decoded)
    }
}

impl FileReply {
    /// Bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_message(&mut out, self);
        out
    }

    /// The answer of these bytes.
    ///
    /// # Errors
    /// The bytes are no answer.
    pub fn decode(message: &[u8]) -> Result<Self, MessageError> {
        decode_message(message, "answer", MESSAGE_BYTES_MAX)
    }
}

/// Parts of a file with so many bytes: at least one.
pub fn file_parts(bytes: usize) -> usize {
    bytes.div_ceil(FILE_PART_BYTES).max(1)
}

/// Bytes of a part; `None`: the file is too long, or has fewer parts.
fn part_bytes(bytes: u64, part: u32) -> Option<usize> {
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= FILE_BYTES_MAX)?;
    let part = part as usize;
    (part < file_parts(bytes)).then(|| (bytes - part * FILE_PART_BYTES).min(FILE_PART_BYTES))
}

#[cfg(test)]
mod tests {
    use super::super::encoding::tests::assert_checked;
    use super::*;

    #[test]
    fn messages_are_read_back_and_other_bytes_are_checked() {
        let messages = [
            FileMessage::Lacking(vec![[7; 32], [9; 32]]),
            FileMessage::part([1; 32], b"bytes", 0),
            FileMessage::part([1; 32], b"", 0),
        ];
        for message in messages {
            let bytes = message.encode().unwrap();
            assert_eq!(FileMessage::decode(&bytes), Ok(message));
            assert_checked(&bytes, FileMessage::decode, FileMessage::encode);
        }
        for reply in [
            FileReply::Lacks(vec![0, 300]),
            FileReply::Taken { is_whole: true },
            FileReply::Full,
            FileReply::Invalid,
        ] {
            let bytes = reply.encode();
            assert_eq!(FileReply::decode(&bytes), Ok(reply));
            assert_checked(&bytes, FileReply::decode, |reply| Ok(reply.encode()));
        }
    }

    #[test]
    fn parts_that_a_file_cannot_have_are_rejected() {
        let file = vec![5; FILE_PART_BYTES + 3];
        let of = |bytes, part, data: &[u8]| FileMessage::Part {
            digest: [1; 32],
            bytes,
            part,
            data: data.to_vec(),
        };
        assert_eq!(file_parts(file.len()), 2);
        for part in 0..2 {
            let message = FileMessage::part([1; 32], &file, part);
            assert!(FileMessage::decode(&message.encode().unwrap()).is_ok());
        }
        let bytes = file.len() as u64;
        for message in [
            of(bytes, 2, b""),
            of(bytes, 1, b"12"),
            of(bytes, 0, b"123"),
            of(FILE_BYTES_MAX as u64 + 1, 0, &file[..FILE_PART_BYTES]),
            of(u64::MAX, u32::MAX, b""),
        ] {
            let encoded = message.encode().unwrap();
            assert!(FileMessage::decode(&encoded).is_err(), "{message:?}");
        }
        let many = FileMessage::Lacking(vec![[0; 32]; FILES_MAX + 1]);
        assert!(FileMessage::decode(&many.encode().unwrap()).is_err());
    }
}
