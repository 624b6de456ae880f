//! The four transforms of lossless WebP, undone in the buffer of the pixels.

use std::mem::{Discriminant, discriminant};

/// A transform with its parameters.
pub(crate) enum Transform {
    /// Pixels are differences to a prediction; the mode of each block is in its green.
    Predict(Blocks),
    /// Red and blue are differences to parts of green and red.
    Color(Blocks),
    /// Red and blue are differences to green.
    SubtractGreen,
    /// Green is an index of these colors, several to a pixel where there are few.
    Palette(Vec<u32>),
}

/// A value for each block of `1 << bits` by `1 << bits` pixels.
pub(crate) struct Blocks {
    values: Vec<u32>,
    bits: u32,
    across: usize,
}

impl Blocks {
    fn at(&self, x: usize, y: usize) -> u32 {
        let block = (y >> self.bits) * self.across + (x >> self.bits);
        self.values.get(block).copied().unwrap_or(0)
    }
}

impl Transform {
    pub(crate) fn of_blocks(
        is_prediction: bool,
        values: Vec<u32>,
        bits: u32,
        across: usize,
    ) -> Self {
        let blocks = Blocks {
            values,
            bits,
            across,
        };
        if is_prediction {
            Self::Predict(blocks)
        } else {
            Self::Color(blocks)
        }
    }

    /// A palette whose colors are stored as differences to the one before.
    pub(crate) fn of_differences(mut colors: Vec<u32>) -> Self {
        let mut last = 0;
        for color in &mut colors {
            *color = add(*color, last);
            last = *color;
        }
        Self::Palette(colors)
    }

    pub(crate) fn kind(&self) -> Discriminant<Self> {
        discriminant(self)
    }

    /// The width of the coded picture, where `width` pixels come out.
    pub(crate) fn coded_width(&self, width: usize) -> usize {
        match self {
            Self::Palette(colors) => width.div_ceil(1 << packed_bits(colors.len())),
            _ => width,
        }
    }

    /// Undoes the transform. `width` is that of the outcome.
    pub(crate) fn undo(&self, pixels: &mut Vec<u32>, width: usize, height: usize) {
        match self {
            Self::Predict(blocks) => undo_predictions(pixels, width, blocks),
            Self::Color(blocks) => {
                for (y, row) in pixels.chunks_exact_mut(width).enumerate() {
                    for (x, pixel) in row.iter_mut().enumerate() {
                        *pixel = colored(*pixel, blocks.at(x, y));
                    }
                }
            }
            Self::SubtractGreen => {
                for pixel in pixels {
                    let green = *pixel >> 8 & 0xff;
                    *pixel = add(*pixel, green << 16 | green);
                }
            }
            Self::Palette(colors) => undo_palette(pixels, width, height, colors),
        }
    }
}

/// Pixels next to each other that share one coded pixel, as a power of two.
fn packed_bits(colors: usize) -> u32 {
    match colors {
        0..=2 => 3,
        3..=4 => 2,
        5..=16 => 1,
        _ => 0,
    }
}

/// Spreads indices from the last pixel to the first, so that no coded pixel is overwritten before it is read.
fn undo_palette(pixels: &mut Vec<u32>, width: usize, height: usize, colors: &[u32]) {
    let packed = packed_bits(colors.len());
    let (bits, coded) = (8 >> packed, width.div_ceil(1 << packed));
    pixels.resize(width * height, 0);
    for y in (0..height).rev() {
        for x in (0..width).rev() {
            let shift = (x & ((1 << packed) - 1)) * bits;
            let green = pixels[y * coded + (x >> packed)] >> 8 & 0xff;
            let index = green >> shift & ((1 << bits) - 1);
            pixels[y * width + x] = colors.get(index as usize).copied().unwrap_or(0);
        }
    }
}

fn undo_predictions(pixels: &mut [u32], width: usize, blocks: &Blocks) {
    for at in 0..pixels.len() {
        let (x, y) = (at % width, at / width);
        let predicted = match (x, y) {
            (0, 0) => 0xff00_0000,
            (_, 0) => pixels[at - 1],
            (0, _) => pixels[at - width],
            _ => {
                let around = Around {
                    left: pixels[at - 1],
                    top: pixels[at - width],
                    top_left: pixels[at - width - 1],
                    // At the right edge this is the first pixel of the row itself.
                    top_right: pixels[at - width + 1],
                };
                around.predicted(blocks.at(x, y) >> 8 & 0xf)
            }
        };
        pixels[at] = add(pixels[at], predicted);
    }
}

/// The pixels that a prediction knows.
struct Around {
    left: u32,
    top: u32,
    top_left: u32,
    top_right: u32,
}

impl Around {
    fn predicted(&self, mode: u32) -> u32 {
        let &Self {
            left,
            top,
            top_left,
            top_right,
        } = self;
        match mode {
            1 => left,
            2 => top,
            3 => top_right,
            4 => top_left,
            5 => mean(mean(left, top_right), top),
            6 => mean(left, top_left),
            7 => mean(left, top),
            8 => mean(top_left, top),
            9 => mean(top, top_right),
            10 => mean(mean(left, top_left), mean(top, top_right)),
            11 => self.nearer(),
            12 => by_channel(|shift| {
                let [left, top, corner] = [left, top, top_left].map(|pixel| part(pixel, shift));
                left + top - corner
            }),
            13 => by_channel(|shift| {
                let [left, top, corner] = [left, top, top_left].map(|pixel| part(pixel, shift));
                let middle = (left + top) >> 1;
                middle + (middle - corner) / 2
            }),
            _ => 0xff00_0000,
        }
    }

    /// Left or top, whichever is nearer to left + top − corner.
    fn nearer(&self) -> u32 {
        let distance = |pixel| -> i32 {
            let shifts = [0, 8, 16, 24].into_iter();
            shifts
                .map(|shift| (part(pixel, shift) - part(self.top_left, shift)).abs())
                .sum()
        };
        // The distance of the estimate to the left pixel is that of the top pixel to the corner.
        if distance(self.top) < distance(self.left) {
            self.left
        } else {
            self.top
        }
    }
}

/// A channel of a pixel.
fn part(pixel: u32, shift: u32) -> i32 {
    (pixel >> shift & 0xff) as i32
}

/// A pixel of four channels, each clipped to a byte.
fn by_channel(of: impl Fn(u32) -> i32) -> u32 {
    let clipped = |shift| (of(shift).clamp(0, 255) as u32) << shift;
    clipped(0) | clipped(8) | clipped(16) | clipped(24)
}

/// Channels added, each modulo 256.
fn add(a: u32, b: u32) -> u32 {
    let even = (a & 0x00ff_00ff).wrapping_add(b & 0x00ff_00ff) & 0x00ff_00ff;
    let odd = (a & 0xff00_ff00).wrapping_add(b & 0xff00_ff00) & 0xff00_ff00;
    even | odd
}

/// Channels averaged, rounded down.
fn mean(a: u32, b: u32) -> u32 {
    (((a ^ b) & 0xfefe_fefe) >> 1) + (a & b)
}

/// Undoes the color transform of a pixel.
fn colored(pixel: u32, element: u32) -> u32 {
    let delta = |factor: u32, value: u32| -> i32 {
        (i32::from(factor as u8 as i8) * i32::from(value as u8 as i8)) >> 5
    };
    let (red, green, blue) = (pixel >> 16, pixel >> 8, pixel);
    let red = red.wrapping_add_signed(delta(element, green)) & 0xff;
    let blue = blue
        .wrapping_add_signed(delta(element >> 8, green))
        .wrapping_add_signed(delta(element >> 16, red))
        & 0xff;
    pixel & 0xff00_ff00 | red << 16 | blue
}
