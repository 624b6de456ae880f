//! Damaged files of each kind: no panic, no memory beyond the bound, no time beyond a step.
//!
//! Promise (Hostile input and memory): no image file makes a decoder panic, hold more memory than its header says, or run on
//! after its deadline by more than a step.
//! Also held by `media/tests/it/limits.rs`, `media/tests/it/seeds.rs`,
//! `media/src/decode/vp8l.rs :: codes_have_a_bound_of_memory`, `fuzz/`.

use crate::pattern::images;
use media::{Header, Limits, Pixels, decode};
use std::cell::Cell;
use std::panic::catch_unwind;
use std::time::Duration;
use testing::heap;
use testing::random::Random;

/// Mutated files for each golden image.
const MUTATIONS: u64 = 500;

/// Looks at the clock after the one that is too late.
const LATE_LOOKS_MAX: u64 = 8;

/// Small bounds, so that a header that lies large is refused.
fn limits() -> Limits {
    Limits {
        pixels_max: 300_000,
        decode_bytes_max: 80 << 20,
        scans_max: 20,
        scanned_pixels_max: 3_000_000,
        decode_ms: 100_000,
        ..Limits::default()
    }
}

/// Decodes with all that holds for any bytes checked.
fn check(name: &str, bytes: &[u8], limits: &Limits) -> Option<Pixels> {
    let looks = Cell::new(0);
    let clock = || {
        looks.set(looks.get() + 1);
        Duration::from_millis(looks.get())
    };
    let bound =
        Header::read("image", bytes, limits).map_or(1 << 20, |header| header.decode_bytes());
    heap::take_thread_peak();
    let before = heap::thread_held();
    let decoded = decode("image", bytes, limits, &clock);
    let peak = heap::take_thread_peak() - before;
    assert!(peak <= bound as i64, "{name}: {peak} of {bound} bytes");
    let last = u64::from(limits.decode_ms) + LATE_LOOKS_MAX;
    assert!(looks.get() <= last, "{name}: {} looks", looks.get());
    match decoded {
        Ok(pixels) => {
            let size = Header::read("image", bytes, limits).map(|header| header.size());
            assert_eq!(size, Ok(pixels.size()), "{name}");
            Some(pixels)
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.starts_with("image "), "{name}: {sentence}");
            assert!(sentence.len() < 600, "{name}: {sentence}");
            // A decoder that panics is caught, but is a fault of ours to know of.
            assert!(
                !sentence.ends_with("the decoder failed"),
                "{name}: {bytes:?}"
            );
            None
        }
    }
}

/// The file with some bytes changed, inserted, removed, repeated or cut off.
fn mutated(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len() as u64) as usize;
        // Half of the changes are in the headers.
        let at = if random.chance(50) {
            at.min(random.below(64) as usize)
        } else {
            at
        };
        let value = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6) as usize];
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1..=3 => bytes[at] = value,
            4 => bytes.insert(at, value),
            5 => {
                bytes.remove(at);
            }
            6 => {
                let end = (at + random.below(40) as usize).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// Writes the checksums of a PNG file's chunks anew, so that what is damaged reaches the decoder.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = length
            .iter()
            .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let end = at + 8 + length;
        if bytes.len() < end + 4 {
            break;
        }
        let checksum = crc32(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
        at = end + 4;
    }
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    let of_bit = |crc: u32, _| crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let of_byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), of_bit);
    !bytes.iter().fold(!0, of_byte)
}

fn run(name: &str, bytes: &[u8], limits: &Limits) {
    let outcome = catch_unwind(|| check(name, bytes, limits));
    assert!(outcome.is_ok(), "{name}: {bytes:?}");
}

#[test]
fn mutated_files_are_images_or_errors() {
    let limits = limits();
    for (index, (name, file)) in images().iter().enumerate() {
        let mut random = Random(index as u64);
        for _ in 0..MUTATIONS {
            let mut file = mutated(file, &mut random);
            if name.starts_with("png") && random.chance(80) {
                file = with_checksums(file);
            }
            run(name, &file, &limits);
        }
    }
}

#[test]
fn checksums_of_undamaged_files_stay() {
    for (name, file) in images() {
        if name.starts_with("png") {
            assert!(with_checksums(file.clone()) == file, "{name}");
        }
    }
}

#[test]
fn truncated_files_are_errors_or_the_same_image() {
    let limits = limits();
    for (name, file) in images() {
        let whole = check(&name, &file, &limits).expect("an image");
        for end in 0..file.len() {
            if let Some(pixels) = check(&name, &file[..end], &limits) {
                assert_eq!(pixels, whole, "{name} up to {end}");
            }
        }
    }
}

#[test]
fn mutated_files_end_soon_after_their_deadline() {
    for (index, (name, file)) in images().iter().enumerate() {
        let mut random = Random(1000 + index as u64);
        for _ in 0..20 {
            let limits = Limits {
                decode_ms: random.below(12) as u32,
                ..limits()
            };
            let file = if random.chance(50) {
                file.clone()
            } else {
                mutated(file, &mut random)
            };
            run(name, &file, &limits);
        }
    }
}
