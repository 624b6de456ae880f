//! The encoding of all messages but heartbeats and tokens: a version byte, then the value as postcard writes it: fields and
//! variants by their order, without names. Another order is another version.

use super::{MessageError, VERSION};
use crate::names::InstanceId;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// Appends a message to `out`.
pub(super) fn push_message(out: &mut Vec<u8>, value: &impl Serialize) {
    out.push(VERSION);
    let written = postcard::to_extend(value, std::mem::take(out));
    debug_assert!(written.is_ok(), "a list without a length");
    *out = written.unwrap_or_default();
}

/// Appends a message of at most `bytes_max` bytes to `out`.
///
/// # Errors
/// The message is longer; `out` is unchanged.
pub(super) fn push_bounded(
    out: &mut Vec<u8>,
    value: &impl Serialize,
    bytes_max: usize,
) -> Result<(), MessageError> {
    let start = out.len();
    push_message(out, value);
    if out.len() - start > bytes_max {
        out.truncate(start);
        return Err(MessageError::TooMany("bytes", bytes_max));
    }
    Ok(())
}

/// The bytes after the version.
pub(super) fn open_message<'a>(
    message: &'a [u8],
    name: &'static str,
    bytes_max: usize,
) -> Result<&'a [u8], MessageError> {
    if message.len() > bytes_max {
        return Err(MessageError::TooMany("bytes", bytes_max));
    }
    match message.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((&other, _)) => Err(MessageError::Version(other)),
        None => Err(MessageError::Malformed(name)),
    }
}

/// The value that a message of at most `bytes_max` bytes begins with, and the bytes after it.
pub(super) fn take_message<'a, T: Deserialize<'a>>(
    message: &'a [u8],
    name: &'static str,
    bytes_max: usize,
) -> Result<(T, &'a [u8]), MessageError> {
    let rest = open_message(message, name, bytes_max)?;
    postcard::take_from_bytes(rest).map_err(|_| MessageError::Malformed(name))
}

/// The value that a message of at most `bytes_max` bytes is.
pub(super) fn decode_message<'a, T: Deserialize<'a>>(
    message: &'a [u8],
    name: &'static str,
    bytes_max: usize,
) -> Result<T, MessageError> {
    let (value, rest) = take_message(message, name, bytes_max)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(MessageError::Malformed(name))
    }
}

/// The encoding of an instance's id: `#[serde(with = "InstanceNumber")]`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "InstanceId")]
pub(super) struct InstanceNumber(u64);

/// The encoding of bytes: `#[serde(with = "byte_string")]`. Lists of bytes have the same one, byte by byte.
pub(super) mod byte_string {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
    }
}

/// A list of at most `MAX` entries: `#[serde(deserialize_with = "at_most::<_, _, MAX>")]`. No memory is taken for more.
pub(super) fn at_most<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost::<T, MAX>(PhantomData))
}

struct AtMost<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMost<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            if entries.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// No shorter and no longer message is read; one with a flipped bit is an error, or a value that can be encoded.
    pub(in super::super) fn assert_checked<T>(
        message: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, MessageError>,
        encode: impl Fn(&T) -> Result<Vec<u8>, MessageError>,
    ) {
        for cut in 0..message.len() {
            assert!(decode(&message[..cut]).is_err(), "{cut} of {message:?}");
        }
        assert!(decode(&[message, &[0]].concat()).is_err(), "{message:?}");
        let mut flipped = message.to_vec();
        for bit in 0..8 * message.len() {
            flipped[bit / 8] ^= 1 << (bit % 8);
            match decode(&flipped) {
                Ok(value) => assert!(encode(&value).is_ok(), "{flipped:?}"),
                Err(why) if bit < 8 => assert_eq!(why, MessageError::Version(flipped[0])),
                Err(_) => {}
            }
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Parts {
        #[serde(with = "InstanceNumber")]
        id: InstanceId,
        #[serde(with = "byte_string")]
        bytes: Vec<u8>,
        #[serde(deserialize_with = "at_most::<_, _, 2>")]
        list: Vec<u32>,
    }

    fn parts(list: Vec<u32>) -> Parts {
        let (id, bytes) = (InstanceId(300), vec![7, 255]);
        Parts { id, bytes, list }
    }

    #[test]
    fn values_are_read_back() {
        let mut message = Vec::new();
        push_message(&mut message, &parts(vec![128]));
        assert_eq!(message, [VERSION, 0xac, 2, 2, 7, 255, 1, 0x80, 1]);
        let decode = |bytes: &[u8]| decode_message::<Parts>(bytes, "parts", 9);
        assert_eq!(decode(&message), Ok(parts(vec![128])));
        message.push(0);
        assert_eq!(decode(&message), Err(MessageError::TooMany("bytes", 9)));
    }

    #[test]
    fn more_than_the_bound_is_neither_written_nor_read() {
        let mut message = vec![1];
        let list = parts(vec![0; 3]);
        let too_many = Err(MessageError::TooMany("bytes", 9));
        assert_eq!(push_bounded(&mut message, &list, 9), too_many);
        assert_eq!(message, [1]);
        message.clear();
        assert_eq!(push_bounded(&mut message, &list, 10), Ok(()));
        let malformed = Err(MessageError::Malformed("parts"));
        let decode = |bytes: &[u8]| decode_message::<Parts>(bytes, "parts", usize::MAX);
        assert_eq!(decode(&message), malformed);
        let huge = [&[VERSION, 0][..], &[0xff; 9], &[1, 0, 0]].concat();
        assert_eq!(decode(&huge), malformed, "2^64 - 1 bytes");
    }
}
