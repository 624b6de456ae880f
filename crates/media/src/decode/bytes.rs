//! Numbers in the bytes of a header. A read past the end is `None`.

/// Bytes with numbers of either byte order.
pub(crate) trait HeaderBytes {
    /// `count` bytes from `at`.
    fn part(&self, at: usize, count: usize) -> Option<&[u8]>;

    fn u8(&self, at: usize) -> Option<u8>;
    fn u16_be(&self, at: usize) -> Option<u16>;
    fn u16_le(&self, at: usize) -> Option<u16>;
    fn u24_le(&self, at: usize) -> Option<u32>;
    fn u32_be(&self, at: usize) -> Option<u32>;
    fn u32_le(&self, at: usize) -> Option<u32>;
}

impl HeaderBytes for [u8] {
    fn part(&self, at: usize, count: usize) -> Option<&[u8]> {
        self.get(at..at.checked_add(count)?)
    }

    fn u8(&self, at: usize) -> Option<u8> {
        self.get(at).copied()
    }

    fn u16_be(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u16_le(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u24_le(&self, at: usize) -> Option<u32> {
        let &[low, middle, high] = self.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes([low, middle, high, 0]))
    }

    fn u32_be(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u32_le(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }
}
