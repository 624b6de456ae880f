//! The rule of Gemma 4: the largest picture of the image's ratio within a number of rows.

use super::{Plan, Step, check};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Grid, Size};

/// Parameters of Gemma 4.
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
