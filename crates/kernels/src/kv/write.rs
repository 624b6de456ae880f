//! Writing one position's key and value of one head into a block.

use super::block::{BlockLayout, NibbleKvMut, QuantizedKvMut, SCALE_GROUP};
use super::kind::KvKind;
use half::f16;
use half::slice::HalfFloatSliceExt;

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
