//! Sizes of a KV cache.

use super::kind::KvKind;

/// What slots and elements are rounded up to: the widest vector's count of f32.
pub(crate) const LANES: usize = 16;

/// Sizes of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)]
pub struct KvShape {
    pub layers: usize,
    pub pages: usize,
    pub page_tokens: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub kind: KvKind,
}
