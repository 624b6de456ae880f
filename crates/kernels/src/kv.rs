//! Paged keys and values, f16.
//!
//! What attention reads for one (layer, page, kv head) is one contiguous *block*: the keys, turned so
//! that one element of 16 positions lies side by side, `(head_dim, slots)`, then the values,
//! `(slots, elements)`. `slots` is `page_tokens` and `elements` is `head_dim`, each rounded up to
//! [`LANES`], so that a fast path never meets a tail. Padding stays zero.

mod region;
#[cfg(test)]
mod tests;

use crate::Pool;
use crate::pool::Disjoint;
use half::f16;
use half::slice::HalfFloatSliceExt;
use region::Region;
use std::fmt;

/// What slots and elements are rounded up to: the widest vector's count of f32.
pub(crate) const LANES: usize = 16;

/// Elements turned into f16 at a time.
const CHUNK: usize = 64;

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
    slots: usize,
    elements: usize,
    /// `(layers, pages, kv_heads, block)` f16.
    region: Region,
}

impl KvCache {
    /// Reserves it. Pages that were never written cost no resident memory (beyond the rounding to
    /// the system's pages, which may be 2 MiB large).
    pub fn new(shape: KvShape) -> Result<Self, KvError> {
        let slots = shape.page_tokens.checked_next_multiple_of(LANES);
        let elements = shape.head_dim.checked_next_multiple_of(LANES);
        let (slots, elements) = slots.zip(elements).ok_or(KvError::Shape(shape))?;
        let halves = [shape.layers, shape.pages, shape.kv_heads]
            .into_iter()
            .try_fold(block(shape.head_dim, slots, elements), |all, n| {
                all?.checked_mul(n).map(Some)
            })
            .flatten()
            .filter(|halves| *halves > 0 && *halves <= isize::MAX as usize / 2)
            .ok_or(KvError::Shape(shape))?;
        let region = Region::new(halves).ok_or(KvError::Memory { bytes: halves * 2 })?;
        Ok(Self {
            shape,
            slots,
            elements,
            region,
        })
    }

    /// Its sizes.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Bytes when fully used.
    pub fn bytes(&self) -> usize {
        self.region.halves().len() * 2
    }

    /// Stores one position: `k` and `v` are `(kv_heads, head_dim)`. Values beyond what f16 holds
    /// become its largest, so that no infinity enters attention.
    ///
    /// # Panics
    /// If the layer, page or slot is not there, or `k` or `v` has another length.
    pub fn store(&mut self, layer: usize, page: u32, slot: usize, k: &[f32], v: &[f32]) {
        let place = KvSlot { page, slot };
        self.check(layer, &[place], k, v);
        let head_dim = self.shape.head_dim;
        let (slots, elements) = (self.slots, self.elements);
        for head in 0..self.shape.kv_heads {
            let start = self.block_start(layer, page, head);
            let part =
                &mut self.region.halves_mut()[start..][..head_dim * slots + slots * elements];
            let heads = head * head_dim..(head + 1) * head_dim;
            write(part, slots, elements, slot, &k[heads.clone()], &v[heads]);
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
        let (stride, elements) = (self.slots, self.elements);
        let (start, page, block) = self.layer_strides(layer);
        let halves = Disjoint::new(self.region.halves_mut());
        pool.ranges(kv_heads, 1, |heads| {
            for (row, place) in slots.iter().enumerate() {
                for head in heads.clone() {
                    let at = start + place.page as usize * page + head * block;
                    // SAFETY: a head's blocks are touched by that head's one worker only.
                    let part = unsafe { halves.part(at..at + block) };
                    let from = (row * kv_heads + head) * head_dim;
                    let (k, v) = (&k[from..][..head_dim], &v[from..][..head_dim]);
                    write(part, stride, elements, place.slot, k, v);
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
            let (start, page, _) = self.layer_strides(layer);
            let source = start + from as usize * page;
            let target = start + to as usize * page;
            self.region
                .halves_mut()
                .copy_within(source..source + page, target);
        }
    }

    /// Slots and elements of a block, padding included.
    pub(crate) fn padded(&self) -> (usize, usize) {
        (self.slots, self.elements)
    }

    /// Keys `(head_dim, slots)` and values `(slots, elements)` of a block.
    pub(crate) fn block(&self, layer: usize, page: u32, head: usize) -> (&[u16], &[u16]) {
        let start = self.block_start(layer, page, head);
        let keys = self.shape.head_dim * self.slots;
        let values = self.slots * self.elements;
        self.region.halves()[start..start + keys + values].split_at(keys)
    }

    /// Where a layer begins, and the strides of pages and blocks.
    fn layer_strides(&self, layer: usize) -> (usize, usize, usize) {
        let block = self.shape.head_dim * self.slots + self.slots * self.elements;
        let page = block * self.shape.kv_heads;
        (layer * self.shape.pages * page, page, block)
    }

    fn block_start(&self, layer: usize, page: u32, head: usize) -> usize {
        assert!(layer < self.shape.layers && head < self.shape.kv_heads);
        assert!(
            (page as usize) < self.shape.pages,
            "page {page} is not there"
        );
        let (start, stride, block) = self.layer_strides(layer);
        start + page as usize * stride + head * block
    }

    fn check(&self, layer: usize, slots: &[KvSlot], k: &[f32], v: &[f32]) {
        let KvShape {
            layers,
            pages,
            page_tokens,
            kv_heads,
            head_dim,
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

/// f16s in one (page, head): keys, then values.
fn block(head_dim: usize, slots: usize, elements: usize) -> Option<usize> {
    let keys = head_dim.checked_mul(slots)?;
    keys.checked_add(slots.checked_mul(elements)?)
}

/// Writes one head's key and value of one slot into its block.
fn write(block: &mut [u16], slots: usize, elements: usize, slot: usize, k: &[f32], v: &[f32]) {
    let (keys, values) = block.split_at_mut(k.len() * slots);
    let mut columns = keys[slot..].iter_mut().step_by(slots);
    each_half(k, |half, _| {
        if let Some(at) = columns.next() {
            *at = half;
        }
    });
    let row = &mut values[slot * elements..][..v.len()];
    each_half(v, |half, i| row[i] = half);
}

/// Calls `put` with each value as the nearest finite f16, and its index.
fn each_half(values: &[f32], mut put: impl FnMut(u16, usize)) {
    let mut clamped = [0.0; CHUNK];
    let mut halves = [f16::ZERO; CHUNK];
    let max = f16::MAX.to_f32();
    for (chunk, values) in values.chunks(CHUNK).enumerate() {
        let n = values.len();
        for (to, from) in clamped.iter_mut().zip(values) {
            *to = from.clamp(-max, max);
        }
        halves[..n].convert_from_f32_slice(&clamped[..n]);
        for (i, half) in halves[..n].iter().enumerate() {
            put(half.to_bits(), chunk * CHUNK + i);
        }
    }
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
