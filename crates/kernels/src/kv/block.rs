//! Keys and values in a block: the layout, and writing one position's key and value of one head.

use super::region::{as_nibbles, as_nibbles_mut, as_quants, as_quants_mut};
use super::{KvKind, KvShape, LANES};
use half::f16;
use half::slice::HalfFloatSliceExt;

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

/// Elements per conversion to f16.
const CHUNK: usize = 64;
/// Largest quant.
const QUANT_MAX: f32 = 127.0;
/// 1.5 times 2^23: adding it to a number leaves the rounded number in the low bits.
const MAGIC: f32 = 12_582_912.0;
/// Multiples of the scale that the value of the largest magnitude may become in 4 bits. The first uses the whole range, the
/// last has room for a value of the same magnitude and the other sign.
const NIBBLE_EXTREMES: [f32; 3] = [-8.0, -7.5, -7.0];

impl BlockLayout {
    /// Writes `k` and `v`, `(head_dim)` each, into a block's slot.
    pub(super) fn write_slot(&self, block: &mut [u16], slot: usize, k: &[f32], v: &[f32]) {
        match self.kind() {
            KvKind::F16 => self.write_f16(block, slot, k, v),
            KvKind::Q8_0 => {
                let [mut keys, mut values] = self.quants_mut(block);
                let slots = self.slots;
                self.write_quantized(&mut keys, slot, k, |e| (e / 4 * slots + slot) * 4 + e % 4);
                self.write_quantized(&mut values, slot, v, |e| slot * self.elements + e);
            }
            KvKind::Q4_0 => {
                let [mut keys, mut values] = self.nibbles_mut(block);
                let slots = self.slots;
                self.write_nibbles(&mut keys, slot, k, |e| (e / 4 * slots + slot) * 4 + e % 4);
                self.write_nibbles(&mut values, slot, v, |e| slot * self.elements + e);
            }
        }
    }

    fn write_f16(&self, block: &mut [u16], slot: usize, k: &[f32], v: &[f32]) {
        let (keys, values) = block.split_at_mut(self.key_len());
        let mut columns = keys[slot..].iter_mut().step_by(self.slots);
        for_each_f16(k, |half, _| {
            if let Some(at) = columns.next() {
                *at = half;
            }
        });
        let row = &mut values[slot * self.elements..][..v.len()];
        for_each_f16(v, |half, i| row[i] = half);
    }

    /// Quantizes `from`; element `e` is stored at `place(e)`.
    fn write_quantized(
        &self,
        to: &mut QuantizedKvMut<'_>,
        slot: usize,
        from: &[f32],
        place: impl Fn(usize) -> usize,
    ) {
        for (group, values) in from.chunks(SCALE_GROUP).enumerate() {
            let (scale, quants) = quantize_group(values);
            to.scales[group * self.slots + slot] = scale.to_bits();
            for (i, quant) in quants[..values.len()].iter().enumerate() {
                to.quants[place(group * SCALE_GROUP + i)] = *quant;
            }
        }
    }

    /// Quantizes `from` to 4 bits; element `e` is stored at `place(e)` of the int8 layout.
    fn write_nibbles(
        &self,
        to: &mut NibbleKvMut<'_>,
        slot: usize,
        from: &[f32],
        place: impl Fn(usize) -> usize,
    ) {
        for (group, values) in from.chunks(SCALE_GROUP).enumerate() {
            let (scale, quants) = quantize_nibble_group(values);
            to.scales[group * self.slots + slot] = scale.to_bits();
            for (i, quant) in quants[..values.len()].iter().enumerate() {
                to.set_quant(place(group * SCALE_GROUP + i), *quant);
            }
        }
    }
}

/// Quantizes up to [`SCALE_GROUP`] values to the nearest of `scale * (-8..=7)`, with the scale among those of
/// [`NIBBLE_EXTREMES`] that has the least sum of squared errors; the first of equal ones. The scale has the sign that gives the
/// value of the largest magnitude the larger end of the range. One NaN makes the scale NaN.
pub(crate) fn quantize_nibble_group(values: &[f32]) -> (f16, [i8; SCALE_GROUP]) {
    let limit = f16::MAX.to_f32() * 7.0;
    let most = values.iter().fold(0.0f32, |most, &x| {
        let x = x.clamp(-limit, limit);
        if x.abs() > most.abs() { x } else { most }
    });
    if values.iter().any(|x| x.is_nan()) {
        return (f16::NAN, [0; SCALE_GROUP]);
    }
    let (mut best, mut least) = ((f16::ZERO, [0; SCALE_GROUP]), f32::INFINITY);
    for extreme in NIBBLE_EXTREMES {
        let scale = f16::from_f32(most / extreme);
        let step = scale.to_f32();
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let (mut quants, mut error) = ([0; SCALE_GROUP], 0.0f32);
        for (quant, x) in quants.iter_mut().zip(values) {
            let x = x.clamp(-limit, limit);
            let near = (x * inverse).clamp(-8.0, 7.0) + MAGIC;
            *quant = near.to_bits() as i8;
            let off = f32::from(*quant) * step - x;
            error += off * off;
        }
        if error < least {
            (best, least) = ((scale, quants), error);
        }
    }
    best
}

/// Quantizes up to [`SCALE_GROUP`] values to the nearest of `scale * (-127..=127)`. One NaN makes the scale
/// NaN, so that the NaN stays visible.
fn quantize_group(values: &[f32]) -> (f16, [i8; SCALE_GROUP]) {
    let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let most = most.min(f16::MAX.to_f32() * QUANT_MAX);
    let has_nan = values.iter().fold(false, |any, x| any | x.is_nan());
    let scale = if has_nan {
        f16::NAN
    } else {
        f16::from_f32(most / QUANT_MAX)
    };
    let step = scale.to_f32();
    let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
    let mut quants = [0; SCALE_GROUP];
    for (quant, x) in quants.iter_mut().zip(values) {
        let near = x.clamp(-most, most) * inverse;
        let near = near.clamp(-QUANT_MAX, QUANT_MAX);
        *quant = (near + MAGIC).to_bits() as i8;
    }
    (scale, quants)
}

/// Calls `put` with each value as the nearest finite f16, and with the index.
fn for_each_f16(values: &[f32], mut put: impl FnMut(u16, usize)) {
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
