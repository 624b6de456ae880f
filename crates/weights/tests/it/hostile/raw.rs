//! Builder of GGUF bytes field by field, valid or not.

/// Bytes so far.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// A version 3 header.
    pub(crate) fn new(tensors: u64, entries: u64) -> Self {
        Self::versioned(3, tensors, entries)
    }

    /// A header of any version.
    pub(crate) fn versioned(version: u32, tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec())
            .u32(version)
            .u64(tensors)
            .u64(entries)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A length and bytes.
    pub(crate) fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    /// A key and its type; the value follows.
    pub(crate) fn key(self, key: &str, kind: u32) -> Self {
        self.text(key.as_bytes()).u32(kind)
    }

    /// A whole u32 entry.
    pub(crate) fn entry(self, key: &str, value: u32) -> Self {
        self.key(key, 4).u32(value)
    }

    /// A tensor's info.
    pub(crate) fn tensor(self, name: &[u8], dims: &[u64], kind: u32, offset: u64) -> Self {
        let mut raw = self.text(name).u32(dims.len() as u32);
        for &dim in dims {
            raw = raw.u64(dim);
        }
        raw.u32(kind).u64(offset)
    }

    /// Zeros up to a multiple of 32, then `len` more.
    pub(crate) fn data(mut self, len: usize) -> Self {
        let end = self.0.len().next_multiple_of(32) + len;
        self.0.resize(end, 0);
        self
    }
}
