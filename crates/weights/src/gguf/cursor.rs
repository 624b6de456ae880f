//! A forward-only position in a file's bytes, never past the end.

use super::GgufError;

/// Reads little-endian fields one after another.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset from the beginning, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Remaining bytes.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, field: &'static str, len: u64) -> Result<&'a [u8], GgufError> {
        if len > self.left() {
            return Err(GgufError::Truncated {
                field,
                offset: self.offset(),
                needs: len,
                left: self.left(),
            });
        }
        let start = self.at;
        self.at += len as usize; // at most the length of a slice
        Ok(&self.bytes[start..self.at])
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N as u64)?);
        Ok(array)
    }

    /// The next number.
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// The next number.
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A count of following items, each at least `bytes_min` bytes long: at most `max`, and at most as many
    /// as the rest of the file can hold.
    pub(super) fn count(
        &mut self,
        field: &'static str,
        max: u64,
        bytes_min: u64,
    ) -> Result<u64, GgufError> {
        let offset = self.offset();
        let value = self.u64(field)?;
        bounded(
            field,
            offset,
            value,
            max.min(self.left() / bytes_min.max(1)),
        )
    }

    /// A length followed by as many bytes.
    pub(super) fn string(&mut self, field: &'static str, max: u64) -> Result<&'a [u8], GgufError> {
        let offset = self.offset();
        let len = bounded(field, offset, self.u64(field)?, max)?;
        self.take(field, len)
    }
}

/// `value`, if it is at most `max`.
pub(super) fn bounded(
    field: &'static str,
    offset: u64,
    value: u64,
    max: u64,
) -> Result<u64, GgufError> {
    if value > max {
        return Err(GgufError::Limit {
            field,
            offset,
            value,
            max,
        });
    }
    Ok(value)
}
