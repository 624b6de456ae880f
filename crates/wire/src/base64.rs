//! Base64 (RFC 4648), in the spellings that clients send.

use ::base64::alphabet::STANDARD as ALPHABET;
use ::base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ::base64::engine::{DecodePaddingMode, Engine as _};

/// Padding may be missing, and the bits after the last byte may be any.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of base64 in either alphabet (sections 4 and 5), with or without padding; white space is skipped. `None`: the text
/// is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let is_padding = |c: char| c == '=' || c.is_ascii_whitespace();
    let letters = text.trim_end_matches(is_padding).bytes();
    let plain: Vec<u8> = letters
        .filter(|letter| !letter.is_ascii_whitespace())
        .map(|letter| match letter {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    LENIENT.decode(plain).ok()
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
            assert_eq!(encode(plain.as_bytes()), want, "{plain}");
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
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
