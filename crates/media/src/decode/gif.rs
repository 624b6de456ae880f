//! GIF: one frame, by the crate of that name. An animation is refused from the headers of its blocks. A frame that reaches
//! beyond the canvas makes the picture larger, as in Pillow.

use super::readers::{HeaderBytes, Watched};
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::Deadline;
use crate::size::Size;
use gif::{ColorOutput, DecodeOptions, Frame, MemoryLimit};
use std::num::NonZeroU64;

/// What the blocks of a GIF file say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GifLayout;

impl GifLayout {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Size), ImageFault> {
        let broken = |reason| ImageFault::broken(ImageKind::Gif, reason);
        let size = bytes
            .u16_le(6)
            .zip(bytes.u16_le(8))
            .map(|(width, height)| Size::new(width.into(), height.into()))
            .ok_or_else(|| broken("the header is truncated"))?;
        match frames(bytes) {
            (0, _) => Err(broken("the file has no frame")),
            (1, far) => {
                let size = Size::new(size.width.max(far.width), size.height.max(far.height));
                Ok((Self, size))
            }
            _ => Err(ImageFault::Animated),
        }
    }

    pub(crate) fn decode(
        self,
        bytes: &[u8],
        size: Size,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        let broken = |error: gif::DecodingError| ImageFault::broken(ImageKind::Gif, error);
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::Indexed);
        let limit = NonZeroU64::new(size.pixels()).unwrap_or(NonZeroU64::MIN);
        options.set_memory_limit(MemoryLimit::Bytes(limit));
        let mut decoder = options
            .read_info(Watched::new(bytes, deadline))
            .map_err(broken)?;
        let global = decoder.global_palette().map(<[u8]>::to_vec);
        let frame = decoder.read_next_frame().map_err(broken)?;
        let frame =
            frame.ok_or_else(|| ImageFault::broken(ImageKind::Gif, "the file has no frame"))?;
        deadline.check()?;
        let palette = Palette::new(frame, global.as_deref().unwrap_or_default());
        Ok(painted(frame, &palette, size))
    }
}

/// Frames of a file, at most two, and how far the first one reaches.
fn frames(bytes: &[u8]) -> (usize, Size) {
    let table = |flags: u8| match flags & 0x80 {
        0 => 0,
        _ => 3 << ((flags & 7) + 1),
    };
    let (mut count, mut far) = (0, Size::new(0, 0));
    let mut at = 13 + table(bytes.u8(10).unwrap_or(0));
    while count < 2 {
        match bytes.u8(at) {
            Some(0x2c) => {
                if count == 0 {
                    let edge = |at| u32::from(bytes.u16_le(at).unwrap_or(0));
                    let end = |near: usize| edge(at + near) + edge(at + near + 4);
                    far = Size::new(end(1), end(3));
                }
                count += 1;
                let flags = bytes.u8(at + 9).unwrap_or(0);
                at = after_blocks(bytes, at + 11 + table(flags));
            }
            Some(0x21) => at = after_blocks(bytes, at + 2),
            _ => break,
        }
    }
    (count, far)
}

/// The place after a list of data blocks, each with its length before it, up to an empty one.
fn after_blocks(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(length) = bytes.u8(at) {
        at += 1 + usize::from(length);
        if length == 0 {
            break;
        }
    }
    at
}

/// The colors of a frame; the transparent one is white.
struct Palette {
    colors: [[u8; 3]; 256],
    /// Color of pixels that the frame does not cover.
    ground: [u8; 3],
}

impl Palette {
    fn new(frame: &Frame<'_>, global: &[u8]) -> Self {
        let table = frame.palette.as_deref().unwrap_or(global);
        let mut colors = [[0; 3]; 256];
        for (color, entry) in colors.iter_mut().zip(table.as_chunks::<3>().0) {
            *color = *entry;
        }
        let mut ground = colors[0];
        if let Some(transparent) = frame.transparent {
            colors[usize::from(transparent)] = [255; 3];
            ground = [255; 3];
        }
        Self { colors, ground }
    }
}

/// The frame in its place on the canvas.
fn painted(frame: &Frame<'_>, palette: &Palette, size: Size) -> Vec<u8> {
    let width = usize::from(frame.width);
    let is_whole = (frame.left, frame.top) == (0, 0)
        && Size::new(frame.width.into(), frame.height.into()) == size;
    if is_whole {
        let pixels = frame.buffer.iter();
        return pixels
            .flat_map(|&index| palette.colors[usize::from(index)])
            .collect();
    }
    let mut rgb = palette.ground.repeat(size.pixels() as usize);
    let canvas = rgb.chunks_exact_mut(size.width as usize * 3);
    let rows = frame.buffer.chunks_exact(width.max(1));
    for (to, from) in canvas.skip(frame.top.into()).zip(rows) {
        let (pixels, _) = to.as_chunks_mut::<3>();
        for (pixel, &index) in pixels.iter_mut().skip(frame.left.into()).zip(from) {
            *pixel = palette.colors[usize::from(index)];
        }
    }
    rgb
}
