//! A small valid file, mutated in some forty thousand ways: no panic, and no allocation beyond a multiple of
//! the file's size. Seeded, so failures are reproducible.

use crate::hostile::raw::Raw;
use crate::hostile::walk;
use testing::heap::{take_thread_peak, thread_held};

/// Bytes that the reader may allocate for each byte of the file, and in any case. Index entries are larger
/// than their smallest encoding; errors contain a few words.
const HELD_PER_BYTE: usize = 8;
const HELD_ALWAYS: usize = 8192;

/// A file with a value of every type, nested arrays, and tensors of three kinds.
fn seed() -> Vec<u8> {
    let mut raw = Raw::new(3, 15);
    let sizes = [1_usize, 1, 2, 2, 4, 4, 4, 1];
    for (kind, size) in (0_u32..).zip(sizes) {
        raw = raw
            .key(&format!("k{kind}"), kind)
            .bytes(&[1, 0, 0, 0][..size]);
    }
    for kind in 10..13 {
        raw = raw.key(&format!("k{kind}"), kind).u64(1);
    }
    raw.entry("general.alignment", 32)
        .key("text", 8)
        .text(b"a text")
        .key("texts", 9)
        .u32(8)
        .u64(3)
        .text(b"")
        .text(b"one")
        .text(b"\xff")
        .key("nested", 9)
        .u32(9)
        .u64(2)
        .u32(4)
        .u64(1)
        .u32(7)
        .u32(6)
        .u64(0)
        .tensor(b"plain", &[8, 2], 0, 0)
        .tensor(b"blocks", &[32, 1, 2], 2, 64)
        .tensor(b"unknown", &[3], 99, 128)
        .data(140)
        .0
}

/// Reads everything and compares the allocated bytes with the bound.
fn check(bytes: &[u8], label: impl Fn() -> String) -> bool {
    let bytes = bytes.to_vec();
    let bound = HELD_PER_BYTE * bytes.len() + HELD_ALWAYS;
    let before = thread_held();
    take_thread_peak();
    let outcome = walk::walk(bytes);
    let held = usize::try_from(take_thread_peak() - before).unwrap_or(0);
    assert!(
        held <= bound,
        "{}: held {held} bytes, at most {bound} are justified",
        label()
    );
    outcome.is_ok()
}

#[test]
fn seed_file_is_valid() {
    assert!(walk::walk(seed()).is_ok_and(|seen| seen > 64 + 36 + 12));
}

#[test]
fn file_truncated_at_any_byte_is_rejected() {
    let seed = seed();
    // Bytes after the last tensor's first byte belong to the tensor, whose kind has no known size.
    let data = seed.len() - 12;
    for len in 0..seed.len() {
        let read = check(&seed[..len], || format!("cut at {len}"));
        assert_eq!(read, len >= data, "cut at {len} of {}", seed.len());
    }
}

#[test]
fn file_with_any_flipped_bit_does_not_panic() {
    let seed = seed();
    for bit in 0..seed.len() * 8 {
        let mut bytes = seed.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(&bytes, || format!("bit {bit}"));
    }
}

#[test]
fn file_with_replaced_numbers_does_not_panic() {
    let seed = seed();
    let len = seed.len() as u64;
    let (half, full) = (u64::MAX / 2, u64::MAX);
    let numbers = [
        0,
        1,
        2,
        9,
        len - 1,
        len,
        len + 1,
        1 << 31,
        1 << 32,
        1 << 61,
        half,
        half + 1,
        full - 31,
        full,
    ];
    for at in 0..seed.len() - 8 {
        for number in numbers {
            for width in [4, 8] {
                let mut bytes = seed.clone();
                bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
                check(&bytes, || format!("{number} ({width} bytes) at {at}"));
            }
        }
    }
}

#[test]
fn randomly_damaged_file_does_not_panic() {
    let seed = seed();
    for round in 0..10_000_u64 {
        let mut state = round;
        let mut random = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let mut bytes = seed.clone();
        for _ in 0..=random(6) {
            let (from, to) = (random(bytes.len()), random(bytes.len()));
            match random(4) {
                0 => bytes[to] = random(256) as u8,
                1 => bytes[to] = [0, 1, 0x7f, 0xff][random(4)],
                2 => {
                    let span = random(24).min(bytes.len() - from.max(to));
                    bytes.copy_within(from..from + span, to);
                }
                _ => drop(bytes.drain(from..(from + random(9)).min(bytes.len() - 1).max(from))),
            }
        }
        check(&bytes, || format!("round {round}"));
    }
}
