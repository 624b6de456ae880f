//! The rule of Qwen's models: both edges to multiples of a factor, pixels within two bounds, any ratio.

use super::{Plan, Step, check};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Grid, Size};

/// Longer edge over shorter edge, at most.
const RATIO_MAX: u32 = 200;

/// Parameters of Qwen2-VL, 2.5-VL, 3-VL and 3.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartResize {
    /// Pixels of a patch's edge: 14, or 16 from Qwen3-VL on.
    pub patch: u32,
    /// Patches next to each other that become one row: 2.
    pub merge: u32,
    /// Pixels of the resized picture, at least.
    pub pixels_min: u64,
    /// Pixels of the resized picture, at most.
    pub pixels_max: u64,
}

impl SmartResize {
    /// The plan of an image of `size`: one picture, resized with a bicubic filter.
    ///
    /// # Errors
    ///
    /// One edge is more than 200 times the other, or the bounds ask for more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let unit = self.patch.saturating_mul(self.merge);
        check(size, &[self.patch, self.merge, unit])?;
        let to = self.resized(size)?;
        let patches = Grid::of_cells(to, self.patch);
        let merged = patches.merged(self.merge);
        let filter = Filter::Bicubic;
        let steps = vec![Step::Resize { to, filter }];
        Plan::whole(steps, to, patches, merged, merged.count()).checked(size)
    }

    fn resized(&self, size: Size) -> Result<Size, ImageFault> {
        let (long, short) = (u64::from(size.longer()), u64::from(size.shorter()));
        if long > short * u64::from(RATIO_MAX) {
            let max = RATIO_MAX;
            return Err(ImageFault::Ratio { size, max });
        }
        let factor = f64::from(self.patch * self.merge);
        let each = |of: &dyn Fn(f64) -> f64| {
            Size::new(
                (of(f64::from(size.width)) * factor) as u32,
                (of(f64::from(size.height)) * factor) as u32,
            )
        };
        let near = each(&|edge| (edge / factor).round_ties_even());
        let pixels = size.pixels() as f64;
        if near.pixels() > self.pixels_max {
            let beta = (pixels / self.pixels_max as f64).sqrt();
            return Ok(each(&|edge| (edge / beta / factor).floor().max(1.0)));
        }
        if near.pixels() < self.pixels_min {
            let beta = (self.pixels_min as f64 / pixels).sqrt();
            return Ok(each(&|edge| (edge * beta / factor).ceil()));
        }
        Ok(near)
    }
}
