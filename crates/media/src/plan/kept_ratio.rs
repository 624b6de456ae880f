//! Rules that keep the ratio within one picture: Gemma 4's number of rows, and the longest edge of Pixtral and Mistral 3.

use super::{Plan, Step, check};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Grid, Size};

/// Parameters of Gemma 4: the largest picture of the image's ratio within a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Pixels of a patch's edge: 16.
    pub patch: u32,
    /// Patches next to each other that become one row: 3.
    pub pool: u32,
    /// Rows, at most: 70, 140, 280, 560 or 1120.
    pub rows_max: u32,
}

impl Budget {
    /// The plan of an image of `size`: one picture, resized with a bicubic filter.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or the budget has no row.
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let unit = self.patch.saturating_mul(self.pool);
        check(size, &[self.patch, self.pool, unit, self.rows_max])?;
        let to = self.resized(size);
        let patches = Grid::of_cells(to, self.patch);
        let merged = patches.merged(self.pool);
        let filter = Filter::Bicubic;
        let steps = vec![Step::Resize { to, filter }];
        Plan::whole(steps, to, patches, merged, merged.count()).checked(size)
    }

    fn resized(&self, size: Size) -> Size {
        let unit = self.patch * self.pool;
        let patches_max = f64::from(self.rows_max) * f64::from(self.pool * self.pool);
        let target = patches_max * f64::from(self.patch * self.patch);
        let factor = (target / size.pixels() as f64).sqrt();
        let floor = |edge: u32| (factor * f64::from(edge) / f64::from(unit)).floor() as u32;
        let (columns, rows) = (floor(size.width), floor(size.height));
        // A very long picture has one row of cells, and as many of them as its ratio gives, within the budget.
        let along = |long: u32, short: u32| (long / short).min(self.rows_max);
        let (columns, rows) = match (columns, rows) {
            (0, _) => (1, along(size.height, size.width)),
            (_, 0) => (along(size.width, size.height), 1),
            both => both,
        };
        Size::new(columns * unit, rows * unit)
    }
}

/// Parameters of Pixtral, Mistral Small 3.1 and later, and Ministral 3: the longer edge within a bound, both up to whole
/// cells, a mark after each row.
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
        // After each line of the tower's rows but the last a mark; after the last a token that ends the image.
        let rows = cells.rows * (cells.columns + 1);
        let patches = Grid::of_cells(to, self.patch);
        let steps = vec![Step::Resize { to, filter }];
        let plan = Plan::whole(steps, to, patches, cells, rows.saturating_sub(1));
        Plan { rows, ..plan }.checked(size)
    }
}
