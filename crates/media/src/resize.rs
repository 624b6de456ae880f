//! Resizing, to the byte as Pillow's `Image.resize` with antialiasing.
//!
//! Models were trained on pictures that Pillow resized. Two passes with 8 bits between them, horizontal first unless the
//! height shrinks much more than the width; each output is a weighted sum with weights of 22 bits, rounded and clipped.
//! Source: the behavior of Pillow 13, pinned by `tests/golden`. Earlier versions always began with the horizontal pass,
//! which differs by a level where the order does.

use crate::pixels::Pixels;
use crate::size::Size;

/// Bits after the point of a weight.
const WEIGHT_BITS: u32 = 22;

/// Half of a level, in weights: sums are rounded.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

/// How pixels are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// A triangle.
    Bilinear,
    /// Cubic convolution with a = −0.5.
    Bicubic,
    /// A windowed sinc of three lobes.
    Lanczos,
}

impl Filter {
    /// Pixels on either side that an output depends on, where the picture does not shrink.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => cubic(x.abs()),
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// The picture in another size. Equal sizes are copied.
///
/// Memory: the picture between the passes and the outcome, three bytes a pixel, and for each edge 4 bytes for each
/// input that an output depends on.
#[must_use]
pub fn resize(pixels: &Pixels, to: Size, filter: Filter) -> Pixels {
    let from = pixels.size();
    if to == from || to.pixels() == 0 || from.pixels() == 0 {
        return pixels.crop(crate::size::Area {
            x: 0,
            y: 0,
            size: to,
        });
    }
    if is_vertical_first(from, to) {
        return across(&down(pixels, to.height, filter), to.width, filter);
    }
    down(&across(pixels, to.width, filter), to.height, filter)
}

/// Whether the vertical pass comes first: the height loses more than twice the pixels that the width loses.
fn is_vertical_first(from: Size, to: Size) -> bool {
    let lost = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (width, height) = (lost(from.width, to.width), lost(from.height, to.height));
    height > 0 && height > 2 * width
}

/// For each output of an edge: the inputs that it depends on, and their weights.
struct Windows {
    starts: Vec<u32>,
    lengths: Vec<u32>,
    /// (outputs, stride), zero behind the length of each
    weights: Vec<i32>,
    stride: usize,
}

impl Windows {
    fn new(from: u32, to: u32, filter: Filter) -> Self {
        let scale = f64::from(from) / f64::from(to);
        let shrinking = scale.max(1.0);
        let support = filter.support() * shrinking;
        let stride = support.ceil() as usize * 2 + 1;
        let mut windows = Self {
            starts: Vec::with_capacity(to as usize),
            lengths: Vec::with_capacity(to as usize),
            weights: vec![0; to as usize * stride],
            stride,
        };
        let mut exact = Vec::with_capacity(stride);
        for output in 0..to {
            let center = (f64::from(output) + 0.5) * scale;
            // Conversions truncate; below zero they give zero.
            let start = (center - support + 0.5) as u32;
            let end = ((center + support + 0.5) as u32).min(from);
            exact.clear();
            exact.extend(
                (start..end).map(|input| {
                    filter.weight((f64::from(input) - center + 0.5) * (1.0 / shrinking))
                }),
            );
            let sum: f64 = exact.iter().sum();
            let weights = &mut windows.weights[output as usize * stride..][..stride];
            for (weight, exact) in weights.iter_mut().zip(&exact) {
                let exact = if sum == 0.0 { *exact } else { exact / sum };
                let scaled = exact * f64::from(1 << WEIGHT_BITS);
                // Half is added before the conversion, which truncates.
                *weight = (scaled + 0.5_f64.copysign(scaled)) as i32;
            }
            windows.starts.push(start);
            windows.lengths.push(end - start);
        }
        windows
    }

    fn of(&self, output: usize) -> (usize, &[i32]) {
        let length = self.lengths[output] as usize;
        let weights = &self.weights[output * self.stride..][..length];
        (self.starts[output] as usize, weights)
    }
}

fn clip(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// The horizontal pass: rows to another width.
fn across(pixels: &Pixels, width: u32, filter: Filter) -> Pixels {
    if pixels.size().width == width {
        return pixels.clone();
    }
    let windows = Windows::new(pixels.size().width, width, filter);
    let size = Size::new(width, pixels.size().height);
    let mut bytes = Vec::with_capacity(size.rgb_bytes());
    for row in pixels.rows() {
        let (row, _) = row.as_chunks::<3>();
        for output in 0..width as usize {
            let (start, weights) = windows.of(output);
            let mut sums = [HALF; 3];
            for (&[red, green, blue], &weight) in row[start..].iter().zip(weights) {
                sums[0] += i32::from(red) * weight;
                sums[1] += i32::from(green) * weight;
                sums[2] += i32::from(blue) * weight;
            }
            bytes.extend(sums.map(clip));
        }
    }
    Pixels::new(size, bytes)
}

/// The vertical pass: columns to another height. Whole rows are added up, so that the loop runs over neighbors.
fn down(pixels: &Pixels, height: u32, filter: Filter) -> Pixels {
    if pixels.size().height == height {
        return pixels.clone();
    }
    let windows = Windows::new(pixels.size().height, height, filter);
    let size = Size::new(pixels.size().width, height);
    let row_bytes = pixels.row_bytes();
    let mut bytes = Vec::with_capacity(size.rgb_bytes());
    let mut sums = vec![0_i32; row_bytes];
    for output in 0..height as usize {
        let (start, weights) = windows.of(output);
        sums.fill(HALF);
        let rows = pixels.bytes()[start * row_bytes..].chunks_exact(row_bytes);
        for (row, &weight) in rows.zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += i32::from(value) * weight;
            }
        }
        bytes.extend(sums.iter().map(|&sum| clip(sum)));
    }
    Pixels::new(size, bytes)
}
