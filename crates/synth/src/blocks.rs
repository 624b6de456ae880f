//! Random weights as blocks of a storage format, from a small generator with equal output on every machine.
//!
//! Layouts are those of `ggml-common.h`. The bits of the weights are uniform; scales vary by a factor of two
//! or more within a row and are chosen such that the weights have mean 0 (as nearly as the format's
//! asymmetric range allows) and the requested deviation.

use half::{bf16, f16};
use kernels::Format;

/// Fills a row with blocks of weights of deviation `deviation`. The length of `row` is a multiple of the
/// block size.
pub(super) fn fill_row(format: Format, deviation: f32, rng: &mut Rng, row: &mut [u8]) {
    for block in row.chunks_exact_mut(format.block_bytes()) {
        fill_block(format, deviation, rng, block);
    }
}

fn fill_block(format: Format, deviation: f32, rng: &mut Rng, block: &mut [u8]) {
    match format {
        Format::F32 => block.copy_from_slice(&(rng.normal() * deviation).to_le_bytes()),
        Format::F16 => put_f16(block, rng.normal() * deviation),
        Format::BF16 => {
            let weight = bf16::from_f32(rng.normal() * deviation);
            block.copy_from_slice(&weight.to_le_bytes());
        }
        Format::Q4_0 => plain(rng, block, deviation, 16, None),
        Format::Q4_1 => plain(rng, block, deviation, 16, Some(7.5)),
        Format::Q5_0 => plain(rng, block, deviation, 32, None),
        Format::Q5_1 => plain(rng, block, deviation, 32, Some(15.5)),
        Format::Q8_0 => q8_0(rng, block, deviation),
        Format::Q2_K => q2_k(rng, block, deviation),
        Format::Q3_K => q3_k(rng, block, deviation),
        Format::Q4_K => q45_k(rng, block, deviation, 16),
        Format::Q5_K => q45_k(rng, block, deviation, 32),
        Format::Q6_K => q6_k(rng, block, deviation),
        Format::MXFP4 => mxfp4(rng, block, deviation),
        _ => levels(format, rng, block, deviation),
    }
}

/// 32 numbers of levels, whose deviation is 5.85, and one of two powers of two, as often as makes the deviation right.
fn mxfp4(rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    let scale = deviation / 5.85;
    let power = scale.log2().floor();
    let square = (scale / power.exp2()).powi(2);
    let doubled = (rng.signed() + 1.0) / 2.0 < (square - 1.0) / 3.0;
    block[0] = (128.0 + power).clamp(0.0, 253.0) as u8 + u8::from(doubled);
}

/// IQ4_NL, IQ4_XS, IQ3 and IQ2: all bits are random, and the scale of the block makes up for the deviation of levels,
/// patterns and scales, which was measured.
fn levels(format: Format, rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    let spread = match format {
        Format::IQ4_NL => 67.2,
        Format::IQ4_XS => 1245.0,
        Format::IQ3_S => 140.4,
        Format::IQ3_XXS => 142.5,
        Format::IQ2_S => 56.4,
        Format::IQ2_XS => 55.9,
        _ => 53.3,
    };
    let flip = if rng.below(2) == 0 { -1.0 } else { 1.0 };
    put_f16(&mut block[..2], flip * deviation / spread * vary(rng));
}

/// Deviation of a uniform choice among `levels` neighboring integers.
fn uniform(levels: u32) -> f32 {
    let squares = levels as f32 * levels as f32 - 1.0;
    (squares / 12.0).sqrt()
}

/// A factor in 0.7..1.3, so that neighboring blocks have different scales.
fn vary(rng: &mut Rng) -> f32 {
    1.0 + 0.3 * rng.signed()
}

fn put_f16(bytes: &mut [u8], value: f32) {
    bytes.copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Q4_0, Q4_1, Q5_0, Q5_1: a scale, optionally a minimum of `-center` scales, then bits. Without a minimum
/// the range is asymmetric by half a step; scales of either sign (as quantizers produce) compensate.
fn plain(rng: &mut Rng, block: &mut [u8], deviation: f32, levels: u32, center: Option<f32>) {
    rng.fill(block);
    let flip = center.is_none() && rng.below(2) == 0;
    let scale = deviation / uniform(levels) * vary(rng) * if flip { -1.0 } else { 1.0 };
    put_f16(&mut block[..2], scale);
    if let Some(center) = center {
        put_f16(&mut block[2..4], -center * scale);
    }
}

/// A scale and 32 signed bytes. -128 does not occur, as in quantizers' output.
fn q8_0(rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    put_f16(&mut block[..2], deviation / uniform(255) * vary(rng));
    for weight in &mut block[2..] {
        if *weight == 0x80 {
            *weight = 0x81;
        }
    }
}

/// 16 bytes of scale and minimum (4 bits each), 64 of weights, `d`, `dmin`: `d * scale * q - dmin * min`.
fn q2_k(rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    for pair in &mut block[..16] {
        let scale = 6 + (*pair & 15) % 10;
        *pair = scale | near(scale, *pair >> 4, 15) << 4;
    }
    // Scales are 6 to 15; 10.9 is the root of their mean square.
    let d = deviation / (10.9 * uniform(4)) * vary(rng);
    put_f16(&mut block[80..82], d);
    put_f16(&mut block[82..84], 1.5 * d);
}

/// 32 bytes of high bits, 64 of low bits, 12 of 6-bit scales, `d`: `d * (scale - 32) * (q - 4)`.
fn q3_k(rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    // Scales of either sign, 12 to 31 in size (22.3 in the mean square).
    let scales: [u8; 16] = std::array::from_fn(|_| {
        let size = 12 + rng.below(20) as u8;
        if rng.below(2) == 0 {
            32 + size
        } else {
            32 - size
        }
    });
    let packed = &mut block[96..108];
    packed.fill(0);
    for (i, scale) in scales.into_iter().enumerate() {
        packed[i % 8] |= (scale & 15) << (4 * (i / 8));
        packed[8 + i % 4] |= (scale >> 4) << (2 * (i / 4));
    }
    put_f16(
        &mut block[108..],
        deviation / (22.3 * uniform(8)) * vary(rng),
    );
}

/// `d`, `dmin`, 12 bytes of eight 6-bit scales and minima, then bits only: `d * scale * q - dmin * min`.
fn q45_k(rng: &mut Rng, block: &mut [u8], deviation: f32, levels: u32) {
    rng.fill(block);
    // Scales are 24 to 63; 45 is the root of their mean square.
    let d = deviation / (45.0 * uniform(levels)) * vary(rng);
    put_f16(&mut block[..2], d);
    put_f16(&mut block[2..4], (levels - 1) as f32 / 2.0 * d);
    let scales: [u8; 8] = std::array::from_fn(|_| 24 + rng.below(40) as u8);
    let mins = scales.map(|scale| near(scale, rng.below(16) as u8, 63));
    let packed = &mut block[4..16];
    for i in 0..4 {
        packed[i] = scales[i] | scales[i + 4] >> 4 << 6;
        packed[i + 4] = mins[i] | mins[i + 4] >> 4 << 6;
        packed[i + 8] = scales[i + 4] & 15 | (mins[i + 4] & 15) << 4;
    }
}

/// 128 bytes of low bits, 64 of high bits, 16 signed scales, `d`: `d * scale * (q - 32)`.
fn q6_k(rng: &mut Rng, block: &mut [u8], deviation: f32) {
    rng.fill(block);
    for scale in &mut block[192..208] {
        let size = 48 + *scale as i8 % 80; // -31 to 127
        *scale = if size % 2 == 0 { size } else { -size } as u8;
    }
    // 65 is the root of the scales' mean square.
    put_f16(
        &mut block[208..],
        deviation / (65.0 * uniform(64)) * vary(rng),
    );
}

/// A minimum close to the scale (which would center the weights exactly), in 0..=`max`.
fn near(scale: u8, random: u8, max: u8) -> u8 {
    let around = scale as i8 + (random % 5) as i8 - 2;
    around.clamp(0, max as i8) as u8
}

/// SplitMix64 (Steele, Lea, Flood 2014): 64 random bits for a few instructions. Not for secrets.
pub(super) struct Rng(u64);

impl Rng {
    /// The generator of one row of one tensor.
    pub(super) fn of_row(seed: u64, tensor: &str, row: u64) -> Self {
        // FNV-1a of the name, then two rounds that spread the small differences between row numbers.
        let name = tensor
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let mut rng = Self(seed ^ name);
        let start = rng
            .bits()
            .wrapping_add(row.wrapping_mul(0xd134_2543_de82_ef95));
        Self(start)
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `0..bound`; `bound` is small, so the remainder's bias does not matter.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (self.bits() >> 32) as u32 % bound
    }

    /// A number in `-1.0..1.0`.
    pub(super) fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A number with mean 0 and deviation 1, nearly normal: the sum of four uniform integers, which is exact
    /// everywhere.
    pub(super) fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum = (0..4)
            .map(|i| (bits >> (16 * i)) as u16 as i32)
            .sum::<i32>()
            - 2 * 65_535;
        // The deviation of one summand is 65536 / sqrt(12), of four twice that.
        sum as f32 * (1.732_050_8 / 65_536.0)
    }

    /// Fills with random bytes.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_mean_0_and_deviation_1() {
        let mut rng = Rng::of_row(1, "a", 0);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn rows_and_tensors_have_distinct_randomness() {
        let first = |seed, tensor, row| Rng::of_row(seed, tensor, row).bits();
        assert_ne!(first(1, "a", 0), first(1, "a", 1));
        assert_ne!(first(1, "a", 0), first(1, "b", 0));
        assert_ne!(first(1, "a", 0), first(2, "a", 0));
        assert_eq!(first(1, "a", 7), first(1, "a", 7));
    }
}
