//! Random numbers without a state: a hash of a token's position. A sequence that was preempted
//! and rebuilt, or resumed elsewhere, gets the same numbers again.

/// A number in `[0, 1)` for token `index` of choice `choice` of a request with this seed.
pub(crate) fn uniform(seed: u64, choice: u32, index: u64) -> f64 {
    let hash = mix(mix(mix(seed) ^ u64::from(choice)) ^ index);
    // The upper 53 bits are a double's whole precision.
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// SplitMix64 of Steele, Lea and Flood: the increment, then the finalizer (variant 13 of Stafford).
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_along_each_argument() {
        // Chi-squared over 64 bins, 63 degrees of freedom; the numbers are fixed, so is the sum.
        let (bins, draws) = (64, 64_000);
        for axis in ["seed", "choice", "index"] {
            let mut counts = vec![0u32; bins];
            for i in 0..draws {
                let x = match axis {
                    "seed" => uniform(i, 0, 0),
                    "choice" => uniform(7, i as u32, 0),
                    _ => uniform(7, 0, i),
                };
                counts[(x * bins as f64) as usize] += 1;
            }
            let expected = draws as f64 / bins as f64;
            let sum: f64 = counts
                .iter()
                .map(|&c| (f64::from(c) - expected).powi(2) / expected)
                .sum();
            assert!(sum < 110.0, "{axis}: chi-squared {sum}");
        }
    }

    #[test]
    fn number_depends_on_each_argument() {
        let base = uniform(1, 2, 3);
        assert_eq!(base, uniform(1, 2, 3));
        for other in [
            uniform(2, 2, 3),
            uniform(1, 3, 3),
            uniform(1, 2, 4),
            uniform(1, 3, 2),
        ] {
            assert_ne!(base, other);
        }
    }
}
