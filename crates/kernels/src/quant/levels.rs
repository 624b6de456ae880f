//! Levels of formats whose quants are numbers of levels, not the levels themselves.
//!
//! Levels are stored as bytes with 128 added, as kernels multiply the quants of Q8_0.

/// Added to levels, so that they are unsigned.
const ZERO: i32 = 128;

/// Magnitudes of the IQ2 formats. A quant has the number of a magnitude in its low two bits, and the sign above.
const IQ2_MAGNITUDES: [i32; 4] = [8, 25, 43, 0];
/// Magnitudes of IQ3_XXS. A quant has the number of a magnitude in its low three bits, and the sign above.
const IQ3_XXS_MAGNITUDES: [i32; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// Magnitudes of IQ3_S.
const IQ3_S_MAGNITUDES: [i32; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// Levels of IQ4_NL and IQ4_XS.
pub(super) const IQ4: [u8; 16] = biased([
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
]);
/// Levels of MXFP4: twice the FP4 (E2M1) numbers, the positive ones first.
pub(super) const MXFP4: [u8; 16] =
    biased([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);
/// Levels of the IQ2 formats; the upper half is not used.
pub(super) const IQ2: [u8; 16] = signed(IQ2_MAGNITUDES);
/// Levels of IQ3_XXS.
pub(super) const IQ3_XXS: [u8; 16] = signed(IQ3_XXS_MAGNITUDES);
/// Levels of IQ3_S.
pub(super) const IQ3_S: [u8; 16] = signed(IQ3_S_MAGNITUDES);

/// The magnitudes, then their negatives.
const fn signed<const N: usize>(magnitudes: [i32; N]) -> [u8; 16] {
    let mut levels = [0; 16];
    let mut i = 0;
    while i < N {
        levels[i] = magnitudes[i];
        levels[N + i] = -magnitudes[i];
        i += 1;
    }
    biased(levels)
}

const fn biased(levels: [i32; 16]) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = (levels[i] + ZERO) as u8;
        i += 1;
    }
    bytes
}
