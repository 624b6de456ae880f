//! Decoded bytes next to those of Pillow.

use crate::pattern::{at_start, golden, images};
use media::{Header, Limits, Size, decode};

/// The bytes that Pillow made of a golden image.
fn expected(name: &str) -> (Size, Vec<u8>) {
    let path = golden().join("images").join(name).with_extension("rgb");
    let bytes = std::fs::read(path).expect("Pillow's bytes");
    let size = Size::new(bytes[0].into(), bytes[1].into());
    (size, bytes[2..].to_vec())
}

/// Mean and largest difference of levels.
fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len());
    let levels: Vec<u8> = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).collect();
    let sum: u64 = levels.iter().map(|&level| u64::from(level)).sum();
    let largest = levels.iter().copied().max().unwrap_or(0);
    (sum as f64 / levels.len() as f64, largest)
}

#[test]
fn lossless_files_have_the_bytes_of_pillow_and_lossy_ones_are_near() {
    let limits = Limits::default();
    let mut faults = Vec::new();
    for (name, bytes) in images() {
        let (size, rgb) = expected(&name);
        let header = Header::read("image", &bytes, &limits).map(|header| header.size());
        if header != Ok(size) {
            faults.push(format!("{name}: {header:?}, expected {size}"));
            continue;
        }
        let pixels = match decode("image", &bytes, &limits, &at_start) {
            Ok(pixels) => pixels,
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        let (mean, largest) = difference(pixels.bytes(), &rgb);
        let is_lossy = name.starts_with("jpeg") || name.starts_with("webp-lossy");
        // Of three columns one is at the right edge, where half-sized colors are continued in another way.
        let mean_max = if name == "jpeg-narrow.jpg" { 4.0 } else { 1.0 };
        let is_right = if is_lossy {
            mean <= mean_max && largest <= 16
        } else {
            pixels.bytes() == rgb
        };
        if !is_right {
            faults.push(format!("{name}: mean {mean:.2}, largest {largest}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
