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

/// Keys and values of every layer and page.
pub struct KvCache {
    _shape: KvShape,
}

impl KvCache {
    /// Allocates it (untouched pages cost no resident memory until written).
    pub fn new(_shape: KvShape) -> Self {
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
    /// Copies a page, all layers.
    pub fn copy_page(&mut self, _from: u32, _to: u32) {
        todo!()
    }
}
