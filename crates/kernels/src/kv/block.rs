//! Layout of keys and values in a block.
//!
//! | kind | keys | values |
//! |---|---|---|
//! | f16 | transposed, 16 positions of one element adjacent: `(head_dim, slots)` | `(slots, elements)` |
//! | q8_0 | quants, four elements of a position adjacent: `(elements / 4, slots, 4)`; scales `(scale_groups, slots)` | quants `(slots, elements)`; scales `(scale_groups, slots)` |
//!
//! | q4_0 | as q8_0, and two quants to a byte: byte `i` holds quant `i` in the lower nibble and quant `i` plus half of their number in the upper one | the same |
//!
//! A *scale group* is [`SCALE_GROUP`] elements of one head that share a scale; the last group may be shorter.
//! Four adjacent elements are the operand of int8 dot-product instructions.

use super::kind::KvKind;
use super::region::{as_nibbles, as_nibbles_mut, as_quants, as_quants_mut};
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
    /// 4 bits with scales.
    Q4 {
        /// In the order of int8 keys.
        keys: NibbleKv<'a>,
        /// In the order of int8 values.
        values: NibbleKv<'a>,
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

/// Borrowed 4-bit quants and scales of the keys or values of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NibbleKv<'a> {
    /// Quants from -8 to 7 in two's complement: the first half in the lower nibbles, the second half in the upper ones.
    pub(crate) nibbles: &'a [u8],
    /// Bits of f16, `(scale_groups, slots)`.
    pub(crate) scales: &'a [u16],
    /// Quants and scales as stored in memory.
    pub(crate) memory: &'a [u16],
}

#[cfg(any(target_arch = "x86_64", test))]
impl NibbleKv<'_> {
    /// The quant at a place of the int8 layout.
    pub(crate) fn quant(&self, place: usize) -> i8 {
        let half = self.nibbles.len();
        if place < half {
            (self.nibbles[place] << 4) as i8 >> 4
        } else {
            self.nibbles[place - half] as i8 >> 4
        }
    }
}

/// Mutably borrowed 4-bit quants and scales of the keys or values of a block.
pub(super) struct NibbleKvMut<'a> {
    pub(super) nibbles: &'a mut [u8],
    pub(super) scales: &'a mut [u16],
}

impl NibbleKvMut<'_> {
    /// Stores the low four bits of a quant at a place of the int8 layout.
    pub(super) fn set_quant(&mut self, place: usize, quant: i8) {
        let (half, quant) = (self.nibbles.len(), quant as u8);
        if place < half {
            self.nibbles[place] = self.nibbles[place] & 0xf0 | quant & 0x0f;
        } else {
            let byte = &mut self.nibbles[place - half];
            *byte = *byte & 0x0f | quant << 4;
        }
    }
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
            Self::Q4 { keys, .. } => keys.memory,
        }
    }

    /// The memory of the values.
    pub(crate) fn value_memory(self) -> &'a [u16] {
        match self {
            Self::F16 { values, .. } => values,
            Self::Q8 { values, .. } => values.memory,
            Self::Q4 { values, .. } => values.memory,
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
            KvKind::Q4_0 => (self.elements / 2).checked_add(2 * self.scale_groups())?,
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
            KvKind::Q4_0 => {
                let (keys, values) = block.split_at(block.len() / 2);
                let part = |part: &'a [u16]| {
                    let (bytes, scales) = part.split_at(self.slots * self.elements / 4);
                    NibbleKv {
                        nibbles: as_nibbles(bytes),
                        scales,
                        memory: part,
                    }
                };
                KvBlock::Q4 {
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

    /// Mutably borrows 4-bit quants and scales of keys and values.
    pub(super) fn nibbles_mut<'a>(&self, block: &'a mut [u16]) -> [NibbleKvMut<'a>; 2] {
        let count = self.slots * self.elements / 4;
        let (keys, values) = block.split_at_mut(block.len() / 2);
        [keys, values].map(|part| {
            let (bytes, scales) = part.split_at_mut(count);
            NibbleKvMut {
                nibbles: as_nibbles_mut(bytes),
                scales,
            }
        })
    }
}
