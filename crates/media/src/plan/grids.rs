//! The rules of InternVL and MiniCPM-V: a grid of tiles that is nearest to the image's ratio, and the whole.

use super::{Canvas, Plan, TILES_MAX, TOO_MANY, aspect, check, rows_of};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Grid, Size};

/// Parameters of InternVL 2.5, 3 and 3.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileGrid {
    /// Pixels of a tile's edge: 448.
    pub tile: u32,
    /// Pixels of a patch's edge: 14.
    pub patch: u32,
    /// Patches next to each other that become one row: 2.
    pub shuffle: u32,
    /// Tiles, at least.
    pub tiles_min: u32,
    /// Tiles, at most: 12.
    pub tiles_max: u32,
}

impl TileGrid {
    /// The plan of an image of `size`: its tiles row by row, then the whole if there are several.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or there are more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        check(size, &[self.tile, self.patch, self.shuffle])?;
        let grid = self.nearest(size);
        let tile = Size::square(self.tile);
        let large = Size::new(grid.columns * self.tile, grid.rows * self.tile);
        let patches = Grid::of_cells(tile, self.patch);
        let merged = patches.merged(self.shuffle);
        let canvas = |to| Canvas::of_tiles(to, Filter::Bicubic, tile, patches, merged);
        let mut canvases = vec![canvas(large)];
        if grid.count() > 1 {
            canvases.push(canvas(tile));
        }
        let rows = rows_of(&canvases);
        let plan = Plan {
            canvases,
            grid,
            rows,
        };
        plan.checked(size)
    }

    /// The grid whose ratio is nearest. Of equal ones the larger, as long as the image has more than half its pixels.
    pub(super) fn nearest(&self, size: Size) -> Grid {
        let most = self.tiles_max.min(TILES_MAX);
        let columns = (1..=most).flat_map(|columns| (1..=most).map(move |rows| (columns, rows)));
        let mut grids: Vec<Grid> = columns
            .map(|(columns, rows)| Grid::new(rows, columns))
            .filter(|grid| (self.tiles_min..=most).contains(&grid.count()))
            .collect();
        grids.sort_by_key(|grid| grid.count());
        let tile = u64::from(self.tile) * u64::from(self.tile);
        let (mut best, mut least) = (Grid::new(1, 1), f64::INFINITY);
        for grid in grids {
            let difference = (aspect(size) - f64::from(grid.columns) / f64::from(grid.rows)).abs();
            let is_covered = 2 * size.pixels() > tile * u64::from(grid.count());
            if difference < least || (difference == least && is_covered) {
                (best, least) = (grid, difference);
            }
        }
        best
    }
}

/// What MiniCPM-V makes of the patches of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceRows {
    /// This many rows, by learned queries (2.6).
    Queries(u32),
    /// One row of so many patches next to each other (4.6: 4, or 2 for finer rows).
    Merged(u32),
}

/// Parameters of MiniCPM-V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// Pixels of the edge of a square slice: 448.
    pub slice: u32,
    /// Pixels of a patch's edge: 14.
    pub patch: u32,
    /// Slices, at most: 9.
    pub slices_max: u32,
    /// What becomes of the patches.
    pub rows: SliceRows,
}

impl Slices {
    /// The plan of an image of `size`: the whole, then its slices row by row where it is larger than one.
    ///
    /// # Errors
    ///
    /// The image has no pixels, or there are more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let merge = match self.rows {
            SliceRows::Queries(_) => 1,
            SliceRows::Merged(edge) => edge,
        };
        let unit = self.patch.saturating_mul(merge);
        check(size, &[self.slice, self.patch, merge, unit])?;
        let grid = self.grid(size);
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let whole = self.resized(width, height, unit, grid.is_none());
        let mut canvases = vec![self.canvas(whole, whole)];
        if let Some(grid) = grid {
            let (columns, rows) = (f64::from(grid.columns), f64::from(grid.rows));
            let slice = self.resized(
                multiple(width, grid.columns) / columns,
                multiple(height, grid.rows) / rows,
                unit,
                true,
            );
            let large = Size::new(
                slice.width.saturating_mul(grid.columns),
                slice.height.saturating_mul(grid.rows),
            );
            canvases.push(self.canvas(large, slice));
        }
        let rows = rows_of(&canvases);
        let plan = Plan {
            canvases,
            grid: grid.unwrap_or(Grid::new(1, 1)),
            rows,
        };
        if plan
            .tiles()
            .any(|tile| tile.patches.count() > self.patches_max())
        {
            let reason = TOO_MANY;
            return Err(ImageFault::Plan { size, reason });
        }
        plan.checked(size)
    }

    /// Patches of one slice, at most. A slice has about the area of a square one; whole rows make a narrow one larger.
    #[must_use]
    pub fn patches_max(&self) -> u32 {
        let edge = self.slice.div_ceil(self.patch.max(1));
        edge.saturating_mul(edge).saturating_mul(2)
    }

    /// Rows of one slice, at most.
    #[must_use]
    pub fn rows_max(&self) -> u32 {
        match self.rows {
            SliceRows::Queries(count) => count,
            SliceRows::Merged(edge) => self.patches_max() / edge.saturating_mul(edge).max(1),
        }
    }

    fn canvas(&self, to: Size, slice: Size) -> Canvas {
        let patches = Grid::of_cells(slice, self.patch);
        let merged = match self.rows {
            SliceRows::Queries(count) => Grid::new(1, count),
            SliceRows::Merged(edge) => patches.merged(edge),
        };
        Canvas::of_tiles(to, Filter::Bicubic, slice, patches, merged)
    }

    /// The grid of slices nearest to the image in the logarithm of its ratio; none for a small image.
    fn grid(&self, size: Size) -> Option<Grid> {
        let slice = f64::from(self.slice * self.slice);
        let most = self.slices_max.min(TILES_MAX);
        let count = (size.pixels() as f64 / slice).ceil().min(f64::from(most)) as u32;
        if count <= 1 {
            return None;
        }
        let ratio = aspect(size).ln();
        let (mut best, mut least) = (Grid::new(1, 1), f64::INFINITY);
        for slices in [count - 1, count, count + 1] {
            if slices == 1 || slices > most {
                continue;
            }
            for rows in (1..=slices).filter(|rows| slices % rows == 0) {
                let grid = Grid::new(rows, slices / rows);
                let of_grid = (f64::from(grid.columns) / f64::from(grid.rows)).ln();
                let error = (ratio - of_grid).abs();
                if error < least || (error == least && rows > best.rows) {
                    (best, least) = (grid, error);
                }
            }
        }
        Some(best)
    }

    /// The size of a slice for a part of the image: about the area of a slice where it is larger, or where `may_grow`,
    /// to multiples of `unit`.
    fn resized(&self, width: f64, height: f64, unit: u32, may_grow: bool) -> Size {
        let slice = f64::from(self.slice);
        let (mut width, mut height) = (width, height);
        if may_grow || width * height > slice * slice {
            let aspect = width / height;
            height = (slice / aspect.sqrt()).floor();
            width = (height * aspect).floor();
        }
        Size::new(multiple(width, unit) as u32, multiple(height, unit) as u32)
    }
}

/// The multiple of `unit` nearest to a length, at least one; of two, the even one.
fn multiple(length: f64, unit: u32) -> f64 {
    let unit = f64::from(unit);
    ((length / unit).round_ties_even() * unit).max(unit)
}
