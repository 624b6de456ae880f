//! Keys and values in 4 bits.

use super::{in_4_bits, noise, read, shape};
use crate::kv::{KvCache, KvSlot, quantize_nibble_group};

/// Each value is within a seventh of the group's largest magnitude, and the squared error of a group at most that of steps of an
/// eighth.
#[test]
fn what_is_stored_in_4_bits_is_read_back_within_a_step() {
    for (page_tokens, kv_heads, head_dim) in [(16, 2, 64), (5, 3, 20), (32, 1, 130), (7, 2, 2)] {
        let shape = in_4_bits(shape(3, page_tokens, kv_heads, head_dim));
        let mut kv = KvCache::new(shape).expect("fits");
        let (k, v) = (
            noise(kv_heads * head_dim, 1.0),
            noise(kv_heads * head_dim, 2.0),
        );
        for slot in 0..page_tokens {
            let other = noise(kv_heads * head_dim, slot as f32);
            kv.store(1, 2, slot, &other, &other);
        }
        let place = KvSlot {
            page: 2,
            slot: page_tokens / 2,
        };
        kv.store(1, place.page, place.slot, &k, &v);
        for head in 0..kv_heads {
            let (keys, values) = read(&kv, 1, place, head);
            let part = head * head_dim..(head + 1) * head_dim;
            for (stored, read) in [(&k[part.clone()], keys), (&v[part], values)] {
                for (stored, read) in stored.chunks(32).zip(read.chunks(32)) {
                    check_group(stored, read);
                }
            }
            let zeros = vec![0.0; head_dim];
            assert_eq!(read(&kv, 0, place, head), (zeros.clone(), zeros));
        }
    }
}

fn check_group(stored: &[f32], read: &[f32]) {
    let most = stored.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let signed = stored.iter().copied().find(|x| x.abs() == most);
    let step = signed.unwrap_or_default() / -8.0;
    let (mut plain, mut found) = (0.0, 0.0);
    for (stored, read) in stored.iter().zip(read) {
        assert!(
            (stored - read).abs() <= 1.01 * most / 7.0,
            "{stored} {read}"
        );
        let near = (stored / step).round().clamp(-8.0, 7.0) * step;
        plain += (stored - near).powi(2);
        found += (stored - read).powi(2);
    }
    assert!(
        found <= plain * 1.05 + 1e-3 * most * most,
        "{found} {plain}"
    );
}

#[test]
fn scale_of_4_bits_fits_both_ends() {
    // One-sided: the largest magnitude is -8 steps. Two-sided: seven steps on both sides.
    for (values, extreme) in [
        (vec![8.0, 1.0, -3.0], -8.0),
        (vec![-8.0, 1.0, 3.0], -8.0),
        (vec![7.0, -7.0, 1.0], -7.0),
    ] {
        let (scale, quants) = quantize_nibble_group(&values);
        assert_eq!(scale.to_f32(), values[0] / extreme, "{values:?}");
        let read = quants
            .iter()
            .map(|quant| f32::from(*quant) * scale.to_f32());
        let read: Vec<f32> = read.take(values.len()).collect();
        assert_eq!(read, values);
    }
    for zeros in [&[0.0; 32][..], &[-0.0], &[]] {
        let (scale, quants) = quantize_nibble_group(zeros);
        assert_eq!((scale.to_f32(), quants), (0.0, [0; 32]));
    }
}

#[test]
fn what_4_bits_cannot_hold() {
    let mut kv = KvCache::new(in_4_bits(shape(1, 16, 1, 34))).expect("fits");
    let place = KvSlot { page: 0, slot: 3 };
    let (mut k, mut v) = (vec![1.0; 34], vec![0.5; 34]);
    (k[0], v[7]) = (f32::INFINITY, f32::NAN);
    kv.store(0, 0, 3, &k, &v);
    let (keys, values) = read(&kv, 0, place, 0);
    assert!(
        keys[0].is_finite() && keys[0] > 4e5,
        "near the largest there is: {keys:?}"
    );
    assert!(keys[1..32].iter().all(|x| *x == 0.0), "{keys:?}");
    assert!(values[..32].iter().all(|x| x.is_nan()), "no NaN is hidden");
    assert!(
        values[32..].iter().all(|x| (x - 0.5).abs() < 1e-3),
        "{values:?}"
    );
}
