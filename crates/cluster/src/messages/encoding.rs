//! The encoding of all messages but heartbeats and tokens: a version byte, then the value as postcard writes it: fields and
//! variants by their order, without names. Another order is another version.
//!
//! Messages of tokens have their own values: LEB128 varints, little-endian floats, runs, and a reader whose every read is checked.
//!
//! A message with a stream's records begins with the owner that sent it, and as which of its messages.

use super::tokens::{RunKey, TokenRun};
use super::{MessageError, VERSION};
use crate::names::InstanceId;
use engine::Phase;
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

/// Appends `value` as LEB128: seven bits a byte, the lowest first.
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn push_f32(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// The unread rest of a message. `None` means that the bytes do not contain the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take_u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn take_u64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take_u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn take_u32(&mut self) -> Option<u32> {
        u32::try_from(self.take_u64()?).ok()
    }

    /// A number of values of at least `least` bytes each, at most `max` and no more than the rest can contain.
    pub(super) fn take_count(&mut self, max: usize, least: usize) -> Option<usize> {
        let count = usize::try_from(self.take_u64()?).ok()?;
        (count <= max && count <= self.0.len() / least).then_some(count)
    }

    pub(super) fn take_f32(&mut self) -> Option<f32> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bits))
    }
}

/// Appends a run.
pub(super) fn push_run(out: &mut Vec<u8>, run: &TokenRun<'_>) {
    let RunKey {
        handle,
        attempt,
        choice,
        first,
    } = run.key;
    push_varint(out, handle);
    let rest = [attempt, choice, first];
    rest.iter()
        .for_each(|&value| push_varint(out, value.into()));
    let top_n = run.top.len() / run.tokens.len();
    // A NaN that the engine did not compute has these bits.
    let has_logprobs = run
        .tokens
        .iter()
        .any(|token| token.logprob.to_bits() != f32::NAN.to_bits());
    out.extend([u8::from(has_logprobs), top_n as u8]);
    push_varint(out, run.tokens.len() as u64);
    for (i, token) in run.tokens.iter().enumerate() {
        push_varint(out, token.id.into());
        if has_logprobs {
            push_f32(out, token.logprob);
        }
        for alternative in &run.top[i * top_n..][..top_n] {
            push_varint(out, alternative.id.into());
            push_f32(out, alternative.logprob);
        }
    }
}

/// The phase with this number.
pub(super) fn phase_from(number: u8) -> Option<Phase> {
    let phases = [
        Phase::Queued,
        Phase::Prefilling,
        Phase::Running,
        Phase::Parked,
        Phase::Ended,
        Phase::Paused,
    ];
    phases.into_iter().find(|&phase| phase as u8 == number)
}

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

    #[test]
    fn values_are_read_back_and_no_prefix_contains_them() {
        let mut out = Vec::new();
        push_varint(&mut out, u64::MAX);
        push_varint(&mut out, 128);
        push_f32(&mut out, -1.5);
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            Some((reader.take_u64()?, reader.take_u32()?, reader.take_f32()?))
        };
        assert_eq!(read(&out), Some((u64::MAX, 128, -1.5)));
        for cut in 0..out.len() {
            assert_eq!(read(&out[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn numbers_above_the_bound_or_the_rest_are_rejected() {
        assert_eq!(Reader(&[3, 1, 1, 1]).take_count(2, 1), None);
        assert_eq!(Reader(&[3, 1, 1]).take_count(9, 1), None);
        assert_eq!(Reader(&[3, 1, 1, 1]).take_count(9, 2), None);
        assert_eq!(Reader(&[0xff; 11]).take_u64(), None);
        let mut huge = Vec::new();
        push_varint(&mut huge, u64::MAX);
        assert_eq!(Reader(&huge).take_count(usize::MAX, 1), None);
        assert_eq!(Reader(&huge).take_u32(), None);
    }

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
