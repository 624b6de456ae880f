//! Where a block keeps its keys and values.
//!
//! | kind | keys | values |
//! |---|---|---|
//! | f16 | turned, so that one element of 16 positions lies side by side: `(head_dim, slots)` | `(slots, elements)` |
//! | q8_0 | codes, four elements of a position side by side: `(elements / 4, slots, 4)`; scales `(quanta, slots)` | codes `(slots, elements)`; scales `(quanta, slots)` |
//!
//! A *quantum* is [`QUANTUM`] elements of one head that share a scale; the last may be shorter. Four
//! elements side by side are what the processors' dot products of 8 bits take.

use super::kind::KvKind;
use super::region::{codes, codes_mut};
use super::shape::{KvShape, LANES};

/// Elements that share a scale.
pub(crate) const QUANTUM: usize = 32;

/// Sizes of a block, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    kind: KvKind,
    head_dim: usize,
    pub(super) slots: usize,
    pub(super) elements: usize,
}

/// Keys and values of one (layer, page, kv head).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Block<'a> {
    /// Bits of f16.
    F16 {
        /// `(head_dim, slots)`.
        keys: &'a [u16],
        /// `(slots, elements)`.
        values: &'a [u16],
    },
    /// Codes of 8 bits.
    Q8 {
        /// Codes `(elements / 4, slots, 4)`.
        keys: Codes<'a>,
        /// Codes `(slots, elements)`.
        values: Codes<'a>,
    },
}

/// Codes and what they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Codes<'a> {
    /// From -127 to 127.
    pub(crate) codes: &'a [i8],
    /// Bits of f16, `(quanta, slots)`.
    pub(crate) scales: &'a [u16],
    /// Both, as they lie in memory.
    pub(crate) whole: &'a [u16],
}

/// The same, to be written.
pub(super) struct CodesMut<'a> {
    pub(super) codes: &'a mut [i8],
    pub(super) scales: &'a mut [u16],
}

impl<'a> Block<'a> {
    /// The memory of its keys.
    pub(crate) fn key_memory(self) -> &'a [u16] {
        match self {
            Self::F16 { keys, .. } => keys,
            Self::Q8 { keys, .. } => keys.whole,
        }
    }

    /// The memory of its values.
    pub(crate) fn value_memory(self) -> &'a [u16] {
        match self {
            Self::F16 { values, .. } => values,
            Self::Q8 { values, .. } => values.whole,
        }
    }
}

impl Layout {
    /// `None` if a size cannot be counted.
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

    /// Units of two bytes in a block.
    pub(super) fn halves(&self) -> Option<usize> {
        let row = match self.kind {
            KvKind::F16 => self.head_dim.checked_add(self.elements)?,
            KvKind::Q8_0 => self.elements.checked_add(2 * self.quanta())?,
        };
        row.checked_mul(self.slots)
    }

    /// Scales of one head's key or value.
    pub(super) fn quanta(&self) -> usize {
        self.elements.div_ceil(QUANTUM)
    }

    /// Halves of an f16 block's keys.
    pub(super) fn key_halves(&self) -> usize {
        self.head_dim * self.slots
    }

    /// Takes a block apart.
    pub(super) fn read<'a>(&self, block: &'a [u16]) -> Block<'a> {
        match self.kind {
            KvKind::F16 => {
                let (keys, values) = block.split_at(self.key_halves());
                Block::F16 { keys, values }
            }
            KvKind::Q8_0 => {
                let (keys, values) = block.split_at(block.len() / 2);
                let part = |part: &'a [u16]| {
                    let (bytes, scales) = part.split_at(self.slots * self.elements / 2);
                    Codes {
                        codes: codes(bytes),
                        scales,
                        whole: part,
                    }
                };
                Block::Q8 {
                    keys: part(keys),
                    values: part(values),
                }
            }
        }
    }

    /// Codes of a block's keys and values, to be written.
    pub(super) fn codes_mut<'a>(&self, block: &'a mut [u16]) -> [CodesMut<'a>; 2] {
        let count = self.slots * self.elements / 2;
        let (keys, values) = block.split_at_mut(block.len() / 2);
        [keys, values].map(|part| {
            let (bytes, scales) = part.split_at_mut(count);
            CodesMut {
                codes: codes_mut(bytes),
                scales,
            }
        })
    }
}
