//! The rule of Idefics 3 and SmolVLM: tiles of a large picture, and that picture in the size of one tile.

use super::{
    Canvas, Plan, Step, Tile, aspect, check, check_tiles, rows_of, tiles_of, up_to_multiple,
};
use crate::error::ImageFault;
use crate::resize::Filter;
use crate::size::{Area, Grid, Size};

/// The longest edge that the rule resizes to, whatever the parameters say.
const EDGE_MAX: u32 = 4096;

/// Parameters of Idefics 3, SmolVLM and SmolVLM2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Pixels of the longer edge after the first resize.
    pub longest_edge: u32,
    /// Pixels of a tile's edge.
    pub tile: u32,
    /// Pixels of a patch's edge.
    pub patch: u32,
    /// Patches next to each other that become one row.
    pub shuffle: u32,
}

impl Tiles {
    /// The plan of an image of `size`: its tiles row by row, then the whole; the whole alone where there is one tile.
    ///
    /// # Errors
    ///
    /// There are more rows than [`super::ROWS_MAX`].
    pub fn plan(&self, size: Size) -> Result<Plan, ImageFault> {
        let parameters = [self.longest_edge, self.tile, self.patch, self.shuffle];
        check(size, &parameters)?;
        let filter = Filter::Lanczos;
        let first = self.with_longest_edge(size);
        let large = self.of_whole_tiles(first);
        let grid = Grid::of_cells(large, self.tile);
        check_tiles(size, grid)?;
        let tile = Size::square(self.tile);
        let patches = Grid::of_cells(tile, self.patch);
        let merged = patches.merged(self.shuffle);
        let resize = |to| Step::Resize { to, filter };
        let mut canvases = vec![Canvas {
            steps: vec![resize(first), resize(large)],
            tiles: tiles_of(large, tile, patches, merged),
        }];
        if grid.count() > 1 {
            let area = Area {
                x: 0,
                y: 0,
                size: tile,
            };
            canvases.push(Canvas {
                steps: vec![resize(first), resize(large), resize(tile)],
                tiles: vec![Tile {
                    area,
                    patches,
                    merged,
                    rows: merged.count(),
                }],
            });
        }
        let rows = rows_of(&canvases);
        let plan = Plan {
            canvases,
            grid,
            rows,
        };
        plan.checked(size)
    }

    /// The longer edge to the parameter, the other by the ratio, down and then to an even number.
    fn with_longest_edge(&self, size: Size) -> Size {
        let long = self.longest_edge.min(EDGE_MAX);
        let other = |ratio: f64| {
            let edge = (f64::from(long) * ratio) as u32;
            (edge + edge % 2).max(1)
        };
        let aspect = aspect(size);
        if size.width >= size.height {
            let edge = (f64::from(long) / aspect) as u32;
            Size::new(long, (edge + edge % 2).max(1))
        } else {
            Size::new(other(aspect), long)
        }
    }

    /// The longer edge up to a multiple of the tile, the other by the ratio, down and then up to a multiple.
    fn of_whole_tiles(&self, size: Size) -> Size {
        let aspect = aspect(size);
        if size.width >= size.height {
            let width = up_to_multiple(size.width, self.tile);
            let height = (f64::from(width) / aspect) as u32;
            Size::new(width, up_to_multiple(height.max(1), self.tile))
        } else {
            let height = up_to_multiple(size.height, self.tile);
            let width = (f64::from(height) * aspect) as u32;
            Size::new(up_to_multiple(width.max(1), self.tile), height)
        }
    }
}
