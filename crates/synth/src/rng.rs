//! A small random number generator with equal output on every machine.

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
