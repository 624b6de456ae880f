//! The rule of LFM2-VL: one picture of the image's ratio, or, of a large image, a grid of tiles and that picture.

use super::{Canvas, Plan, Step, TileGrid, check, rows_of};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Area, Grid, Size};

/// How many times the pixels of the largest picture an image may have before it is cut into tiles.
const TOLERANCE: u64 = 2;

/// Parameters of LFM2-VL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLarge {
    /// Pixels of a tile's edge: 512.
    pub tile: u32,
    /// Pixels of a patch's edge: 16.
    pub patch: u32,
    /// Patches next to each other that become one row: 2.
    pub merge: u32,
    /// Tiles of a large image, at least: 2.
    pub tiles_min: u32,
    /// Tiles of a large image, at most: 10; 1 if images are not cut.
    pub tiles_max: u32,
    /// Rows of the one picture, at least: 64.
    pub rows_min: u32,
    /// Rows of the one picture, at most: 256.
    pub rows_max: u32,
}

impl SplitLarge {
    /// The plan of an image of `size`: its tiles row by row, then the whole; the whole alone where it is not large.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or there are more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let unit = self.patch.saturating_mul(self.merge);
        check(
            size,
            &[
                self.tile,
                self.patch,
                self.merge,
                unit,
                self.rows_min,
                self.rows_max,
            ],
        )?;
        let whole = self.resized(size, unit);
        let filter = Filter::Bilinear;
        let patches = Grid::of_cells(whole, self.patch);
        let merged = patches.merged(self.merge);
        let area = Area {
            x: 0,
            y: 0,
            size: whole,
        };
        let seen = super::Tile {
            area,
            patches,
            merged,
            rows: merged.count(),
        };
        let whole = Canvas {
            steps: vec![Step::Resize { to: whole, filter }],
            tiles: vec![seen],
        };
        let mut plan = Plan {
            canvases: vec![whole],
            grid: Grid::new(1, 1),
            rows: merged.count(),
        };
        if self.tiles_max >= self.tiles_min.max(2) && self.is_large(size, unit) {
            let grid = self.tiles().nearest(size);
            let tile = Size::square(self.tile);
            let large = Size::new(grid.columns * self.tile, grid.rows * self.tile);
            let patches = Grid::of_cells(tile, self.patch);
            let merged = patches.merged(self.merge);
            let tiles = Canvas::of_tiles(large, filter, tile, patches, merged);
            plan.canvases.insert(0, tiles);
            plan.grid = grid;
            plan.rows = rows_of(&plan.canvases);
        }
        plan.checked(size)
    }

    /// The rule by which the grid is chosen.
    fn tiles(&self) -> TileGrid {
        TileGrid {
            tile: self.tile,
            patch: self.patch,
            shuffle: self.merge,
            tiles_min: self.tiles_min,
            tiles_max: self.tiles_max,
        }
    }

    /// Pixels of this many rows.
    fn pixels(rows: u32, unit: u32) -> u64 {
        u64::from(rows) * u64::from(unit) * u64::from(unit)
    }

    /// The multiple of `unit` nearest to an edge; of two, the even one.
    fn near(edge: u32, unit: u32) -> u32 {
        (f64::from(edge) / f64::from(unit)).round_ties_even() as u32 * unit
    }

    fn is_large(&self, size: Size, unit: u32) -> bool {
        let edge = |edge| u64::from(Self::near(edge, unit).max(self.patch));
        edge(size.width) * edge(size.height) > Self::pixels(self.rows_max, unit) * TOLERANCE
    }

    /// The size of the one picture: both edges multiples of `unit`, within the bounds of rows.
    fn resized(&self, size: Size, unit: u32) -> Size {
        let near = Size::new(
            Self::near(size.width, unit).max(unit),
            Self::near(size.height, unit).max(unit),
        );
        let (least, most) = (
            Self::pixels(self.rows_min, unit),
            Self::pixels(self.rows_max, unit),
        );
        let (pixels, factor) = (size.pixels() as f64, f64::from(unit));
        let each = |of: &dyn Fn(f64) -> f64| {
            Size::new(
                (of(f64::from(size.width)) * factor) as u32,
                (of(f64::from(size.height)) * factor) as u32,
            )
        };
        if near.pixels() > most {
            let beta = (pixels / most as f64).sqrt();
            return each(&|edge| (edge / beta / factor).floor().max(1.0));
        }
        if near.pixels() < least {
            let beta = (least as f64 / pixels).sqrt();
            return each(&|edge| (edge * beta / factor).ceil());
        }
        near
    }
}
