//! The rule of Pixtral and Mistral 3: the longer edge within a bound, both up to whole cells, a mark after each row.

use super::{Plan, Step, check};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Grid, Size};

/// Parameters of Pixtral, Mistral Small 3.1 and later, and Ministral 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestEdge {
    /// Pixels of the longer edge, at most.
    pub longest_edge: u32,
    /// Pixels of a patch's edge.
    pub patch: u32,
    /// Patches next to each other that become one row.
    pub merge: u32,
}

impl LongestEdge {
    /// The plan of an image of `size`: one picture, resized with a bicubic filter. Each row of cells is followed by one
    /// row that marks its end.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or the bound asks for more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let unit = self.patch.saturating_mul(self.merge);
        check(size, &[self.patch, self.merge, unit, self.longest_edge])?;
        let edge = f64::from(self.longest_edge);
        let ratio = (f64::from(size.height) / edge).max(f64::from(size.width) / edge);
        let within = |length: u32| match ratio {
            ratio if ratio > 1.0 => (f64::from(length) / ratio).floor().max(1.0) as u32,
            _ => length,
        };
        let cells = Grid::new(
            within(size.height).div_ceil(unit),
            within(size.width).div_ceil(unit),
        );
        let to = Size::new(cells.columns * unit, cells.rows * unit);
        let filter = Filter::Bicubic;
        let rows = cells.rows * (cells.columns + 1);
        let patches = Grid::of_cells(to, self.patch);
        Plan::whole(vec![Step::Resize { to, filter }], to, patches, cells, rows).checked(size)
    }
}
