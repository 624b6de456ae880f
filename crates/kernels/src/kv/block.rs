//! Layout of keys and values in a block.
//!
//! | kind | keys | values |
//! |---|---|---|
//! | f16 | transposed, 16 positions of one element adjacent: `(head_dim, slots)` | `(slots, elements)` |
//! | q8_0 | quants, four elements of a position adjacent: `(elements / 4, slots, 4)`; scales `(scale_groups, slots)` | quants `(slots, elements)`; scales `(scale_groups, slots)` |
//!
//! A *scale group* is [`SCALE_GROUP`] elements of one head that share a scale; the last group may be shorter.
//! Four adjacent elements are the operand of int8 dot-product instructions.

use super::kind::KvKind;
use super::region::{as_quants, as_quants_mut};
use super::shape::{KvShape, LANES};

/// Elements that share a scale.
pub(crate) const SCALE_GROUP: usize = 32;

/// Sizes of a block, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockLayout {
    kind: KvKind,
    head_dim: usize,
    pub(super) slots: usize,
    pub(super) elements: usize,
}

/// Keys and values of one (layer, page, kv head).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KvBlock<'a> {
    /// Bits of f16.
    F16 {
        /// `(head_dim, slots)`.
        keys: &'a [u16],
        /// `(slots, elements)`.
        values: &'a [u16],
    },
    /// Int8 with scales.
    Q8 {
        /// Quants `(elements / 4, slots, 4)`.
        keys: QuantizedKv<'a>,
        /// Quants `(slots, elements)`.
        values: QuantizedKv<'a>,
    },
}

/// Borrowed quants and scales of the keys or values of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantizedKv<'a> {
    /// From -127 to 127.
    pub(crate) quants: &'a [i8],
    /// Bits of f16, `(scale_groups, slots)`.
    pub(crate) scales: &'a [u16],
    /// Quants and scales as stored in memory.
    pub(crate) memory: &'a [u16],
}

/// Mutably borrowed quants and scales of the keys or values of a block.
pub(super) struct QuantizedKvMut<'a> {
    pub(super) quants: &'a mut [i8],
    pub(super) scales: &'a mut [u16],
}

impl<'a> KvBlock<'a> {
    /// The memory of the keys.
    pub(crate) fn key_memory(self) -> &'a [u16] {
        match self {
            Self::F16 { keys, .. } => keys,
            Self::Q8 { keys, .. } => keys.memory,
        }
    }

    /// The memory of the values.
    pub(crate) fn value_memory(self) -> &'a [u16] {
        match self {
            Self::F16 { values, .. } => values,
            Self::Q8 { values, .. } => values.memory,
        }
    }
}

impl BlockLayout {
    /// `None` if a size overflows.
    pub(super) fn of(shape: &KvShape) -> Option<Self> {
        Some(Self {
            kind: shape.kind,
            head_dim: shape.head_dim,
            slots: shape.page_tokens.checked_next_multiple_of(LANES)?,
            elements: shape.head_dim.checked_next_multiple_of(LANES)?,
        })
    }

    pub(super) fn kind(&self) -> KvKind {
        self.kind
    }

    /// u16 elements of a block.
    pub(super) fn u16_len(&self) -> Option<usize> {
        let row = match self.kind {
            KvKind::F16 => self.head_dim.checked_add(self.elements)?,
            KvKind::Q8_0 => self.elements.checked_add(2 * self.scale_groups())?,
        };
        row.checked_mul(self.slots)
    }

    /// Scales of one head's key or value.
    pub(super) fn scale_groups(&self) -> usize {
        self.elements.div_ceil(SCALE_GROUP)
    }

    /// u16 elements of the keys of an f16 block.
    pub(super) fn key_len(&self) -> usize {
        self.head_dim * self.slots
    }

    /// Borrows keys and values of a block.
    pub(super) fn split_block<'a>(&self, block: &'a [u16]) -> KvBlock<'a> {
        match self.kind {
            KvKind::F16 => {
                let (keys, values) = block.split_at(self.key_len());
                KvBlock::F16 { keys, values }
            }
            KvKind::Q8_0 => {
                let (keys, values) = block.split_at(block.len() / 2);
                let part = |part: &'a [u16]| {
                    let (bytes, scales) = part.split_at(self.slots * self.elements / 2);
                    QuantizedKv {
                        quants: as_quants(bytes),
                        scales,
                        memory: part,
                    }
                };
                KvBlock::Q8 {
                    keys: part(keys),
                    values: part(values),
                }
            }
        }
    }

    /// Mutably borrows quants and scales of keys and values.
    pub(super) fn quants_mut<'a>(&self, block: &'a mut [u16]) -> [QuantizedKvMut<'a>; 2] {
        let count = self.slots * self.elements / 2;
        let (keys, values) = block.split_at_mut(block.len() / 2);
        [keys, values].map(|part| {
            let (bytes, scales) = part.split_at_mut(count);
            QuantizedKvMut {
                quants: as_quants_mut(bytes),
                scales,
            }
        })
    }
}
