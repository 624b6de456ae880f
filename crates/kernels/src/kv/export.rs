//! Pages as bytes, to keep them outside the cache.

use super::KvCache;

/// Bytes of an element of a block.
const ELEMENT: usize = size_of::<u16>();

impl KvCache {
    /// Bytes of one page in all layers, padding included.
    pub fn page_bytes(&self) -> usize {
        self.shape.layers * self.shape.kv_heads * self.block * ELEMENT
    }

    /// Copies a page out of all layers: elements in little-endian order, shape `(layers, kv_heads, block)`.
    ///
    /// # Panics
    /// If the page is out of range, or `bytes` has not [`KvCache::page_bytes`].
    pub fn export_page(&self, page: u32, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.page_bytes(), "bytes of a page");
        let mut blocks = bytes.chunks_exact_mut(self.block * ELEMENT);
        for layer in 0..self.shape.layers {
            for (head, bytes) in (0..self.shape.kv_heads).zip(&mut blocks) {
                let start = self.block_start(layer, page, head);
                let block = &self.region.as_u16s()[start..start + self.block];
                for (two, element) in bytes.chunks_exact_mut(ELEMENT).zip(block) {
                    two.copy_from_slice(&element.to_le_bytes());
                }
            }
        }
    }

    /// Copies into a page of all layers what [`KvCache::export_page`] copied out of a cache of equal layers and heads.
    ///
    /// # Panics
    /// As [`KvCache::export_page`].
    pub fn import_page(&mut self, page: u32, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.page_bytes(), "bytes of a page");
        let mut blocks = bytes.chunks_exact(self.block * ELEMENT);
        for layer in 0..self.shape.layers {
            for (head, bytes) in (0..self.shape.kv_heads).zip(&mut blocks) {
                let start = self.block_start(layer, page, head);
                let block = &mut self.region.as_u16s_mut()[start..start + self.block];
                for (two, element) in bytes.chunks_exact(ELEMENT).zip(block) {
                    *element = u16::from_le_bytes([two[0], two[1]]);
                }
            }
        }
    }
}
