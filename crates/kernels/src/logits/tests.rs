//! All levels against definitions of one line, and bit-equality among levels.

use super::*;

/// Lengths around the lanes and the blocks.
const LENGTHS: [usize; 14] = [0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300, 1000, 5000];

fn noise(len: usize, scale: f32) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * scale)
        .collect()
}

#[test]
fn exponential_error_is_bounded() {
    for i in 0..200_000 {
        let x = -(i as f32) * 4.5e-4;
        let (found, wanted) = (f64::from(loops::exp(x)), f64::from(x).exp());
        let off = (found / wanted - 1.0).abs();
        assert!(off < 3e-7 || (x <= -87.0 && found == 0.0), "{x}: {found}");
    }
    assert_eq!(loops::exp(0.0), 1.0);
    assert_eq!(loops::exp(f32::NEG_INFINITY), 0.0);
}

#[test]
fn one_broken_entry_makes_a_row_unsound_wherever_it_is() {
    for isa in Isa::available() {
        for len in LENGTHS.into_iter().filter(|len| *len > 0) {
            let never = vec![f32::NEG_INFINITY; len];
            assert!(!is_sound(isa, &never), "{isa}: none of {len} is possible");
            for at in [0, len / 3, len - 1] {
                let mut only = never.clone();
                only[at] = f32::MIN;
                assert!(is_sound(isa, &only), "{isa}: {at} of {len} is possible");
                for value in [f32::NAN, -f32::NAN, f32::INFINITY] {
                    let mut logits = noise(len, 3.0);
                    assert!(is_sound(isa, &logits), "{isa}: {len}");
                    assert!(all_finite(isa, &logits), "{isa}: {len}");
                    logits[at] = value;
                    assert!(!is_sound(isa, &logits), "{isa}: {value} at {at} of {len}");
                    assert!(!all_finite(isa, &logits), "{isa}: {value} at {at} of {len}");
                    logits[at] = f32::NEG_INFINITY;
                    assert!(!all_finite(isa, &logits), "{isa}: {at} of {len}");
                }
            }
        }
        assert!(!is_sound(isa, &[]));
    }
}

#[test]
fn most_likely_is_the_lowest_id_of_equals_at_any_length() {
    for isa in Isa::available() {
        for len in LENGTHS.into_iter().filter(|len| *len > 0) {
            for at in [0, len / 3, len - 1] {
                let mut logits = vec![-2.0; len];
                logits[at..].fill(1.5);
                assert_eq!(most_likely(isa, &logits), Some(at as u32), "{at} of {len}");
                assert_eq!(max(isa, &logits), 1.5);
                logits[..at].fill(f32::NAN);
                assert_eq!(most_likely(isa, &logits), Some(at as u32), "NaN before");
            }
            let never = vec![f32::NEG_INFINITY; len];
            assert_eq!(most_likely(isa, &never), None);
        }
        assert_eq!(most_likely(isa, &[]), None);
        assert_eq!(most_likely(isa, &[f32::NAN]), None);
    }
}

#[test]
fn sums_are_those_of_doubles() {
    for isa in Isa::available() {
        for len in LENGTHS {
            let logits = noise(len, 9.0);
            let most = max(isa, &logits);
            let wanted: f64 = logits.iter().map(|l| f64::from(l - most).exp()).sum();
            let sum = exp_sum(isa, &logits, most);
            assert!((sum - wanted).abs() <= 1e-6 * wanted, "{isa}: {len}: {sum}");
        }
        // No overflow on the way.
        assert_eq!(exp_sum(isa, &[88.0, -88.0, 3e38], 3e38), 1.0);
    }
}

/// Everything that the functions compute of a row, as bits.
fn bits(isa: Isa, logits: &[f32], temperature: f32) -> Vec<u64> {
    let most = max(isa, logits);
    let mut maxima = vec![0.0; logits.len().div_ceil(MAXIMA_BLOCK)];
    block_maxima(logits, &mut maxima);
    let mut weights = vec![0.0; logits.len()];
    softmax_weights(isa, logits, most, temperature, &mut weights);
    let mut masses = vec![0.0; logits.len().div_ceil(MASSES_BLOCK)];
    block_masses(isa, &weights, &mut masses);
    maxima.push(most);
    let singles = maxima.iter().chain(&weights);
    let doubles = masses.into_iter().chain([exp_sum(isa, logits, most)]);
    singles
        .map(|single| u64::from(single.to_bits()))
        .chain(doubles.map(f64::to_bits))
        .collect()
}

#[test]
fn all_levels_compute_the_same_bits() {
    for len in LENGTHS {
        for (scale, temperature) in [(0.1, 1.0), (9.0, 0.7), (300.0, 1.3), (1e30, 1e-6)] {
            let mut logits = noise(len, scale);
            if let Some(first) = logits.first_mut() {
                *first = f32::NEG_INFINITY;
            }
            let wanted = bits(Isa::scalar(), &logits, temperature);
            for isa in Isa::available() {
                assert_eq!(bits(isa, &logits, temperature), wanted, "{isa}: {len}");
            }
        }
    }
}

#[test]
fn blocks_are_those_of_their_entries() {
    let isa = Isa::detect();
    for len in LENGTHS {
        let logits = noise(len, 3.0);
        let mut maxima = vec![0.0; len.div_ceil(MAXIMA_BLOCK)];
        block_maxima(&logits, &mut maxima);
        for (most, block) in maxima.iter().zip(logits.chunks(MAXIMA_BLOCK)) {
            assert_eq!(*most, block.iter().copied().fold(f32::MIN, f32::max));
        }
        let mut masses = vec![0.0; len.div_ceil(MASSES_BLOCK)];
        block_masses(isa, &logits, &mut masses);
        for (mass, block) in masses.iter().zip(logits.chunks(MASSES_BLOCK)) {
            let wanted: f64 = block.iter().copied().map(f64::from).sum();
            assert!((mass - wanted).abs() < 1e-9, "{mass}, not {wanted}");
        }
    }
}
