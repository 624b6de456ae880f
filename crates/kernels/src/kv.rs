//! Paged KV cache, as f16, int8 or in 4 bits.
//!
//! One (layer, page, KV head) is one contiguous *block*: keys, then values, in the layout of
//! [`block::BlockLayout`]. `slots` is `page_tokens` and `elements` is `head_dim`, each rounded up to [`LANES`],
//! so that vector paths need no tails. Padding stays zero.

mod block;
mod region;
#[cfg(test)]
mod tests;

pub(crate) use block::{KvBlock, NibbleKv, QuantizedKv, SCALE_GROUP};

use crate::Pool;
use crate::pool::DisjointSlice;
use block::BlockLayout;
use region::Region;
use std::fmt;

#[cfg(test)]
pub(crate) use block::quantize_nibble_group;

impl KvShape {
    /// Bytes when fully used; `None` if a size is zero or the product overflows the address space.
    pub fn bytes(&self) -> Option<usize> {
        let elements = BlockLayout::of(self)?.u16_len()?;
        [self.layers, self.pages, self.kv_heads]
            .into_iter()
            .try_fold(elements, usize::checked_mul)
            .filter(|elements| *elements > 0 && *elements <= isize::MAX as usize / 2)
            .map(|elements| elements * 2)
    }
}

/// The cache could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// A size is zero, or the product overflows the address space.
    Shape(KvShape),
    /// The operating system failed to map this many bytes.
    Memory {
        /// Bytes requested.
        bytes: usize,
    },
}

/// Place of one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSlot {
    /// The page.
    pub page: u32,
    /// Position within the page.
    pub slot: usize,
}

/// Keys and values of all layers and pages.
pub struct KvCache {
    shape: KvShape,
    layout: BlockLayout,
    /// u16 elements of a block.
    block: usize,
    /// u16 elements from the start of a layer to the start of the next.
    layer: usize,
    /// `(layers, pages, kv_heads, block)`, u16 elements, with a gap after each layer ([`layer_stride`]).
    region: Region,
}

/// Bytes of a huge page of x86-64 and AArch64.
const HUGE_PAGE: usize = 2 << 20;

/// u16 elements from layer to layer, where a layer has `len`. The operating system clears a huge page at the first
/// write, and all layers write the same page of the cache in one step: where layers began alike in their huge pages, one step
/// would wait for a huge page of each layer, and the next steps for none. So there is a gap after each layer, less than a huge
/// page of address space, and the starts are evenly distributed.
fn layer_stride(len: usize, layers: usize) -> usize {
    let huge = HUGE_PAGE / 2;
    if len < huge {
        return len;
    }
    let wanted = huge / layers / LINE_ELEMENTS * LINE_ELEMENTS;
    len + (wanted + huge - len % huge) % huge
}

/// u16 elements in a cache line.
const LINE_ELEMENTS: usize = 32;

impl KvCache {
    /// Reserves address space for the cache. Pages that were never written use no resident memory (except for
    /// rounding to the operating system's pages, which may be 2 MiB large).
    pub fn new(shape: KvShape) -> Result<Self, KvError> {
        let bytes = shape.bytes().ok_or(KvError::Shape(shape))?;
        let layout = BlockLayout::of(&shape).ok_or(KvError::Shape(shape))?;
        let block = layout.u16_len().ok_or(KvError::Shape(shape))?;
        let len = bytes / 2 / shape.layers;
        let layer = layer_stride(len, shape.layers);
        let gaps = (layer - len).checked_mul(shape.layers - 1);
        let mapped = gaps.and_then(|gaps| gaps.checked_add(bytes / 2));
        let region = mapped.and_then(Region::new);
        let region = region.ok_or(KvError::Memory { bytes })?;
        Ok(Self {
            shape,
            layout,
            block,
            layer,
            region,
        })
    }

    /// Sizes of the cache.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Bytes when fully used.
    pub fn bytes(&self) -> usize {
        self.shape.layers * self.shape.pages * self.shape.kv_heads * self.block * 2
    }

    /// Stores one position: `k` and `v` are `(kv_heads, head_dim)`. Values beyond the storage format's range
    /// are clamped to its largest value, so that no infinity enters attention.
    ///
    /// # Panics
    /// If the layer, page or slot is out of range, or `k` or `v` has another length.
    pub fn store(&mut self, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
        let place = KvSlot { page, slot };
        self.check(layer, &[place], k, v);
        let (head_dim, layout) = (self.shape.head_dim, self.layout);
        let block = self.block;
        for head in 0..self.shape.kv_heads {
            let start = self.block_start(layer, page, head);
            let part = &mut self.region.as_u16s_mut()[start..start + block];
            let heads = head * head_dim..(head + 1) * head_dim;
            layout.write_slot(part, slot, &k[heads.clone()], &v[heads]);
        }
    }

    /// Stores many positions in parallel: `k` and `v` are `(slots.len(), kv_heads, head_dim)`. If two rows have
    /// the same slot, the later row wins.
    ///
    /// # Panics
    /// As [`KvCache::store`].
    #[allow(unsafe_code)] // Blocks of different heads are written by different workers.
    pub fn store_rows(
        &mut self,
        pool: &mut Pool,
        layer: usize,
        slots: &[KvSlot],
        k: &[f32],
        v: &[f32],
    ) {
        if let [only] = slots {
            return self.store(layer, only.page, only.slot, k, v);
        }
        self.check(layer, slots, k, v);
        let (kv_heads, head_dim) = (self.shape.kv_heads, self.shape.head_dim);
        let layout = self.layout;
        let (start, block) = (self.layer_start(layer), self.block);
        let elements = DisjointSlice::new(self.region.as_u16s_mut());
        pool.ranges(kv_heads, 1, |heads| {
            for (row, place) in slots.iter().enumerate() {
                for head in heads.clone() {
                    let at = start + block_index(place.page, head, kv_heads) * block;
                    // SAFETY: the blocks of a head are written by one worker only.
                    let part = unsafe { elements.part(at..at + block) };
                    let from = (row * kv_heads + head) * head_dim;
                    let (k, v) = (&k[from..][..head_dim], &v[from..][..head_dim]);
                    layout.write_slot(part, place.slot, k, v);
                }
            }
        });
    }

    /// Copies a page in all layers.
    ///
    /// # Panics
    /// If a page is out of range.
    pub fn copy_page(&mut self, from: u32, to: u32) {
        let pages = self.shape.pages;
        assert!((from as usize) < pages && (to as usize) < pages);
        for layer in 0..self.shape.layers {
            for head in 0..self.shape.kv_heads {
                let source = self.block_start(layer, from, head);
                let target = self.block_start(layer, to, head);
                let block = source..source + self.block;
                self.region.as_u16s_mut().copy_within(block, target);
            }
        }
    }

    /// Slots and elements of a block, padding included.
    pub(crate) fn padded(&self) -> (usize, usize) {
        (self.layout.slots, self.layout.elements)
    }

    /// Keys and values of one (layer, page, kv head).
    pub(crate) fn block(&self, layer: usize, page: u32, head: usize) -> KvBlock<'_> {
        let start = self.block_start(layer, page, head);
        self.layout
            .split_block(&self.region.as_u16s()[start..start + self.block])
    }

    /// Offset of a layer.
    fn layer_start(&self, layer: usize) -> usize {
        layer * self.layer
    }

    fn block_start(&self, layer: usize, page: u32, head: usize) -> usize {
        assert!(layer < self.shape.layers && head < self.shape.kv_heads);
        assert!(
            (page as usize) < self.shape.pages,
            "page {page} is not there"
        );
        self.layer_start(layer) + block_index(page, head, self.shape.kv_heads) * self.block
    }

    fn check(&self, layer: usize, slots: &[KvSlot], k: &[f32], v: &[f32]) {
        let KvShape {
            layers,
            pages,
            page_tokens,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        assert!(layer < layers, "layer {layer} of {layers}");
        let wanted = slots.len() * kv_heads * head_dim;
        assert!(
            k.len() == wanted && v.len() == wanted,
            "k and v have {wanted}"
        );
        for place in slots {
            assert!(
                (place.page as usize) < pages && place.slot < page_tokens,
                "{place:?} is not there"
            );
        }
    }
}

/// Index of the block of a head of a page in its layer. The order of heads rotates from page to page: otherwise
/// a head's blocks would have one stride, mostly a large power of two, and map to few cache sets.
fn block_index(page: u32, head: usize, kv_heads: usize) -> usize {
    let turned = head + page as usize % kv_heads;
    let place = if turned < kv_heads {
        turned
    } else {
        turned - kv_heads
    };
    page as usize * kv_heads + place
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(shape) => write!(
                f,
                "no KV cache can have {} layers, {} pages of {} tokens and {} heads of {} numbers",
                shape.layers, shape.pages, shape.page_tokens, shape.kv_heads, shape.head_dim
            ),
            Self::Memory { bytes } => {
                write!(f, "the system refused {bytes} bytes for the KV cache")
            }
        }
    }
}

impl std::error::Error for KvError {}

/// Storage format of keys and values (cache type).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvKind {
    /// As f16: 2 bytes per element.
    #[default]
    F16,
    /// int8 with an f16 scale for each 32 elements of a head: 1.0625 bytes per element.
    Q8_0,
    /// 4 bits with an f16 scale for each 32 elements of a head: 0.5625 bytes per element.
    Q4_0,
}

impl KvKind {
    /// All storage formats.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// `f16`, `q8_0` or `q4_0`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Whether elements are quants with scales.
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Self::F16)
    }

    /// The storage format called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for KvKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
