//! The segments of a JPEG file, walked without decoding.
//!
//! The decoder gets a file with tables, frame and scans only: thumbnails, profiles and comments cost it neither memory
//! nor time, and what they say about colors is decided here.

use super::readers::HeaderBytes;
use crate::orientation::Orientation;
use crate::size::Size;
use std::ops::Range;

/// Segments of a file. Files of cameras have some dozens.
const SEGMENTS_MAX: usize = 4096;

/// A component of the frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Samples next to each other in a unit.
    pub(crate) across: u8,
    /// Samples on top of each other in a unit.
    pub(crate) down: u8,
}

/// The frame: dimensions and components.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) size: Size,
    pub(crate) is_progressive: bool,
    pub(crate) components: Vec<Component>,
}

/// What a walk over a file found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    pub(crate) frame: Option<Frame>,
    pub(crate) scans: u32,
    /// Components of the first scan.
    pub(crate) first_scan_components: usize,
    pub(crate) has_jfif: bool,
    /// The color transform that Adobe's segment states.
    pub(crate) adobe_transform: Option<u8>,
    pub(crate) orientation: Orientation,
    has_exif: bool,
    /// Parts of the file that the decoder needs, in order.
    kept: Vec<Range<usize>>,
}

impl Segments {
    /// Walks over a file, from its start to the end of its image.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut segments = Self::default();
        let mut at = 2;
        for _ in 0..SEGMENTS_MAX {
            let (code, start) = next_marker(bytes, at).ok_or("the file is truncated")?;
            match code {
                // The start again, a restart or a private marker without a length.
                0xd8 | 0x01 | 0xd0..=0xd7 => at = start,
                0xd9 => return segments.checked(),
                code => {
                    let length = usize::from(bytes.u16_be(start).ok_or("the file is truncated")?);
                    let data = length
                        .checked_sub(2)
                        .ok_or("a segment is shorter than its length")
                        .and_then(|data| {
                            bytes.part(start + 2, data).ok_or("the file is truncated")
                        })?;
                    let end = start + length;
                    at = segments.take(code, data, bytes, start - 2..end)?;
                }
            }
        }
        Err("the file has too many segments")
    }

    /// The file for the decoder.
    pub(crate) fn stripped(&self, bytes: &[u8]) -> Vec<u8> {
        let length: usize = self.kept.iter().map(ExactSizeIterator::len).sum();
        let mut file = Vec::with_capacity(length + 4);
        file.extend([0xff, 0xd8]);
        for range in &self.kept {
            file.extend_from_slice(bytes.get(range.clone()).unwrap_or_default());
        }
        file.extend([0xff, 0xd9]);
        file
    }

    fn checked(self) -> Result<Self, &'static str> {
        if self.frame.is_none() || self.scans == 0 {
            return Err("the file has no image");
        }
        Ok(self)
    }

    /// Takes a segment and returns where the next one is looked for.
    fn take(
        &mut self,
        code: u8,
        data: &[u8],
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<usize, &'static str> {
        let mut end = range.end;
        match code {
            0xc0..=0xc2 => self.take_frame(code, data)?,
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Err("lossless and arithmetic coding are not read");
            }
            0xda => {
                if self.frame.is_none() {
                    return Err("a scan comes before the frame");
                }
                if self.scans == 0 {
                    self.first_scan_components = usize::from(data.first().copied().unwrap_or(0));
                }
                self.scans += 1;
                end = end_of_scan(bytes, end);
            }
            0xe0 => self.has_jfif |= data.starts_with(b"JFIF\0"),
            0xe1 if data.starts_with(b"Exif\0\0") && !self.has_exif => {
                self.has_exif = true;
                self.orientation = Orientation::of_exif(data);
            }
            0xee if data.starts_with(b"Adobe") => self.adobe_transform = data.u8(11),
            _ => {}
        }
        // Tables, frames, scans, restart intervals.
        if matches!(code, 0xc0..=0xc2 | 0xc4 | 0xda | 0xdb | 0xdd) {
            self.keep(range.start..end);
        }
        Ok(end)
    }

    fn take_frame(&mut self, code: u8, data: &[u8]) -> Result<(), &'static str> {
        if self.frame.is_some() {
            return Err("the file has two frames");
        }
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = data else {
            return Err("the frame is truncated");
        };
        if precision != 8 {
            return Err("samples of more than 8 bits are not read");
        }
        if !matches!(count, 1 | 3 | 4) || rest.len() != usize::from(count) * 3 {
            return Err("the frame has not one, three or four components");
        }
        let components = rest.as_chunks::<3>().0.iter().map(|&[id, samples, _]| {
            let (across, down) = (samples >> 4, samples & 15);
            let is_read = matches!(across, 1 | 2 | 4) && (1..=4).contains(&down);
            is_read.then_some(Component { id, across, down })
        });
        self.frame = Some(Frame {
            size: Size::new(
                u16::from_be_bytes([w1, w0]).into(),
                u16::from_be_bytes([h1, h0]).into(),
            ),
            is_progressive: code == 0xc2,
            components: components
                .collect::<Option<_>>()
                .ok_or("the frame has sampling factors that are not read")?,
        });
        Ok(())
    }

    /// Keeps a part of the file, with the one before it where they touch.
    fn keep(&mut self, range: Range<usize>) {
        match self.kept.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.kept.push(range),
        }
    }
}

/// The next marker's code and the place after it. Fill bytes before it are skipped.
fn next_marker(bytes: &[u8], from: usize) -> Option<(u8, usize)> {
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xff)? + 1;
        while *bytes.get(at)? == 0xff {
            at += 1;
        }
        let code = *bytes.get(at)?;
        at += 1;
        if code != 0 {
            return Some((code, at));
        }
    }
}

/// Where the coded data of a scan ends: at a marker that is no restart, or at the end of the file.
fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some((code, after)) = next_marker(bytes, at) {
        if !matches!(code, 0xd0..=0xd7) {
            return after - 2;
        }
        at = after;
    }
    bytes.len()
}
