//! Base64 (RFC 4648).

use bytes::{BufMut, BytesMut};

/// Alphabet of section 4.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes base64: every three bytes become four letters; a short last group is padded.
pub(crate) fn encode(bytes: &[u8], out: &mut BytesMut) {
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            out.put_u8(if at <= three.len() { letter } else { b'=' });
        }
    }
}

/// The bytes of base64 in either alphabet (sections 4 and 5), with or without padding; white space is skipped. `None`: the text
/// is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    // Bits that are not in `bytes` yet, and their number.
    let (mut bits, mut held) = (0_u32, 0);
    let is_padding = |c: char| c == '=' || c.is_ascii_whitespace();
    for letter in text.trim_end_matches(is_padding).bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ if letter.is_ascii_whitespace() => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    (held < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_equals_rfc4648_test_vectors() {
        // RFC 4648, section 10.
        for (plain, want) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = BytesMut::new();
            encode(plain.as_bytes(), &mut out);
            assert_eq!(out, want, "{plain}");
        }
    }

    #[test]
    fn base64_in_other_spellings_is_decoded() {
        for (text, want) in [
            ("", Some(&b""[..])),
            ("YQ==", Some(b"a")),
            ("YQ", Some(b"a")),
            (" Y W\r\nI=\n", Some(b"ab")),
            ("+/8=", Some(b"\xfb\xff")),
            ("-_8", Some(b"\xfb\xff")),
            ("Y", None),
            ("Y=Q=", None),
            ("http://a", None),
        ] {
            assert_eq!(decode(text).as_deref(), want, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn encoded_bytes_decode_to_themselves(bytes in any::<Vec<u8>>()) {
            let mut out = BytesMut::new();
            encode(&bytes, &mut out);
            let text = std::str::from_utf8(&out).unwrap();
            prop_assert_eq!(decode(text), Some(bytes));
        }
    }
}
