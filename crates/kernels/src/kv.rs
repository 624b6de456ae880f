//! Paged keys and values, as f16 or in 8 bits.
//!
//! What attention reads for one (layer, page, kv head) is one contiguous *block*: keys, then values, as
//! [`block::BlockLayout`] tells. `slots` is `page_tokens` and `elements` is `head_dim`, each rounded up to
//! [`LANES`], so that a fast path never meets a tail. Padding stays zero.

mod block;
mod kind;
mod region;
mod shape;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use block::{KvBlock, QuantizedKv, SCALE_GROUP};
pub use kind::KvKind;
pub use shape::KvShape;
pub(crate) use shape::LANES;

use crate::Pool;
use crate::pool::DisjointSlice;
use block::BlockLayout;
use region::Region;
use std::fmt;

impl KvShape {
    /// Bytes when fully used; `None` if a size is zero, or if they do not fit the address space.
    pub fn bytes(&self) -> Option<usize> {
        let halves = BlockLayout::of(self)?.u16_len()?;
        [self.layers, self.pages, self.kv_heads]
            .into_iter()
            .try_fold(halves, usize::checked_mul)
            .filter(|halves| *halves > 0 && *halves <= isize::MAX as usize / 2)
            .map(|halves| halves * 2)
    }
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
    shape: KvShape,
    layout: BlockLayout,
    /// Units of two bytes in a block.
    block: usize,
    /// `(layers, pages, kv_heads, block)`, in units of two bytes.
    region: Region,
}

impl KvCache {
    /// Reserves it. Pages that were never written cost no resident memory (beyond the rounding to
    /// the system's pages, which may be 2 MiB large).
    pub fn new(shape: KvShape) -> Result<Self, KvError> {
        let bytes = shape.bytes().ok_or(KvError::Shape(shape))?;
        let layout = BlockLayout::of(&shape).ok_or(KvError::Shape(shape))?;
        let block = layout.u16_len().ok_or(KvError::Shape(shape))?;
        let region = Region::new(bytes / 2).ok_or(KvError::Memory { bytes })?;
        Ok(Self {
            shape,
            layout,
            block,
            region,
        })
    }

    /// Its sizes.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Bytes when fully used.
    pub fn bytes(&self) -> usize {
        self.region.as_u16s().len() * 2
    }

    /// Stores one position: `k` and `v` are `(kv_heads, head_dim)`. Values beyond what can be kept
    /// become the largest that can, so that no infinity enters attention.
    ///
    /// # Panics
    /// If the layer, page or slot is not there, or `k` or `v` has another length.
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

    /// Stores many positions over the pool: `k` and `v` are `(slots.len(), kv_heads, head_dim)`. Of
    /// two rows for one slot the later stays.
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
        let halves = DisjointSlice::new(self.region.as_u16s_mut());
        pool.ranges(kv_heads, 1, |heads| {
            for (row, place) in slots.iter().enumerate() {
                for head in heads.clone() {
                    let at = start + block_index(place.page, head, kv_heads) * block;
                    // SAFETY: a head's blocks are touched by that head's one worker only.
                    let part = unsafe { halves.part(at..at + block) };
                    let from = (row * kv_heads + head) * head_dim;
                    let (k, v) = (&k[from..][..head_dim], &v[from..][..head_dim]);
                    layout.write_slot(part, place.slot, k, v);
                }
            }
        });
    }

    /// Copies a page, all layers.
    ///
    /// # Panics
    /// If a page is not there.
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

    /// Where a layer begins.
    fn layer_start(&self, layer: usize) -> usize {
        layer * self.shape.pages * self.shape.kv_heads * self.block
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

/// Which of a layer's blocks holds a head of a page. Heads change their places from page to page: a head's
/// blocks would else lie at one stride, mostly a large power of two, and a cache keeps few lines at such.
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
            Self::Shape(shape) => write!(f, "no KV cache can have the shape {shape:?}"),
            Self::Memory { bytes } => {
                write!(f, "the system refused {bytes} bytes for the KV cache")
            }
        }
    }
}

impl std::error::Error for KvError {}
