//! WebP: the container, lossy pictures by image-webp, lossless ones and alpha by [`super::vp8l`].

use super::readers::{HeaderBytes, Watched};
use super::vp8l;
use crate::color;
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::Deadline;
use crate::orientation::Orientation;
use crate::size::Size;
use image_webp::WebPDecoder;
use std::ops::Range;

/// Chunks of a file.
const CHUNKS_MAX: usize = 256;

/// What the chunks of a WebP file say.
#[derive(Clone, Debug)]
pub(crate) struct WebPLayout {
    picture: Picture,
}

#[derive(Clone, Debug)]
enum Picture {
    /// Where the lossy picture and its alpha channel are.
    Lossy {
        data: Range<usize>,
        alpha: Option<Range<usize>>,
    },
    /// Where the lossless picture is, and whether its alpha counts.
    Lossless { data: Range<usize>, has_alpha: bool },
}

/// The chunks that count, as places in the file.
#[derive(Default)]
struct Chunks {
    canvas: Option<Size>,
    lossy: Option<Range<usize>>,
    lossless: Option<Range<usize>>,
    alpha: Option<Range<usize>>,
    orientation: Orientation,
}

impl WebPLayout {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Size, Orientation), ImageFault> {
        let broken = |reason| ImageFault::broken(ImageKind::WebP, reason);
        let chunks = Chunks::read(bytes)?;
        let (picture, size) = match (chunks.lossy, chunks.lossless) {
            (Some(data), None) => {
                let size = lossy_size(&bytes[data.clone()]).ok_or("the picture is truncated");
                let alpha = chunks.alpha;
                (Picture::Lossy { data, alpha }, size.map_err(broken)?)
            }
            (None, Some(data)) => {
                let header = vp8l::header(&bytes[data.clone()]);
                let (size, has_alpha) =
                    header.map_err(|e| ImageFault::broken(ImageKind::WebP, e))?;
                (Picture::Lossless { data, has_alpha }, size)
            }
            _ => return Err(broken("the file has not one picture")),
        };
        if chunks.canvas.is_some_and(|canvas| canvas != size) {
            return Err(broken("the picture does not fill the canvas"));
        }
        Ok((Self { picture }, size, chunks.orientation))
    }

    /// Planes, RGB and alpha of a lossy picture; ARGB, RGB and the transforms of a lossless one.
    pub(crate) fn bytes_per_pixel(&self) -> u64 {
        match self.picture {
            Picture::Lossy { alpha: None, .. } => 5,
            Picture::Lossy { .. } => 6,
            Picture::Lossless { .. } => 8,
        }
    }

    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        size: Size,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        match &self.picture {
            Picture::Lossless { data, has_alpha } => {
                let argb = vp8l::decode(&bytes[data.clone()], size, deadline)
                    .map_err(|e| ImageFault::broken(ImageKind::WebP, e))?;
                Ok(rgb_of_argb(&argb, *has_alpha))
            }
            Picture::Lossy { data, alpha } => {
                let alpha = alpha
                    .clone()
                    .map(|alpha| alpha_channel(&bytes[alpha], size, deadline))
                    .transpose()?;
                let mut rgb = lossy(&bytes[data.clone()], size, deadline)?;
                if let Some(alpha) = alpha {
                    let (pixels, _) = rgb.as_chunks_mut::<3>();
                    for (pixel, &alpha) in pixels.iter_mut().zip(&alpha) {
                        *pixel = pixel.map(|value| color::over_white(value, alpha));
                    }
                }
                Ok(rgb)
            }
        }
    }
}

impl Chunks {
    fn read(bytes: &[u8]) -> Result<Self, ImageFault> {
        let mut chunks = Self::default();
        if bytes.u32_le(4).unwrap_or(0) as usize > bytes.len() - 8 {
            return Err(ImageFault::broken(ImageKind::WebP, "the file is truncated"));
        }
        let mut at = 12;
        for _ in 0..CHUNKS_MAX {
            let (Some(name), Some(length)) = (bytes.part(at, 4), bytes.u32_le(at + 4)) else {
                break;
            };
            let data = at + 8..at + 8 + length as usize;
            if data.end > bytes.len() {
                break;
            }
            chunks.take(name, &bytes[data.clone()], data.clone())?;
            at = data.end + (length as usize & 1);
        }
        Ok(chunks)
    }

    fn take(&mut self, name: &[u8], data: &[u8], range: Range<usize>) -> Result<(), ImageFault> {
        match name {
            b"ANIM" | b"ANMF" => return Err(ImageFault::Animated),
            b"VP8X" => {
                if data.u8(0).is_some_and(|flags| flags & 2 != 0) {
                    return Err(ImageFault::Animated);
                }
                let edges = data.u24_le(4).zip(data.u24_le(7));
                self.canvas = edges.map(|(width, height)| Size::new(width + 1, height + 1));
            }
            b"VP8 " if self.lossy.is_none() => self.lossy = Some(range),
            b"VP8L" if self.lossless.is_none() => self.lossless = Some(range),
            b"ALPH" if self.alpha.is_none() => self.alpha = Some(range),
            b"EXIF" => self.orientation = Orientation::of_exif(data),
            _ => {}
        }
        Ok(())
    }
}

/// The size in the header of a key frame.
fn lossy_size(data: &[u8]) -> Option<Size> {
    let is_key_frame = data.u8(0)? & 1 == 0 && data.part(3, 3)? == [0x9d, 0x01, 0x2a];
    let edges = (data.u16_le(6)? & 0x3fff, data.u16_le(8)? & 0x3fff);
    is_key_frame.then(|| Size::new(edges.0.into(), edges.1.into()))
}

/// Decodes a lossy picture, in a container without anything else.
fn lossy(data: &[u8], size: Size, deadline: &Deadline<'_>) -> Result<Vec<u8>, ImageFault> {
    let broken = |error: image_webp::DecodingError| ImageFault::broken(ImageKind::WebP, error);
    let length = data.len() as u32;
    let mut file = Vec::with_capacity(data.len() + 21);
    file.extend(b"RIFF");
    file.extend((length + 12).to_le_bytes());
    file.extend(b"WEBPVP8 ");
    file.extend(length.to_le_bytes());
    file.extend(data);
    file.resize(file.len() + (file.len() & 1), 0);
    let mut decoder = WebPDecoder::new(Watched::new(&file, deadline)).map_err(broken)?;
    if decoder.output_buffer_size() != Some(size.rgb_bytes()) {
        let reason = "the picture has other dimensions";
        return Err(ImageFault::broken(ImageKind::WebP, reason));
    }
    let mut rgb = vec![0; size.rgb_bytes()];
    decoder.read_image(&mut rgb).map_err(broken)?;
    Ok(rgb)
}

/// RGB over white of ARGB.
fn rgb_of_argb(argb: &[u32], has_alpha: bool) -> Vec<u8> {
    let mut rgb = Vec::with_capacity(argb.len() * 3);
    for pixel in argb {
        let [alpha, colors @ ..] = pixel.to_be_bytes();
        rgb.extend(if has_alpha {
            colors.map(|value| color::over_white(value, alpha))
        } else {
            colors
        });
    }
    rgb
}

/// The alpha channel of a lossy picture, (height, width).
fn alpha_channel(chunk: &[u8], size: Size, deadline: &Deadline<'_>) -> Result<Vec<u8>, ImageFault> {
    let broken = |reason| ImageFault::broken(ImageKind::WebP, reason);
    let Some((&flags, data)) = chunk.split_first() else {
        return Err(broken("the alpha channel is empty"));
    };
    let count = size.pixels() as usize;
    let mut alpha: Vec<u8> = match flags & 3 {
        0 => data
            .get(..count)
            .ok_or_else(|| broken("the alpha channel is truncated"))?
            .to_vec(),
        1 => {
            let argb = vp8l::decode_alpha(data, size, deadline)
                .map_err(|e| ImageFault::broken(ImageKind::WebP, e))?;
            argb.iter().map(|pixel| (pixel >> 8) as u8).collect()
        }
        _ => return Err(broken("the alpha channel is compressed in an unknown way")),
    };
    unfilter(&mut alpha, size.width as usize, flags >> 2 & 3);
    Ok(alpha)
}

/// Adds what each value was predicted from.
fn unfilter(alpha: &mut [u8], width: usize, filter: u8) {
    if filter == 0 {
        return;
    }
    for at in 1..alpha.len() {
        let left = || alpha[at - 1];
        let top = || alpha[at - width];
        let predicted = match (at % width, at < width, filter) {
            (_, true, _) => left(),
            (0, ..) | (_, _, 2) => top(),
            (_, _, 1) => left(),
            _ => {
                let corner = i32::from(alpha[at - width - 1]);
                (i32::from(left()) + i32::from(top()) - corner).clamp(0, 255) as u8
            }
        };
        alpha[at] = alpha[at].wrapping_add(predicted);
    }
}
