//! Ids of streams.

use std::fmt;
use std::str::FromStr;

/// Id of a stream: 128 random bits, written as 32 lowercase hexadecimal digits. In a cluster, the first 16 are a number of the
/// gateway.
///
/// ```
/// use stream::StreamId;
///
/// let id = StreamId::from_random([0xab; 16]);
/// assert_eq!(id.to_string(), "ab".repeat(16));
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u128);

/// Digits of a written id.
const DIGITS: usize = 32;

impl StreamId {
    /// An id of 16 bytes, of which at least 14 are from a cryptographic random number generator: the id is a capability, one half of the
    /// permission to read the stream.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The id as a number, for a record on disk.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// The id whose [`StreamId::to_bits`] is `bits`: an id from a record, never a new one.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({self})")
    }
}

impl FromStr for StreamId {
    type Err = NotAStreamId;

    /// Accepts exactly the output of `Display`: each id has one spelling.
    fn from_str(text: &str) -> Result<Self, NotAStreamId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != DIGITS || !text.bytes().all(is_digit) {
            return Err(NotAStreamId);
        }
        u128::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| NotAStreamId)
    }
}

/// The text is not 32 lowercase hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAStreamId;

impl fmt::Display for NotAStreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream id is {DIGITS} lowercase hexadecimal digits")
    }
}

impl std::error::Error for NotAStreamId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_has_one_spelling() {
        let good = "00112233445566778899aabbccddeeff";
        let id = StreamId::from_random(std::array::from_fn(|i| i as u8 * 0x11));
        assert_eq!(good.parse(), Ok(id));
        assert_eq!(id.to_string(), good);
        assert_eq!(format!("{id:?}"), format!("StreamId({good})"));
        assert_eq!(StreamId::from_bits(id.to_bits()), id);
        assert_eq!(id.to_bits(), 0x00112233445566778899aabbccddeeff);
        let cases = [
            ("empty", ""),
            ("short", &good[1..]),
            ("long", "000112233445566778899aabbccddeeff"),
            ("upper case", "00112233445566778899AABBCCDDEEFF"),
            ("a sign", "+0112233445566778899aabbccddeeff"),
            ("a minus", "-0112233445566778899aabbccddeeff"),
            ("a prefix", "0x112233445566778899aabbccddeeff"),
            ("not a digit", "g0112233445566778899aabbccddeeff"),
            ("an underscore", "0_112233445566778899aabbccddeeff"),
            ("a space", " 0112233445566778899aabbccddeeff"),
            ("a line break", "0112233445566778899aabbccddeeff\n"),
            ("hyphens", "00112233-4455-6677-8899-aabbccddeeff"),
            (
                "32 bytes that are not 32 digits",
                "é112233445566778899aabbccddeeff",
            ),
            ("full-width digits", "０１２３４５６７８９０"),
        ];
        for (case, text) in cases {
            assert_eq!(text.parse::<StreamId>(), Err(NotAStreamId), "{case}");
        }
    }

    #[test]
    fn small_ids_keep_their_zeros() {
        let mut bytes = [0; 16];
        bytes[15] = 7;
        let text = StreamId::from_random(bytes).to_string();
        assert_eq!(text, format!("{}7", "0".repeat(31)));
    }
}
