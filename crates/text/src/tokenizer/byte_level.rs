//! The alphabet of byte-level BPE, which writes each byte as one printable character.
//!
//! Printable Latin-1 characters represent themselves; the other 68 bytes, in order, are U+0100..=U+0143
//! (GPT-2).

/// The character for a byte.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=0x20 => after_latin(u32::from(byte)),
        0x7F..=0xA0 => after_latin(0x21 + u32::from(byte - 0x7F)),
        0xAD => after_latin(0x43),
    }
}

/// The byte for a character.
fn byte_of(written: char) -> Option<u8> {
    match written as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The bytes of a token's text; `None` for a text outside the alphabet.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

fn after_latin(index: u32) -> char {
    char::from_u32(0x100 + index).expect("under U+0144")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_characters_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for byte in 0..=255 {
            assert!(seen.insert(char_of(byte)));
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!(
            seen.iter()
                .filter(|written| byte_of(**written).is_some())
                .count(),
            256
        );
    }

    #[test]
    fn byte_characters_equal_gpt2() {
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(decode("Ġé").as_deref(), Some(&b" \xE9"[..]));
        assert_eq!(decode("日"), None);
    }
}
