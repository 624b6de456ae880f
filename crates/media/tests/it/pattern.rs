//! The pictures that `golden/pictures.py` computes, and its files.

use media::{Pixels, Size};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of the golden files.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The golden images: name without the folder, and bytes.
pub(crate) fn images() -> Vec<(String, Vec<u8>)> {
    let folder = std::fs::read_dir(golden().join("images")).expect("a folder of images");
    let mut images: Vec<_> = folder
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "rgb"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), std::fs::read(&path).expect("a file"))
        })
        .collect();
    images.sort();
    assert!(images.len() > 50, "the golden images are there");
    images
}

/// A clock that stands still.
pub(crate) fn at_start() -> Duration {
    Duration::ZERO
}

/// A picture of the script.
pub(crate) fn pattern(name: &str, size: Size) -> Pixels {
    let (width, height) = (size.width, size.height);
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let bytes = places.flat_map(|(x, y)| match name {
        "gradient" => [
            x * 255 / (width - 1).max(1),
            y * 255 / (height - 1).max(1),
            x * y % 256,
        ],
        "checks" => {
            let light = (x / 3 + y / 5) % 2 * 255;
            [light, 255 - light, (x + y) % 2 * 255]
        }
        "noise" => {
            let seed = (y * width + x) * 3;
            [seed, seed + 1, seed + 2].map(noise)
        }
        name => panic!("{name} is no pattern"),
    });
    Pixels::new(size, bytes.map(|level| level as u8).collect())
}

fn noise(seed: u32) -> u32 {
    let mut v = seed;
    for _ in 0..2 {
        v = (v ^ (v >> 16)).wrapping_mul(0x045d_9f3b);
    }
    (v ^ (v >> 16)) & 255
}
