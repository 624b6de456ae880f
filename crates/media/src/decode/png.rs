//! PNG, by the crate of that name. Text and color profiles are skipped unread.

use super::readers::{HeaderBytes, Watched};
use crate::color;
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::Deadline;
use crate::orientation::Orientation;
use crate::size::Size;
use png::{ColorType, Decoder, Limits, Reader, Transformations};

/// Bytes that the decoder may hold in addition to the pixels.
const DECODER_BYTES_MAX: usize = 48 << 20;

/// Chunks of a file. Encoders write pieces of 8 KiB and more.
const CHUNKS_MAX: usize = 65_536;

/// What the chunks of a PNG file say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PngLayout {
    is_interlaced: bool,
}

impl PngLayout {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Size, Orientation), ImageFault> {
        let broken = |reason| ImageFault::broken(ImageKind::Png, reason);
        let header = bytes
            .part(8, 25)
            .filter(|header| header.starts_with(b"\0\0\0\x0dIHDR"))
            .ok_or_else(|| broken("the header is missing"))?;
        let size = Size::new(
            header.u32_be(8).unwrap_or(0),
            header.u32_be(12).unwrap_or(0),
        );
        let is_interlaced = header.u8(20) == Some(1);
        let mut orientation = Orientation::default();
        let mut at = 33;
        for _ in 0..CHUNKS_MAX {
            let Some((name, data, next)) = chunk(bytes, at) else {
                break;
            };
            match name {
                b"acTL" if data.u32_be(0) != Some(1) => return Err(ImageFault::Animated),
                b"eXIf" => orientation = Orientation::of_exif(data),
                b"IEND" => break,
                _ => {}
            }
            at = next;
        }
        Ok((Self { is_interlaced }, size, orientation))
    }

    /// Rows are converted one by one, but all passes of an interlaced picture have to be collected before.
    pub(crate) fn bytes_per_pixel(self) -> u64 {
        if self.is_interlaced { 7 } else { 3 }
    }

    pub(crate) fn decode(
        self,
        bytes: &[u8],
        size: Size,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        let broken = |error: png::DecodingError| ImageFault::broken(ImageKind::Png, error);
        let limits = Limits {
            bytes: DECODER_BYTES_MAX,
        };
        let mut decoder = Decoder::new_with_limits(Watched::new(bytes, deadline), limits);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        let mut reader = decoder.read_info().map_err(broken)?;
        if self.is_interlaced {
            collected(&mut reader, size, deadline)
        } else {
            rows(&mut reader, size, deadline)
        }
    }
}

/// Name and data of the chunk at `at`, and where the next one begins.
fn chunk(bytes: &[u8], at: usize) -> Option<(&[u8; 4], &[u8], usize)> {
    let length = usize::try_from(bytes.u32_be(at)?).ok()?;
    let name = bytes.get(at + 4..)?.first_chunk()?;
    let data = bytes.part(at + 8, length)?;
    Some((name, data, at + 12 + length))
}

/// Decodes and converts row by row.
fn rows(
    reader: &mut Reader<Watched<'_>>,
    size: Size,
    deadline: &Deadline<'_>,
) -> Result<Vec<u8>, ImageFault> {
    let broken = |error: png::DecodingError| ImageFault::broken(ImageKind::Png, error);
    let (color, _) = reader.output_color_type();
    let mut rgb = Vec::with_capacity(size.rgb_bytes());
    while let Some(row) = reader.next_row().map_err(broken)? {
        deadline.check()?;
        if rgb.len() >= size.rgb_bytes() {
            break;
        }
        append_rgb(color, row.data(), &mut rgb);
    }
    Ok(rgb)
}

/// Decodes all passes of an interlaced picture, then converts.
fn collected(
    reader: &mut Reader<Watched<'_>>,
    size: Size,
    deadline: &Deadline<'_>,
) -> Result<Vec<u8>, ImageFault> {
    let broken = |error: png::DecodingError| ImageFault::broken(ImageKind::Png, error);
    let (color, _) = reader.output_color_type();
    let length = size.pixels() as usize * color.samples();
    if reader.output_buffer_size() != Some(length) {
        let reason = "the picture has other dimensions";
        return Err(ImageFault::broken(ImageKind::Png, reason));
    }
    let mut pixels = vec![0; length];
    reader.next_frame(&mut pixels).map_err(broken)?;
    deadline.check()?;
    Ok(match color {
        ColorType::Rgb => pixels,
        ColorType::Rgba => {
            color::rgba_over_white(&mut pixels);
            pixels
        }
        color => {
            let mut rgb = Vec::with_capacity(size.rgb_bytes());
            append_rgb(color, &pixels, &mut rgb);
            rgb
        }
    })
}

/// Appends pixels of 8 bits a channel as RGB over white.
fn append_rgb(color: ColorType, pixels: &[u8], rgb: &mut Vec<u8>) {
    match color {
        ColorType::Rgb => rgb.extend_from_slice(pixels),
        // The decoder has expanded palettes to RGB.
        ColorType::Grayscale | ColorType::Indexed => {
            rgb.extend(pixels.iter().flat_map(|&gray| [gray; 3]));
        }
        ColorType::GrayscaleAlpha => {
            let (pixels, _) = pixels.as_chunks::<2>();
            rgb.extend(
                pixels
                    .iter()
                    .flat_map(|&[gray, alpha]| [color::over_white(gray, alpha); 3]),
            );
        }
        ColorType::Rgba => {
            let (pixels, _) = pixels.as_chunks::<4>();
            rgb.extend(pixels.iter().flat_map(|&[red, green, blue, alpha]| {
                [red, green, blue].map(|value| color::over_white(value, alpha))
            }));
        }
    }
}
