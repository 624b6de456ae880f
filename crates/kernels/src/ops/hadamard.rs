//! Walsh–Hadamard transform.

/// Replaces each `group` consecutive elements of `x` by their orthonormal Walsh–Hadamard transform, which is its own inverse and
/// keeps dot products. A large element is spread over its group.
///
/// The order of additions is that of the butterflies, with rising distance, on every level.
///
/// # Panics
/// If `group` is no power of two, or `x` has no whole groups.
pub fn walsh_hadamard(x: &mut [f32], group: usize) {
    assert!(
        group.is_power_of_two() && x.len().is_multiple_of(group),
        "{} elements in groups of {group}",
        x.len()
    );
    let factor = 1.0 / (group as f32).sqrt();
    for part in x.chunks_exact_mut(group) {
        let mut distance = 1;
        while distance < group {
            for pair in part.chunks_exact_mut(2 * distance) {
                let (low, high) = pair.split_at_mut(distance);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            distance *= 2;
        }
        part.iter_mut().for_each(|x| *x *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 1.7 + 0.3).sin()).collect()
    }

    #[test]
    fn transform_is_the_matrix_of_signs() {
        for group in [1usize, 2, 8, 64, 256] {
            let x = noise(3 * group);
            let mut found = x.clone();
            walsh_hadamard(&mut found, group);
            for (found, x) in found.chunks(group).zip(x.chunks(group)) {
                for (row, found) in found.iter().enumerate() {
                    let sign = |col: usize| 1.0 - 2.0 * f64::from((row & col).count_ones() % 2);
                    let sum: f64 = (0..group).map(|col| sign(col) * f64::from(x[col])).sum();
                    let want = sum / (group as f64).sqrt();
                    assert!((f64::from(*found) - want).abs() < 1e-5, "{group}, {row}");
                }
            }
        }
    }

    #[test]
    fn transform_is_its_own_inverse_and_keeps_dot_products() {
        let (a, b) = (noise(128), noise(256).split_off(128));
        let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let (mut turned_a, mut turned_b) = (a.clone(), b.clone());
        walsh_hadamard(&mut turned_a, 64);
        walsh_hadamard(&mut turned_b, 64);
        assert!((dot(&a, &b) - dot(&turned_a, &turned_b)).abs() < 1e-3);
        walsh_hadamard(&mut turned_a, 64);
        assert!(
            a.iter()
                .zip(&turned_a)
                .all(|(a, back)| (a - back).abs() < 1e-5)
        );
    }

    #[test]
    fn outlier_is_spread() {
        let mut x = vec![0.0; 64];
        x[5] = 8.0;
        walsh_hadamard(&mut x, 64);
        assert!(x.iter().all(|x| x.abs() == 1.0), "{x:?}");
    }
}
