mod four_bits;

use super::{HUGE_PAGE, KvBlock, KvCache, KvError, KvKind, KvShape, KvSlot, QuantizedKv};
use crate::Pool;
use half::f16;

#[test]
fn few_layers_begin_a_huge_page_at_once() {
    for (layers, pages) in [
        (16, 2048),
        (28, 1000),
        (80, 512),
        (2, 4096),
        (1, 64),
        (16, 2),
    ] {
        let shape = KvShape {
            layers,
            ..shape(pages, 32, 8, 64)
        };
        let cache = KvCache::new(shape).unwrap();
        let len = cache.bytes() / layers;
        let starts: Vec<_> = (0..layers).map(|l| cache.layer_start(l) * 2).collect();
        for two in starts.windows(2) {
            let stride = two[1] - two[0];
            assert!(stride % 64 == 0 && (len..len + HUGE_PAGE).contains(&stride));
        }
        if len < HUGE_PAGE {
            assert!(starts.iter().all(|start| start % len == 0), "side by side");
            continue;
        }
        let page_bytes = len / pages;
        let most = (layers * page_bytes).div_ceil(HUGE_PAGE) + 1;
        for page in 0..pages {
            let at = |start: &&usize| (*start + page * page_bytes) % HUGE_PAGE < page_bytes;
            let begun = starts.iter().filter(at).count();
            assert!(begun <= most, "{shape:?}, page {page}: {begun} of {most}");
        }
    }
}

fn shape(pages: usize, page_tokens: usize, kv_heads: usize, head_dim: usize) -> KvShape {
    KvShape {
        layers: 2,
        pages,
        page_tokens,
        kv_heads,
        head_dim,
        kind: KvKind::F16,
    }
}

fn coded(shape: KvShape) -> KvShape {
    KvShape {
        kind: KvKind::Q8_0,
        ..shape
    }
}

fn in_4_bits(shape: KvShape) -> KvShape {
    KvShape {
        kind: KvKind::Q4_0,
        ..shape
    }
}

fn noise(len: usize, seed: f32) -> Vec<f32> {
    (0..len)
        .map(|i| (i as f32 * 0.37 + seed).sin() * 3.0)
        .collect()
}

/// Key and value of one slot and head.
fn read(kv: &KvCache, layer: usize, place: KvSlot, head: usize) -> (Vec<f32>, Vec<f32>) {
    let (slots, elements) = kv.padded();
    let float = |bits: u16| f16::from_bits(bits).to_f32();
    let dims = 0..kv.shape().head_dim;
    let at = |d: usize| (d / 4 * slots + place.slot) * 4 + d % 4;
    let scale_of = |scales: &[u16], d: usize| float(scales[d / 32 * slots + place.slot]);
    let scale = |of: QuantizedKv<'_>, d: usize| scale_of(of.scales, d);
    match kv.block(layer, place.page, head) {
        KvBlock::F16 { keys, values } => (
            dims.clone()
                .map(|d| float(keys[d * slots + place.slot]))
                .collect(),
            dims.map(|d| float(values[place.slot * elements + d]))
                .collect(),
        ),
        KvBlock::Q8 { keys, values } => (
            dims.clone()
                .map(|d| f32::from(keys.quants[at(d)]) * scale(keys, d))
                .collect(),
            dims.map(|d| f32::from(values.quants[place.slot * elements + d]) * scale(values, d))
                .collect(),
        ),
        KvBlock::Q4 { keys, values } => {
            let value = |d: usize| f32::from(values.quant(place.slot * elements + d));
            (
                dims.clone()
                    .map(|d| f32::from(keys.quant(at(d))) * scale_of(keys.scales, d))
                    .collect(),
                dims.map(|d| value(d) * scale_of(values.scales, d))
                    .collect(),
            )
        }
    }
}

fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|x| f16::from_f32(*x).to_f32()).collect()
}

#[test]
fn what_is_stored_is_read_back_as_f16() {
    for (page_tokens, kv_heads, head_dim) in [(16, 2, 64), (5, 3, 20), (32, 1, 130)] {
        let mut kv = KvCache::new(shape(3, page_tokens, kv_heads, head_dim)).expect("fits");
        let k = noise(kv_heads * head_dim, 1.0);
        let v = noise(kv_heads * head_dim, 2.0);
        let place = KvSlot {
            page: 2,
            slot: page_tokens - 1,
        };
        kv.store(1, place.page, place.slot, &k, &v);
        for head in 0..kv_heads {
            let part = head * head_dim..(head + 1) * head_dim;
            let wanted = (rounded(&k[part.clone()]), rounded(&v[part]));
            assert_eq!(read(&kv, 1, place, head), wanted);
            assert_eq!(
                read(&kv, 0, place, head).0,
                vec![0.0; head_dim],
                "other layers stay"
            );
        }
    }
}

/// Each value is within half a quantization step of the stored value; the step is 1/127 of its group's largest
/// magnitude, and the scale is an f16.
#[test]
fn what_is_stored_in_8_bits_is_read_back_within_half_a_step() {
    for (page_tokens, kv_heads, head_dim) in [(16, 2, 64), (5, 3, 20), (32, 1, 130), (7, 2, 2)] {
        let mut kv = KvCache::new(coded(shape(3, page_tokens, kv_heads, head_dim))).expect("fits");
        let (k, v) = (
            noise(kv_heads * head_dim, 1.0),
            noise(kv_heads * head_dim, 2.0),
        );
        let place = KvSlot {
            page: 2,
            slot: page_tokens - 1,
        };
        kv.store(1, place.page, place.slot, &k, &v);
        for head in 0..kv_heads {
            let (keys, values) = read(&kv, 1, place, head);
            let part = head * head_dim..(head + 1) * head_dim;
            for (stored, read) in [(&k[part.clone()], keys), (&v[part], values)] {
                for (stored, read) in stored.chunks(32).zip(read.chunks(32)) {
                    let most = stored.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    for (stored, read) in stored.iter().zip(read) {
                        let off = (stored - read).abs();
                        assert!(
                            off <= 0.502 * most / 127.0 + most / 2048.0,
                            "{stored} {read}"
                        );
                    }
                }
            }
            let zeros = vec![0.0; head_dim];
            assert_eq!(read(&kv, 0, place, head), (zeros.clone(), zeros));
        }
    }
}

#[test]
fn what_8_bits_cannot_hold() {
    let mut kv = KvCache::new(coded(shape(1, 16, 1, 34))).expect("fits");
    let place = KvSlot { page: 0, slot: 3 };
    let mut k = vec![1.0; 34];
    (k[0], k[33]) = (f32::INFINITY, 1e-9);
    let mut v = vec![0.5; 34];
    v[7] = f32::NAN;
    kv.store(0, 0, 3, &k, &v);
    let (keys, values) = read(&kv, 0, place, 0);
    assert_eq!(keys[0], 65504.0 * 127.0, "the largest there is");
    assert!(
        keys[1..32].iter().all(|x| *x == 0.0),
        "nothing beside it: {keys:?}"
    );
    assert!(values[..32].iter().all(|x| x.is_nan()), "no NaN is hidden");
    assert!(
        values[32..].iter().all(|x| (x - 0.5).abs() < 1e-3),
        "{values:?}"
    );
    kv.store(0, 0, 3, &[0.0; 34], &[-0.0; 34]);
    assert_eq!(read(&kv, 0, place, 0), (vec![0.0; 34], vec![0.0; 34]));
}

#[test]
fn int8_cache_is_little_more_than_half_of_f16() {
    let f16 = shape(10, 32, 8, 64);
    assert_eq!(f16.bytes(), Some(2 * 10 * 32 * 8 * 64 * 2 * 2));
    assert_eq!(coded(f16).bytes(), Some(2 * 10 * 32 * 8 * (64 + 4) * 2));
    assert_eq!(in_4_bits(f16).bytes(), Some(2 * 10 * 32 * 8 * (32 + 4) * 2));
    for kind in KvKind::ALL {
        assert_eq!(KvKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(KvKind::from_name("q4_1"), None);
}

#[test]
fn store_rows_equals_single_stores() {
    let shape = shape(4, 16, 3, 48);
    for (threads, shape) in [
        (1, shape),
        (2, shape),
        (3, shape),
        (1, coded(shape)),
        (3, coded(shape)),
        (1, in_4_bits(shape)),
        (3, in_4_bits(shape)),
    ] {
        let mut pool = Pool::new(threads);
        let (mut one, mut many) = (
            KvCache::new(shape).expect("fits"),
            KvCache::new(shape).expect("fits"),
        );
        let places: Vec<KvSlot> = (0..40)
            .map(|i| KvSlot {
                page: [3, 0, 2][i / 16],
                slot: i % 16,
            })
            .collect();
        let (k, v) = (noise(40 * 3 * 48, 3.0), noise(40 * 3 * 48, 4.0));
        many.store_rows(&mut pool, 1, &places, &k, &v);
        for (row, place) in places.iter().enumerate() {
            let part = row * 3 * 48..(row + 1) * 3 * 48;
            one.store(1, place.page, place.slot, &k[part.clone()], &v[part]);
        }
        assert_eq!(one.region.as_u16s(), many.region.as_u16s());
    }
}

#[test]
fn copied_page_is_equal_in_all_layers() {
    let shape = shape(3, 16, 2, 32);
    for shape in [shape, coded(shape), in_4_bits(shape)] {
        check_copies(shape);
    }
}

fn check_copies(shape: KvShape) {
    let mut kv = KvCache::new(shape).expect("fits");
    for layer in 0..2 {
        for slot in 0..16 {
            let seed = (layer * 16 + slot) as f32;
            kv.store(layer, 0, slot, &noise(64, seed), &noise(64, -seed));
        }
    }
    kv.copy_page(0, 2);
    for layer in 0..2 {
        for head in 0..2 {
            assert_eq!(kv.block(layer, 0, head), kv.block(layer, 2, head));
            let zeros = vec![0.0; 32];
            let place = KvSlot { page: 1, slot: 5 };
            assert_eq!(read(&kv, layer, place, head), (zeros.clone(), zeros));
        }
    }
}

#[test]
fn exported_page_is_imported_with_equal_bits() {
    for shape in [shape(3, 16, 2, 32), coded(shape(3, 16, 2, 32))] {
        let mut kv = KvCache::new(shape).expect("fits");
        for layer in 0..2 {
            for slot in 0..16 {
                let seed = (layer * 16 + slot) as f32;
                kv.store(layer, 0, slot, &noise(64, seed), &noise(64, -seed));
            }
        }
        let mut bytes = vec![0; kv.page_bytes()];
        assert_eq!(bytes.len() * 3, kv.bytes(), "three pages");
        kv.export_page(0, &mut bytes);
        // Another cache, and a page whose heads are in another order.
        let mut other = KvCache::new(shape).expect("fits");
        other.import_page(1, &bytes);
        for layer in 0..2 {
            for head in 0..2 {
                assert_eq!(kv.block(layer, 0, head), other.block(layer, 1, head));
            }
        }
        let mut again = vec![0; bytes.len()];
        other.export_page(1, &mut again);
        assert_eq!(bytes, again);
        other.export_page(0, &mut again);
        assert!(again.iter().all(|&byte| byte == 0), "another page");
    }
}

#[test]
fn values_beyond_f16_become_its_largest() {
    let mut kv = KvCache::new(shape(1, 16, 1, 2)).expect("fits");
    kv.store(0, 0, 0, &[1e9, f32::NEG_INFINITY], &[f32::INFINITY, -7e4]);
    let read = read(&kv, 0, KvSlot { page: 0, slot: 0 }, 0);
    assert_eq!(read, (vec![65504.0, -65504.0], vec![65504.0, -65504.0]));
}

#[test]
fn impossible_shapes_are_errors() {
    let fine = shape(4, 16, 2, 64);
    for bad in [
        KvShape { pages: 0, ..fine },
        KvShape { layers: 0, ..fine },
        KvShape {
            head_dim: 0,
            ..fine
        },
        KvShape {
            page_tokens: 0,
            ..fine
        },
        KvShape {
            pages: usize::MAX,
            ..fine
        },
        KvShape {
            pages: 1 << 57,
            ..fine
        },
        KvShape {
            page_tokens: usize::MAX - 3,
            ..fine
        },
    ] {
        assert_eq!(KvCache::new(bad).err(), Some(KvError::Shape(bad)));
    }
    let huge = KvShape {
        pages: 1 << 48,
        layers: 1,
        kv_heads: 1,
        ..fine
    };
    let bytes = (1 << 48) * (64 * 16 * 2) * 2;
    assert_eq!(KvCache::new(huge).err(), Some(KvError::Memory { bytes }));
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("linux has it");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    pages.expect("the second number") * 4096
}

#[cfg(target_os = "linux")]
#[test]
fn untouched_pages_use_no_memory() {
    let shape = KvShape {
        layers: 32,
        pages: 512,
        page_tokens: 32,
        kv_heads: 8,
        head_dim: 128,
        kind: KvKind::F16,
    };
    let before = resident();
    let mut kv = KvCache::new(shape).expect("reserving is free");
    assert_eq!(kv.bytes(), 2 << 30);
    assert_eq!(shape.bytes(), Some(2 << 30));
    kv.store(31, 511, 31, &noise(1024, 1.0), &noise(1024, 2.0));
    assert!(
        resident() < before + (1 << 30),
        "half of it may not be resident"
    );
}

#[test]
#[should_panic(expected = "is not there")]
fn slot_outside_its_page_is_rejected() {
    let mut kv = KvCache::new(shape(1, 5, 1, 16)).expect("fits");
    kv.store(0, 0, 5, &[0.0; 16], &[0.0; 16]);
}
