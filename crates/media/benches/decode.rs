//! Speed of decoding a file and of resizing it to 1024 pixels of width:
//! `cargo bench -p media --bench decode -- FILE`. `benches/with_pillow.py` makes a file of 12 megapixels and runs this
//! and Pillow in turn.
//!
//! The best of some rounds, since other load only slows a round.
#![allow(missing_docs, clippy::print_stdout, reason = "a program that prints")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use media::{Filter, Header, Limits, Size, decode, resize};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 3;

fn main() {
    let file = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let Some(file) = file else {
        println!("no file is named: `benches/with_pillow.py` makes one");
        return;
    };
    let bytes = std::fs::read(&file).expect("a readable file");
    let limits = Limits::default();
    let header_us = best_ms(|| {
        black_box(Header::read("file", &bytes, &limits)).expect("an image");
    }) * 1e3;
    let decode_once = || {
        let start = Instant::now();
        decode("file", &bytes, &limits, &|| start.elapsed()).expect("an image")
    };
    let decode_ms = best_ms(|| {
        black_box(decode_once());
    });
    let pixels = decode_once();
    let size = pixels.size();
    let to = Size::new(1024, 1024 * size.height / size.width);
    print!("header {header_us:.0} us, decode {decode_ms:.1} ms");
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        let resize_ms = best_ms(|| {
            black_box(resize(&pixels, to, filter));
        });
        print!(", {filter:?} {resize_ms:.1} ms");
    }
    println!();
}

fn best_ms(mut run: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    });
    times.fold(f64::INFINITY, f64::min)
}
