//! Sizes of a KV cache.

use super::kind::KvKind;

/// Slots and elements are rounded up to a multiple of this: the f32 count of the widest vector.
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
