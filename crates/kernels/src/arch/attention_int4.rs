//! Unpacking 4-bit keys and values for AVX2, AVX-512 and NEON. The reference implementation is `attention::int4`.
//!
//! # Safety
//! All functions: the processor has the level of `L`.

use super::lanes::Lanes;

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Unpacking one vector of bytes.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait NibbleLanes: Lanes {
    /// Bytes of a vector.
    const BYTES: usize;
    /// Sign-extends the lower and the upper nibbles of [`Self::BYTES`] bytes.
    unsafe fn unpack_vector(from: *const u8, low: *mut i8, high: *mut i8);
}

/// Vector path of `attention::int4::scalar_nibbles`. The number of bytes is a multiple of 128: a page has at least 16 slots, and
/// a head 16 elements.
#[inline(always)]
pub(crate) unsafe fn unpack_nibbles<L: NibbleLanes>(
    packed: &[u8],
    low: &mut [i8],
    high: &mut [i8],
) {
    let bytes = packed.len();
    assert!(low.len() == bytes && high.len() == bytes && bytes.is_multiple_of(L::BYTES));
    for at in (0..bytes).step_by(L::BYTES) {
        // SAFETY: a vector from `at` on is within all three slices.
        unsafe {
            let from = packed.as_ptr().add(at);
            let (low, high) = (low.as_mut_ptr().add(at), high.as_mut_ptr().add(at));
            L::unpack_vector(from, low, high);
        }
    }
}
