//! Decoded pixels: RGB, 8 bits each, rows from the top.

use crate::size::{Area, Size};

/// A picture in RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    size: Size,
    /// (height, width, 3)
    bytes: Vec<u8>,
}

impl Pixels {
    /// A picture of these bytes, (height, width, 3).
    ///
    /// # Panics
    ///
    /// The number of bytes is not that of the size.
    #[must_use]
    pub fn new(size: Size, bytes: Vec<u8>) -> Self {
        assert_eq!(bytes.len(), size.rgb_bytes(), "bytes of {size} pixels");
        Self { size, bytes }
    }

    /// Width and height.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// All pixels, (height, width, 3).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of a row of pixels.
    pub(crate) fn row_bytes(&self) -> usize {
        self.size.width as usize * 3
    }

    /// The rows from the top, (width, 3) each.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.row_bytes())
    }

    /// The part of the picture in `area`, which is cut where it leaves the picture.
    #[must_use]
    pub fn crop(&self, area: Area) -> Self {
        let x = area.x.min(self.size.width);
        let y = area.y.min(self.size.height);
        let size = Size::new(
            area.size.width.min(self.size.width - x),
            area.size.height.min(self.size.height - y),
        );
        let mut bytes = Vec::with_capacity(size.rgb_bytes());
        let columns = x as usize * 3..(x + size.width) as usize * 3;
        for row in self.rows().skip(y as usize).take(size.height as usize) {
            bytes.extend_from_slice(&row[columns.clone()]);
        }
        Self::new(size, bytes)
    }

    /// The first `keep` of each `every` rows and columns.
    #[must_use]
    pub(crate) fn thinned(&self, every: u32, keep: u32) -> Self {
        let (width, height) = (self.size.width, self.size.height);
        let is_kept = |at: &u32| at % every.max(1) < keep;
        let [columns, lines] = [width, height].map(|edge| (0..edge).filter(is_kept).count());
        let size = Size::new(columns as u32, lines as u32);
        let mut bytes = Vec::with_capacity(size.rgb_bytes());
        let rows = (0..height).zip(self.rows());
        for (_, row) in rows.filter(|(line, _)| is_kept(line)) {
            let pixels = (0..width).zip(row.as_chunks::<3>().0);
            let kept = pixels.filter(|(column, _)| is_kept(column));
            bytes.extend(kept.flat_map(|(_, pixel)| pixel));
        }
        Self::new(size, bytes)
    }

    /// The picture on a ground of one color, `x` and `y` pixels from its left and upper edge. What leaves the ground
    /// is cut.
    #[must_use]
    pub fn pad(&self, size: Size, x: u32, y: u32, color: [u8; 3]) -> Self {
        let mut bytes = color.repeat(size.pixels() as usize);
        let width = self.size.width.min(size.width.saturating_sub(x)) as usize * 3;
        let start = x as usize * 3;
        let row_bytes = size.width as usize * 3;
        let ground = bytes.chunks_exact_mut(row_bytes.max(1)).skip(y as usize);
        for (to, from) in ground.zip(self.rows()) {
            if width > 0 {
                to[start..start + width].copy_from_slice(&from[..width]);
            }
        }
        Self::new(size, bytes)
    }

    /// Exchanges left and right.
    pub(crate) fn mirror(&mut self) {
        let row_bytes = self.row_bytes();
        for row in self.bytes.chunks_exact_mut(row_bytes) {
            row.as_chunks_mut::<3>().0.reverse();
        }
    }

    /// Turns the picture upside down.
    pub(crate) fn turn_half(&mut self) {
        self.bytes.as_chunks_mut::<3>().0.reverse();
    }

    /// The picture after a quarter turn, clockwise or not.
    pub(crate) fn turned_quarter(&self, is_clockwise: bool) -> Self {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        let mut bytes = vec![0; self.bytes.len()];
        let (from, _) = self.bytes.as_chunks::<3>();
        let (to, _) = bytes.as_chunks_mut::<3>();
        for (y, row) in from.chunks_exact(width).enumerate() {
            let column = if is_clockwise { height - 1 - y } else { y };
            for (x, pixel) in row.iter().enumerate() {
                let line = if is_clockwise { x } else { width - 1 - x };
                to[line * height + column] = *pixel;
            }
        }
        Self::new(self.size.turned(), bytes)
    }
}
