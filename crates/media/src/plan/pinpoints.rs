//! The rule of LLaVA 1.6: the whole, and tiles of the best of some resolutions, whose padding makes no rows.

use super::{
    Canvas, PARAMETER_MAX, Plan, Step, Tile, aspect, centered, check, check_tiles, fitted,
};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Area, Grid, Size};

/// Resolutions of a model, at most.
pub const PINPOINTS_MAX: usize = 64;

/// Parameters of LLaVA 1.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinpoints {
    /// Pixels of a tile's edge: 336.
    pub tile: u32,
    /// Pixels of a patch's edge: 14.
    pub patch: u32,
    /// The resolutions to choose from, multiples of the tile. Those after the first 64 are not looked at.
    pub resolutions: Vec<Size>,
}

impl Pinpoints {
    /// The plan of an image of `size`: the whole in the size of a tile, then a picture of whole tiles. Its rows are those
    /// without its padding, each line followed by one row that marks its end.
    ///
    /// # Errors
    ///
    /// There is no resolution, or there are more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        check(size, &[self.tile, self.patch])?;
        let reason = "the model names no resolution of whole tiles";
        let best = self.best(size).ok_or(ImageFault::Plan { size, reason })?;
        let filter = Filter::Bicubic;
        let tile = Size::square(self.tile);
        let patches = Grid::of_cells(tile, self.patch);
        let grid = Grid::of_cells(best, self.tile);
        check_tiles(size, grid)?;
        let fitted = fitted(size, best);
        let of_one = |size: Size, patches: Grid, merged: Grid, rows: u32| Tile {
            area: Area { x: 0, y: 0, size },
            patches,
            merged,
            rows,
        };
        let whole = Canvas {
            steps: vec![Step::Resize { to: tile, filter }],
            tiles: vec![of_one(tile, patches, patches, patches.count())],
        };
        // The tower sees the tiles of the large picture together, as its rows go on from one tile to the next.
        let all = Grid::new(patches.rows * grid.rows, patches.columns * grid.columns);
        let seen = unpadded(size, all);
        let seen_rows = seen.rows * (seen.columns + 1);
        let mut steps = vec![
            Step::Resize { to: fitted, filter },
            centered(fitted, best, [0; 3]),
        ];
        // Patches begin at the corner of each tile, so that what is less than a patch at its end is seen by none.
        let (every, keep) = (self.tile, patches.rows * self.patch);
        let to = Size::new(grid.columns * keep, grid.rows * keep);
        if keep < every {
            steps.push(Step::Thin { to, every, keep });
        }
        let large = Canvas {
            steps,
            // A picture that is all padding is not looked at.
            tiles: (seen_rows > 0)
                .then(|| of_one(to, all, seen, seen_rows))
                .into_iter()
                .collect(),
        };
        let plan = Plan {
            canvases: vec![whole, large],
            grid,
            rows: patches.count() + seen_rows,
        };
        plan.checked(size)
    }

    /// The resolution that keeps most pixels of the image, and of several the one with fewest others.
    fn best(&self, size: Size) -> Option<Size> {
        let known = self.resolutions.iter().take(PINPOINTS_MAX);
        let mut best: Option<(u64, u64, Size)> = None;
        for &resolution in known.filter(|r| r.shorter() >= self.tile && r.longer() <= PARAMETER_MAX)
        {
            let (width, height) = (f64::from(size.width), f64::from(size.height));
            let across = f64::from(resolution.width) / width;
            let scale = across.min(f64::from(resolution.height) / height);
            let kept = Size::new((width * scale) as u32, (height * scale) as u32);
            let kept = kept.pixels().min(size.pixels());
            let wasted = resolution.pixels() - kept;
            let is_better =
                best.is_none_or(|(most, least, _)| kept > most || (kept == most && wasted < least));
            if is_better {
                best = Some((kept, wasted, resolution));
            }
        }
        best.map(|(_, _, resolution)| resolution)
    }
}

/// Patches of a picture of all tiles without those that are padding alone.
fn unpadded(size: Size, patches: Grid) -> Grid {
    let Grid { rows, columns } = patches;
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    // Seven decimals before the cut, so that a whole number stays whole.
    let whole = |edge: f64| ((edge * 1e7).round_ties_even() / 1e7) as u32;
    if aspect(size) > f64::from(columns) / f64::from(rows) {
        let seen = whole(height * (f64::from(columns) / width)).min(rows);
        Grid::new(rows - (rows - seen) / 2 * 2, columns)
    } else {
        let seen = whole(width * (f64::from(rows) / height)).min(columns);
        Grid::new(rows, columns - (columns - seen) / 2 * 2)
    }
}
