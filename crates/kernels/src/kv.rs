//! Paged keys and values, f16. (Stub.)

/// Sizes of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)]
pub struct KvShape {
    pub layers: usize,
    pub pages: usize,
    pub page_tokens: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Why a cache could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// A size is zero, or their product does not fit the address space.
    Shape(KvShape),
    /// The system refused this many bytes.
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl std::fmt::Display for KvError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape(shape) => write!(f, "no KV cache can have the shape {shape:?}"),
            Self::Memory { bytes } => {
                write!(f, "the system refused {bytes} bytes for the KV cache")
            }
        }
    }
}

impl std::error::Error for KvError {}

/// Where one position is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSlot {
    /// The page.
    pub page: u32,
    /// The position within the page.
    pub slot: usize,
}

/// Keys and values of every layer and page.
pub struct KvCache {
    _shape: KvShape,
}

impl KvCache {
    /// Allocates it (untouched pages cost no resident memory until written).
    pub fn new(_shape: KvShape) -> Result<Self, KvError> {
        todo!()
    }
    /// Bytes when fully used.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// Stores one position: `k` and `v` are `(kv_heads, head_dim)`.
    pub fn store(&mut self, _layer: usize, _page: u32, _slot: usize, _k: &[f32], _v: &[f32]) {
        todo!()
    }
    /// Stores many positions over the pool: `k` and `v` are `(slots.len(), kv_heads, head_dim)`.
    pub fn store_rows(
        &mut self,
        _pool: &mut crate::Pool,
        _layer: usize,
        _slots: &[KvSlot],
        _k: &[f32],
        _v: &[f32],
    ) {
        todo!()
    }
    /// Copies a page, all layers.
    pub fn copy_page(&mut self, _from: u32, _to: u32) {
        todo!()
    }
}
