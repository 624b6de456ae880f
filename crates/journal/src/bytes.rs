//! Integers in records: LEB128 varints and little-endian floats.

/// Appends `value` as LEB128: seven bits a byte, the lowest first.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of `value` as LEB128.
pub(crate) fn varint_bytes(value: u64) -> usize {
    (64 - value.max(1).leading_zeros() as usize).div_ceil(7)
}

/// The unread rest of a record. Every read is checked; `None` means that the bytes do not contain the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    #[inline]
    pub(crate) fn take_u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn take_varint(&mut self) -> Option<u64> {
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

    #[inline]
    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        u32::try_from(self.take_varint()?).ok()
    }

    pub(crate) fn take_f32(&mut self) -> Option<f32> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bits))
    }

    pub(crate) fn take_u128(&mut self) -> Option<u128> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_be_bytes(*bits))
    }

    pub(crate) fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_is_read_back_and_its_length_is_known() {
        for value in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut out = Vec::new();
            push_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value), "{value}");
            assert_eq!(ByteReader(&out).take_varint(), Some(value));
            assert_eq!(ByteReader(&out[..out.len() - 1]).take_varint(), None);
        }
    }

    #[test]
    fn varint_beyond_64_bits_is_rejected() {
        assert_eq!(ByteReader(&[0xff; 11]).take_varint(), None);
        let mut too_large = [0x80; 10];
        too_large[9] = 2;
        assert_eq!(ByteReader(&too_large).take_varint(), None);
    }
}
