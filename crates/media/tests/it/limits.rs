//! Limits: what is refused, with which words, and what it costs.

use crate::pattern::{at_start, images};
use media::{Header, Limits, Size, decode};
use std::cell::Cell;
use std::time::Duration;
use testing::heap;

/// A golden image by name.
fn image(name: &str) -> Vec<u8> {
    let found = images().into_iter().find(|(known, _)| known == name);
    found.expect("a golden image").1
}

/// A file with other bytes at one place.
fn patched(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = image(name);
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Where a JPEG file states its height.
fn jpeg_height(file: &[u8]) -> usize {
    let frame = file.windows(2).position(|window| window == [0xff, 0xc0]);
    frame.expect("a frame") + 5
}

fn sentence(file: &[u8], limits: &Limits) -> String {
    let of_header = Header::read("images[2]", file, limits).map(|header| header.size());
    let of_decode = decode("images[2]", file, limits, &at_start);
    let error = of_decode.expect_err("a limit").to_string();
    match of_header {
        Err(header) => assert_eq!(header.to_string(), error),
        Ok(size) => assert!(error.contains("cannot be decoded"), "{size}: {error}"),
    }
    error
}

#[test]
fn errors_name_field_bound_and_value() {
    let usual = Limits::default();
    let png = image("png-rgb.png");
    let jpeg = image("jpeg-444.jpg");
    let height = jpeg_height(&jpeg);
    let tall = patched("jpeg-444.jpg", height, &65_000_u16.to_be_bytes());
    let wide = patched("png-rgb.png", 16, &[0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10]);
    let small = |limits: Limits| limits;
    let cases = [
        (
            &png,
            small(Limits { bytes_max: 100, ..usual }),
            "images[2] has 428 bytes, at most 100".to_owned(),
        ),
        (
            &png,
            small(Limits { pixels_max: 100, ..usual }),
            "images[2] has 117 pixels (13 x 9), at most 100".to_owned(),
        ),
        (
            &png,
            small(Limits { edge_max: 12, ..usual }),
            "images[2] has edges of 13 x 9 pixels, at most 12".to_owned(),
        ),
        (
            &png,
            small(Limits { ratio_max: 1, ..usual }),
            "images[2] has edges of 13 x 9 pixels: one may be at most 1 times the other".to_owned(),
        ),
        (
            &png,
            small(Limits { decode_bytes_max: 1000, ..usual }),
            format!(
                "images[2] needs {} bytes of memory to be decoded, at most 1000: send a smaller image",
                (64 << 20) + 13 * 9 * 3
            ),
        ),
        (
            &jpeg,
            small(Limits { scans_max: 0, ..usual }),
            "images[2] has 1 scans, at most 0 and at most 500000000 pixels in all of them: save it anew".to_owned(),
        ),
        (
            &tall,
            usual,
            "images[2] has edges of 45 x 65000 pixels, at most 32768".to_owned(),
        ),
        (
            &wide,
            usual,
            "images[2] has 100000000 pixels (10000 x 10000), at most 50000000".to_owned(),
        ),
    ];
    for (file, limits, expected) in cases {
        assert_eq!(sentence(file, &limits), expected);
    }
}

#[test]
fn broken_and_animated_files_are_refused_by_name() {
    let usual = Limits::default();
    let jpeg = image("jpeg-420.jpg");
    let gif = image("gif-palette.gif");
    let webp = image("webp-lossless-alpha.webp");
    let two_frames = [&gif[..gif.len() - 1], &gif[13 + 64 * 3..]].concat();
    let animated_webp = [
        &webp[..12],
        b"VP8X\x0a\0\0\0\x02\0\0\0\x0c\0\0\x08\0\0",
        &webp[12..],
    ]
    .concat();
    let png = image("png-rgb.png");
    let mut apng = png[..33].to_vec();
    apng.extend(b"\0\0\0\x08acTL\0\0\0\x02\0\0\0\0\0\0\0\0");
    apng.extend(&png[33..]);
    let cases = [
        (
            jpeg[..jpeg.len() / 2].to_vec(),
            "cannot be decoded as JPEG: the file is truncated",
        ),
        (
            jpeg[..jpeg.len() - 2].to_vec(),
            "cannot be decoded as JPEG: the file is truncated",
        ),
        (
            patched("jpeg-420.jpg", jpeg_height(&jpeg), &[0, 0]),
            "has 45 x 0 pixels: each edge needs at least one",
        ),
        (two_frames, "is animated: send one frame"),
        (animated_webp, "is animated: send one frame"),
        (apng, "is animated: send one frame"),
        (
            b"RIFF\x04\0\0\0WEBP".to_vec(),
            "cannot be decoded as WebP: the file has not one picture",
        ),
        (
            webp[..webp.len() - 1].to_vec(),
            "cannot be decoded as WebP: the file is truncated",
        ),
        (
            b"BM".to_vec(),
            "cannot be decoded as BMP: the header is truncated",
        ),
        (
            patched("bmp-24.bmp", 30, &[1]),
            "cannot be decoded as BMP: its pixels are compressed (RLE): save it without compression",
        ),
        (
            b"GIF89a".to_vec(),
            "cannot be decoded as GIF: the header is truncated",
        ),
        (
            b"\x89PNG\r\n\x1a\n".to_vec(),
            "cannot be decoded as PNG: the header is missing",
        ),
        (Vec::new(), "is empty: send the bytes of an image"),
    ];
    for (file, expected) in cases {
        assert_eq!(sentence(&file, &usual), format!("images[2] {expected}"));
    }
}

/// The canvas of a GIF grows to the frame, as in Pillow; the limits count the grown one.
#[test]
fn gif_frame_beyond_the_canvas_is_read() {
    let usual = Limits::default();
    let whole = image("gif-palette.gif");
    let want = decode("image", &whole, &usual, &at_start).expect("an image");
    let small = patched("gif-palette.gif", 6, &[5, 0, 4, 0]);
    let got = decode("image", &small, &usual, &at_start).expect("an image");
    assert_eq!((got.size(), got.bytes()), (want.size(), want.bytes()));
    let few = Limits {
        pixels_max: 100,
        ..usual
    };
    assert!(sentence(&small, &few).contains("has 117 pixels (13 x 9)"));
}

/// Large dimensions in a small file: refused, or decoded to an error, without the memory of the pixels where the bytes
/// cannot be there.
#[test]
fn headers_allocate_no_pixels() {
    let usual = Limits::default();
    for (name, bytes) in images() {
        heap::take_thread_peak();
        let before = heap::thread_held();
        let header = Header::read("image", &bytes, &usual).expect("a header");
        let peak = heap::take_thread_peak() - before;
        assert!(peak < 4096, "{name}: {peak} bytes");
        assert!(header.decode_bytes() > header.size().pixels() * 3);
    }
    let large = patched("bmp-24.bmp", 18, &[0x58, 0x1b, 0, 0, 0x58, 0x1b, 0, 0]);
    let size = Header::read("image", &large, &usual)
        .expect("a header")
        .size();
    assert_eq!(size, Size::square(7000));
    heap::take_thread_peak();
    let before = heap::thread_held();
    assert!(sentence(&large, &usual).ends_with("cannot be decoded as BMP: the file is truncated"));
    assert!(heap::take_thread_peak() - before < 100_000);
}

/// The file with other dimensions where its kind states them; nothing for kinds with a checksum over them.
fn stretched(name: &str, file: &[u8], size: Size) -> Option<Vec<u8>> {
    let mut bytes = file.to_vec();
    let (width, height) = (size.width as u16, size.height as u16);
    if name.starts_with("jpeg") {
        let frame = file
            .windows(2)
            .position(|window| matches!(window, [0xff, 0xc0..=0xc2]))?;
        bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    } else if name.starts_with("gif") {
        bytes[6..8].copy_from_slice(&width.to_le_bytes());
        bytes[8..10].copy_from_slice(&height.to_le_bytes());
    } else if name.starts_with("webp-lossy") {
        let start = file
            .windows(3)
            .position(|window| window == [0x9d, 1, 0x2a])?;
        bytes[start + 3..start + 5].copy_from_slice(&width.to_le_bytes());
        bytes[start + 5..start + 7].copy_from_slice(&height.to_le_bytes());
        if let Some(canvas) = file.windows(4).position(|window| window == b"VP8X") {
            let edges = [size.width - 1, size.height - 1].map(u32::to_le_bytes);
            bytes[canvas + 12..canvas + 15].copy_from_slice(&edges[0][..3]);
            bytes[canvas + 15..canvas + 18].copy_from_slice(&edges[1][..3]);
        }
    } else if name.starts_with("webp-lossless") && !file.windows(4).any(|w| w == b"VP8X") {
        let start = file.windows(4).position(|window| window == b"VP8L")? + 9;
        let alpha = bytes[start + 3] & 0x10;
        let edges = (size.width - 1) | (size.height - 1) << 14;
        bytes[start..start + 4].copy_from_slice(&edges.to_le_bytes());
        bytes[start + 3] |= alpha;
    } else {
        return None;
    }
    Some(bytes)
}

/// Headers that state more pixels than follow: what is held keeps to what the header tells.
#[test]
fn large_dimensions_keep_to_the_bound_of_their_header() {
    let usual = Limits::default();
    let sizes = [
        Size::square(3000),
        Size::new(16_383, 90),
        Size::new(90, 16_383),
    ];
    let mut count = 0;
    for (name, file) in images() {
        for size in sizes {
            let Some(file) = stretched(&name, &file, size) else {
                continue;
            };
            let header = Header::read("image", &file, &usual).expect("a header");
            assert_eq!(header.size().pixels(), size.pixels(), "{name}");
            heap::take_thread_peak();
            let before = heap::thread_held();
            let decoded = decode("image", &file, &usual, &at_start);
            let peak = (heap::take_thread_peak() - before) as u64;
            let bound = header.decode_bytes();
            let outcome = decoded.map(|pixels| pixels.size());
            assert!(
                peak <= bound,
                "{name} {size}: {peak} of {bound}: {outcome:?}"
            );
            count += 1;
        }
    }
    assert!(count > 90, "{count} files");
}

#[test]
fn a_decode_ends_one_step_after_its_deadline() {
    let limits = Limits {
        decode_ms: 10,
        ..Limits::default()
    };
    for (name, bytes) in images() {
        // The clock reads one more millisecond each time it is asked.
        let asked = Cell::new(0);
        let clock = |start: u64| {
            asked.set(0);
            let asked = &asked;
            move || {
                asked.set(asked.get() + 1);
                Duration::from_millis(start + asked.get())
            }
        };
        let late = decode("image", &bytes, &limits, &clock(10));
        let late = late.expect_err("the time is over").to_string();
        assert_eq!(
            late, "image could not be decoded within 10 ms of a processor: send a smaller image",
            "{name}"
        );
        // One look refuses before anything is decoded.
        assert_eq!(asked.get(), 1, "{name}");
        let lengthy = decode("image", &bytes, &limits, &clock(0));
        if lengthy.is_err() {
            // Looks after the one that was too late: the reader's, the decoder's and the last one.
            assert!(asked.get() <= 10 + 8, "{name}: {} looks", asked.get());
        }
    }
}
