//! The rule of models with one square picture: Gemma 3 stretches, LLaVA 1.5 crops or pads.

use super::{Plan, Step, centered, check, fitted};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Area, Grid, Size};

/// How an image of another ratio becomes a square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Both edges are stretched.
    Stretch,
    /// The shorter edge is resized to the square's, and the middle is kept.
    Crop,
    /// The longer edge is resized to the square's, on a ground of this color.
    Pad([u8; 3]),
}

/// Parameters of Gemma 3 and LLaVA 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Square {
    /// Pixels of the square's edge.
    pub edge: u32,
    /// Pixels of a patch's edge.
    pub patch: u32,
    /// Patches next to each other that become one row.
    pub pool: u32,
    /// How pixels are weighted.
    pub filter: Filter,
    /// What becomes of other ratios.
    pub fit: Fit,
}

impl Square {
    /// The plan of an image of `size`: one picture, whose rows do not depend on the size.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or the parameters ask for more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        check(size, &[self.edge, self.patch, self.pool])?;
        let to = Size::square(self.edge);
        let patches = Grid::of_cells(to, self.patch);
        let merged = patches.merged(self.pool);
        Plan::whole(self.steps(size, to), to, patches, merged, merged.count()).checked(size)
    }

    fn steps(&self, size: Size, to: Size) -> Vec<Step> {
        let filter = self.filter;
        match self.fit {
            Fit::Stretch => vec![Step::Resize { to, filter }],
            Fit::Pad(color) => {
                let fitted = fitted(size, to);
                let resize = Step::Resize { to: fitted, filter };
                vec![resize, centered(fitted, to, color)]
            }
            Fit::Crop => {
                let long = u64::from(self.edge) * u64::from(size.longer());
                let long = long / u64::from(size.shorter());
                let long = u32::try_from(long).unwrap_or(u32::MAX);
                let covering = if size.width <= size.height {
                    Size::new(self.edge, long)
                } else {
                    Size::new(long, self.edge)
                };
                let middle = Area {
                    x: (covering.width - self.edge) / 2,
                    y: (covering.height - self.edge) / 2,
                    size: to,
                };
                let resize = Step::Resize {
                    to: covering,
                    filter,
                };
                vec![resize, Step::Crop(middle)]
            }
        }
    }
}
