//! JPEG, by zune-jpeg.

use super::jpeg_segments::{Frame, Segments};
use super::readers::WatchedScan;
use crate::color;
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::{Deadline, Limits};
use crate::orientation::Orientation;
use crate::size::Size;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// What the segments of a JPEG file say.
#[derive(Clone, Debug)]
pub(crate) struct JpegLayout {
    segments: Segments,
    frame: Frame,
}

/// How the components become RGB. As libjpeg decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colors {
    Gray,
    Rgb,
    Ycc,
    Cmyk,
    Ycck,
}

impl JpegLayout {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Size, Orientation), ImageFault> {
        let broken = |reason| ImageFault::broken(ImageKind::Jpeg, reason);
        let mut segments = Segments::read(bytes).map_err(broken)?;
        let frame = segments
            .frame
            .take()
            .ok_or_else(|| broken("the file has no frame"))?;
        let (size, orientation) = (frame.size, segments.orientation);
        Ok((Self { segments, frame }, size, orientation))
    }

    pub(crate) fn scans(&self) -> u32 {
        self.segments.scans
    }

    /// Bytes of the decoded pixels and, where scans have to be collected, of all coefficients.
    pub(crate) fn decode_bytes(&self, size: Size) -> u64 {
        let components = &self.frame.components;
        let largest = |of: fn(&super::jpeg_segments::Component) -> u8| {
            components.iter().map(of).max().map_or(1, u64::from)
        };
        let (across, down) = (largest(|c| c.across), largest(|c| c.down));
        let units =
            u64::from(size.width).div_ceil(8 * across) * u64::from(size.height).div_ceil(8 * down);
        let is_collected =
            self.frame.is_progressive || self.segments.first_scan_components != components.len();
        let blocks = components
            .iter()
            .map(|c| u64::from(c.across) * u64::from(c.down))
            .sum::<u64>();
        let coefficients = if is_collected {
            units * blocks * 128
        } else {
            0
        };
        let channels = if components.len() == 4 { 4 } else { 3 };
        let converted = if components.len() == 4 { 7 } else { 3 };
        (coefficients + channels * size.pixels()).max(converted * size.pixels())
    }

    fn colors(&self) -> Colors {
        let ids: Vec<u8> = self.frame.components.iter().map(|c| c.id).collect();
        match (ids.len(), self.segments.adobe_transform) {
            (1, _) => Colors::Gray,
            (4, Some(0) | None) => Colors::Cmyk,
            (4, Some(_)) => Colors::Ycck,
            (_, Some(0)) if !self.segments.has_jfif => Colors::Rgb,
            (_, None) if !self.segments.has_jfif && ids == b"RGB" => Colors::Rgb,
            _ => Colors::Ycc,
        }
    }

    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        limits: &Limits,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        let colors = self.colors();
        // The file has lost what could make the decoder see other colors: components are YCbCr unless their names say RGB.
        let names_say_rgb = self.frame.components.iter().map(|c| c.id).eq(*b"RGB");
        let (wanted, channels) = match colors {
            Colors::Rgb if !names_say_rgb => (ColorSpace::YCbCr, 3),
            Colors::Gray | Colors::Rgb | Colors::Ycc => (ColorSpace::RGB, 3),
            Colors::Cmyk | Colors::Ycck => (ColorSpace::CMYK, 4),
        };
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(limits.edge_max as usize)
            .set_max_height(limits.edge_max as usize)
            .jpeg_set_max_scans(limits.scans_max as usize)
            .jpeg_set_out_colorspace(wanted);
        let file = self.segments.stripped(bytes);
        let mut decoder = JpegDecoder::new_with_options(WatchedScan::new(&file, deadline), options);
        let broken = |reason| ImageFault::broken(ImageKind::Jpeg, reason);
        decoder
            .decode_headers()
            .map_err(|e| broken(e.to_string()))?;
        let length = self.frame.size.pixels() as usize * channels;
        if decoder.output_buffer_size() != Some(length) {
            return Err(broken("the frame has other dimensions".to_owned()));
        }
        let mut pixels = vec![0; length];
        decoder
            .decode_into(&mut pixels)
            .map_err(|e| broken(e.to_string()))?;
        drop(decoder);
        deadline.check()?;
        if colors == Colors::Ycck {
            color::ycck_to_inverted_cmyk(&mut pixels);
        }
        if channels == 4 {
            color::inverted_cmyk_to_rgb(&mut pixels);
        }
        Ok(pixels)
    }
}
