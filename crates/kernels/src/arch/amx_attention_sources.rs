//! Keys and values of one slot group in memory, read as f32 by [`super::amx_attention_pack`].

use super::amx_attention_pack::SlotGroup;
use super::lanes::{F32x16, Lanes};
use crate::kv::{LANES, NibbleKv, QuantizedKv, SCALE_GROUP};
use core::arch::x86_64::*;

/// Keys or values of one slot group in memory.
///
/// # Safety
/// Of both methods: the processor has AVX-512, and the element is in range.
pub(super) trait KvSource {
    /// One element of sixteen keys.
    unsafe fn load_key(&self, element: usize) -> __m512;
    /// Sixteen elements of one value, from a multiple of sixteen on.
    unsafe fn load_value(&self, slot: usize, element: usize) -> __m512;
}

/// f16: keys `(dim, row)`, or values `(slots, row)`.
pub(super) struct F16Source {
    at: *const u16,
    row: usize,
}

/// int8: keys `(elements / 4, slots, 4)` or values `(slots, row)`, and scales `(scale groups, slots)`.
pub(super) struct Int8Source {
    quants: *const i8,
    row: usize,
    scales: *const u16,
    slots: usize,
}

/// 4 bits: as [`Int8Source`], with two quants to a byte, those of the second half of the int8 layout in the upper nibbles.
pub(super) struct Int4Source {
    nibbles: *const u8,
    /// Bytes: the places of the first half.
    half: usize,
    /// Place of the first element of the group.
    start: usize,
    row: usize,
    scales: *const u16,
    slots: usize,
}

impl F16Source {
    pub(super) fn keys(keys: &[u16], group: SlotGroup<'_>, dim: usize) -> Self {
        assert!(keys.len() == dim * group.slots && group.first + LANES <= group.slots);
        Self {
            at: keys[group.first..].as_ptr(),
            row: group.slots,
        }
    }

    pub(super) fn values(values: &[u16], group: SlotGroup<'_>, elements: usize) -> Self {
        assert!(values.len() == group.slots * elements && group.first + LANES <= group.slots);
        Self {
            at: values[group.first * elements..].as_ptr(),
            row: elements,
        }
    }
}

impl Int8Source {
    pub(super) fn keys(keys: QuantizedKv<'_>, group: SlotGroup<'_>, dim: usize) -> Self {
        let elements = dim.next_multiple_of(LANES);
        Self {
            quants: keys.quants[group.first * 4..].as_ptr(),
            ..Self::values(keys, group, elements)
        }
    }

    pub(super) fn values(values: QuantizedKv<'_>, group: SlotGroup<'_>, elements: usize) -> Self {
        let SlotGroup { slots, first, .. } = group;
        assert!(values.quants.len() == slots * elements && first + LANES <= slots);
        assert!(values.scales.len() == elements.div_ceil(SCALE_GROUP) * slots);
        Self {
            quants: values.quants[first * elements..].as_ptr(),
            row: elements,
            scales: values.scales[first..].as_ptr(),
            slots,
        }
    }
}

impl Int4Source {
    pub(super) fn keys(keys: NibbleKv<'_>, group: SlotGroup<'_>, dim: usize) -> Self {
        let elements = dim.next_multiple_of(LANES);
        Self {
            start: group.first * 4,
            ..Self::values(keys, group, elements)
        }
    }

    pub(super) fn values(values: NibbleKv<'_>, group: SlotGroup<'_>, elements: usize) -> Self {
        let SlotGroup { slots, first, .. } = group;
        let half = values.nibbles.len();
        assert!(2 * half == slots * elements && first + LANES <= slots);
        // So sixteen values, and four elements of sixteen keys, are in one half.
        assert!(half.is_multiple_of(4 * LANES) && slots.is_multiple_of(LANES));
        assert!(values.scales.len() == elements.div_ceil(SCALE_GROUP) * slots);
        Self {
            nibbles: values.nibbles.as_ptr(),
            half,
            start: first * elements,
            row: elements,
            scales: values.scales[first..].as_ptr(),
            slots,
        }
    }

    /// The bytes with the quants from this place on, and the bit of each byte above the quant.
    ///
    /// # Safety
    /// The place is in range.
    #[inline(always)]
    unsafe fn find(&self, place: usize) -> (*const u8, i32) {
        let place = self.start + place;
        let (byte, end) = if place < self.half {
            (place, 4)
        } else {
            (place - self.half, 8)
        };
        // SAFETY: the place is in range, so the byte is within the nibbles.
        (unsafe { self.nibbles.add(byte) }, end)
    }
}

// SAFETY of all blocks: the contract of the trait.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl KvSource for F16Source {
    #[inline(always)]
    unsafe fn load_key(&self, element: usize) -> __m512 {
        unsafe { F32x16::load_f16(self.at.add(element * self.row)).0 }
    }

    #[inline(always)]
    unsafe fn load_value(&self, slot: usize, element: usize) -> __m512 {
        unsafe { F32x16::load_f16(self.at.add(slot * self.row + element)).0 }
    }
}

// SAFETY of all blocks: the contract of the trait.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl KvSource for Int8Source {
    #[inline(always)]
    unsafe fn load_key(&self, element: usize) -> __m512 {
        unsafe {
            let quants = self.quants.add(element / 4 * self.slots * 4);
            let quants = _mm512_loadu_si512(quants.cast());
            let above = _mm512_set1_epi32(24 - element as i32 % 4 * 8);
            let quants = _mm512_srai_epi32::<24>(_mm512_sllv_epi32(quants, above));
            let scales = F32x16::load_f16(self.scales.add(element / SCALE_GROUP * self.slots));
            _mm512_mul_ps(_mm512_cvtepi32_ps(quants), scales.0)
        }
    }

    #[inline(always)]
    unsafe fn load_value(&self, slot: usize, element: usize) -> __m512 {
        unsafe {
            let quants = _mm_loadu_si128(self.quants.add(slot * self.row + element).cast());
            let quants = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quants));
            let scale = *self.scales.add(element / SCALE_GROUP * self.slots + slot);
            let scale = _mm512_cvtph_ps(_mm256_set1_epi16(scale as i16));
            _mm512_mul_ps(quants, scale)
        }
    }
}

// SAFETY of all blocks: the contract of the trait. A quant is moved to the upper end of its lane, and back with its sign.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl KvSource for Int4Source {
    #[inline(always)]
    unsafe fn load_key(&self, element: usize) -> __m512 {
        unsafe {
            let (quants, end) = self.find(element / 4 * self.slots * 4);
            let quants = _mm512_loadu_si512(quants.cast());
            let above = _mm512_set1_epi32(32 - end - element as i32 % 4 * 8);
            let quants = _mm512_srai_epi32::<28>(_mm512_sllv_epi32(quants, above));
            let scales = F32x16::load_f16(self.scales.add(element / SCALE_GROUP * self.slots));
            _mm512_mul_ps(_mm512_cvtepi32_ps(quants), scales.0)
        }
    }

    #[inline(always)]
    unsafe fn load_value(&self, slot: usize, element: usize) -> __m512 {
        unsafe {
            let (quants, end) = self.find(slot * self.row + element);
            let quants = _mm512_cvtepu8_epi32(_mm_loadu_si128(quants.cast()));
            let above = _mm512_set1_epi32(32 - end);
            let quants = _mm512_srai_epi32::<28>(_mm512_sllv_epi32(quants, above));
            let scale = *self.scales.add(element / SCALE_GROUP * self.slots + slot);
            let scale = _mm512_cvtph_ps(_mm256_set1_epi16(scale as i16));
            _mm512_mul_ps(_mm512_cvtepi32_ps(quants), scale)
        }
    }
}
