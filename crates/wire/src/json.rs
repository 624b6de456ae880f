//! JSON serialization into a reused buffer.

use crate::schema::written_as;
use bytes::{BufMut, BytesMut};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fmt::{self, Display, Write};
use std::io;

/// Appends a value as JSON. All map keys must be strings; under this condition writing into memory does not fail.
pub fn write(value: &impl Serialize, out: &mut BytesMut) {
    let written = serde_json::to_writer(BufferWriter(out), value);
    debug_assert!(written.is_ok(), "{written:?}");
}

/// A buffer as a writer. serde_json writes each quotation mark, key and colon by itself: some 60 writes per frame, for
/// which `bytes::buf::Writer` computes the remaining space and loops.
struct BufferWriter<'a>(&'a mut BytesMut);

impl io::Write for BufferWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Most writes are one byte, for which a call of `memcpy` costs more than the copy.
        match bytes {
            [byte] => self.0.put_u8(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A value as JSON in a new buffer.
pub fn to_vec(value: &impl Serialize) -> BytesMut {
    let mut out = BytesMut::new();
    write(value, &mut out);
    out
}

/// A value as JSON in a new buffer with room for `bytes` at first; `None` if that takes more than `bytes_max` bytes.
pub fn to_vec_within(value: &impl Serialize, bytes: usize, bytes_max: usize) -> Option<BytesMut> {
    let mut out = BytesMut::with_capacity(bytes);
    let bounded = Bounded {
        out: &mut out,
        bytes_max,
    };
    let written = serde_json::to_writer(bounded, value);
    written.is_ok().then_some(out)
}

/// A buffer that takes a limited number of bytes.
struct Bounded<'a> {
    out: &'a mut BytesMut,
    bytes_max: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len() + bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The shortest decimal that differs from every other number of the type.
pub fn shortest_number(number: f32) -> Value {
    let digits: Option<f64> = number.to_string().parse().ok();
    digits.into()
}

/// A log-probability. JSON has no infinities: like OpenAI, a probability of 0 is written as -9999.
#[derive(Clone, Copy)]
pub struct LogProb(pub f32);

written_as!(LogProb => f32, Lossy<'_> => String);

impl Serialize for LogProb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f32(if self.0.is_finite() { self.0 } else { -9999.0 })
    }
}

/// Bytes that may be invalid UTF-8, serialized as a string; invalid sequences become U+FFFD.
#[derive(Clone, Copy)]
pub struct Lossy<'a>(pub &'a [u8]);

impl Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Lossy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

/// Serializes an iterator as a list, without collecting the items.
pub struct List<I>(pub I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// Serializes an iterator of key-value pairs as an object.
pub struct Entries<I>(pub I);

impl<K: Serialize, V: Serialize, I: Iterator<Item = (K, V)> + Clone> Serialize for Entries<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.0.clone() {
            map.serialize_entry(&key, &value)?;
        }
        map.end()
    }
}

/// Appends an integer.
pub fn integer(out: &mut BytesMut, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends text without escaping.
pub fn raw(out: &mut BytesMut, bytes: &str) {
    out.extend_from_slice(bytes.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(f: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        f(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn control_character_is_escaped() {
        let all: String = (0u8..0x80)
            .map(char::from)
            .chain("é\u{2028}\u{1F600}".chars())
            .collect();
        let json = written(|out| write(&all, out));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
        assert!(
            json.bytes().all(|b| b >= 0x20),
            "a raw line end would split an SSE frame"
        );
    }

    #[test]
    fn lossy_string_equals_std_from_utf8_lossy() {
        for bytes in [
            &b"plain"[..],
            b"\xe2\x82",
            b"a\xffb\xe2\x82\xac",
            b"\xf0\x9f\x98",
            b"",
        ] {
            let json = written(|out| write(&Lossy(bytes), out));
            assert_eq!(
                serde_json::from_str::<String>(&json).unwrap(),
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn log_prob_without_finite_value_is_minus_9999() {
        for (value, want) in [
            (-0.5, "-0.5"),
            (0.0, "0.0"),
            (f32::NEG_INFINITY, "-9999.0"),
            (f32::NAN, "-9999.0"),
        ] {
            assert_eq!(written(|out| write(&LogProb(value), out)), want);
        }
        assert_eq!(written(|out| integer(out, u64::MAX)), u64::MAX.to_string());
    }

    proptest! {
        #[test]
        fn escaped_text_parses_to_itself(text in any::<String>()) {
            let json = written(|out| write(&text, out));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
