//! Values in messages: LEB128 varints, little-endian floats, byte strings, and a reader whose every read is checked.

/// Appends `value` as LEB128: seven bits a byte, the lowest first.
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value`, or 0 for `None`: the values are counted from 1.
pub(super) fn push_optional(out: &mut Vec<u8>, value: Option<u64>) {
    push_varint(out, value.map_or(0, |value| value.saturating_add(1)));
}

pub(super) fn push_f32(out: &mut Vec<u8>, value: f32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends the length and the bytes.
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the number of ids and the ids.
pub(super) fn push_ids(out: &mut Vec<u8>, ids: &[u32]) {
    push_varint(out, ids.len() as u64);
    for id in ids {
        push_varint(out, u64::from(*id));
    }
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

    /// A byte that is 0 or 1.
    pub(super) fn take_bool(&mut self) -> Option<bool> {
        match self.take_u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
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

    /// A value of [`push_optional`].
    pub(super) fn take_optional(&mut self) -> Option<Option<u64>> {
        Some(self.take_u64()?.checked_sub(1))
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

    /// A byte string of at most `max` bytes.
    pub(super) fn take_bytes(&mut self, max: usize) -> Option<&'a [u8]> {
        let length = self.take_count(max, 1)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Text of at most `max` bytes.
    pub(super) fn take_text(&mut self, max: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take_bytes(max)?).ok()?;
        Some(text.to_owned())
    }

    /// A list of at most `max` ids.
    pub(super) fn take_ids(&mut self, max: usize) -> Option<Vec<u32>> {
        let count = self.take_count(max, 1)?;
        (0..count).map(|_| self.take_u32()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_no_prefix_contains_them() {
        let mut out = Vec::new();
        push_varint(&mut out, u64::MAX);
        push_optional(&mut out, Some(0));
        push_optional(&mut out, None);
        push_f32(&mut out, -1.5);
        push_ids(&mut out, &[0, 128, u32::MAX]);
        push_bytes(&mut out, "é".as_bytes());
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            let numbers = (
                reader.take_u64()?,
                reader.take_optional()?,
                reader.take_optional()?,
            );
            Some((
                numbers,
                reader.take_f32()?,
                reader.take_ids(3)?,
                reader.take_text(2)?,
            ))
        };
        let numbers = (u64::MAX, Some(0), None);
        let expected = (numbers, -1.5, vec![0, 128, u32::MAX], "é".to_owned());
        assert_eq!(read(&out), Some(expected));
        for cut in 0..out.len() {
            assert_eq!(read(&out[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn lengths_above_the_bound_or_the_rest_are_rejected() {
        assert_eq!(Reader(&[3, 1, 1, 1]).take_bytes(2), None);
        assert_eq!(Reader(&[3, 1, 1]).take_bytes(9), None);
        assert_eq!(Reader(&[1, 0xff]).take_text(9), None, "no UTF-8");
        assert_eq!(Reader(&[2]).take_bool(), None);
        assert_eq!(Reader(&[0xff; 11]).take_u64(), None);
        let mut huge = Vec::new();
        push_varint(&mut huge, u64::MAX);
        assert_eq!(Reader(&huge).take_ids(usize::MAX), None);
    }
}
