//! Plans: from the size of a picture to resizes, tiles and the number of rows that a model sees.
//!
//! Each rule is a pure function of the upright size, so a request is counted from headers, before anything is decoded.
//! Rules compute in the order and with the roundings of transformers' image processors, with which models were
//! trained. [`Plan::views`] makes the pictures that the tower sees.

mod grids;
mod kept_ratio;
mod pinpoints;
mod smart_resize;
mod split_large;
mod square;
mod tiles;

pub use grids::{SliceRows, Slices, TileGrid};
pub use kept_ratio::{Budget, LongestEdge};
pub use pinpoints::{PINPOINTS_MAX, Pinpoints};
pub use smart_resize::SmartResize;
pub use split_large::SplitLarge;
pub use square::{Fit, Square};
pub use tiles::Tiles;

use crate::error::ImageFault;
use crate::pixels::Pixels;
use crate::resize::{Filter, resize};
use crate::size::{Area, Grid, Size};

/// Rows of one image. No rule's own bound is larger with the parameters of known models.
pub const ROWS_MAX: u32 = 65_536;

/// Pixels of all views of one image together, and of each picture on the way to them.
pub const VIEW_PIXELS_MAX: u64 = 24_000_000;

/// Tiles of one picture.
pub const TILES_MAX: u32 = 64;

/// The largest parameter of a rule that is read from a model's file: pixels of an edge.
pub const PARAMETER_MAX: u32 = 16_384;

/// What becomes of one image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Pictures that are made of the image, in the order in which the model sees their tiles.
    pub canvases: Vec<Canvas>,
    /// Tiles of the picture that is cut into tiles; one by one where none is.
    pub grid: Grid,
    /// Rows in the prompt, marks that are rows of the tower's output included.
    pub rows: u32,
}

/// A picture that is made of the image, and cut into tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canvas {
    /// Steps that turn the image into views, one after another.
    pub steps: Vec<Step>,
    /// What the tower sees of it, row by row.
    pub tiles: Vec<Tile>,
}

/// A step from an image to a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Stretches to a size.
    Resize {
        /// Size afterwards.
        to: Size,
        /// How pixels are weighted.
        filter: Filter,
    },
    /// Cuts a part out.
    Crop(Area),
    /// Leaves the last rows and columns of each tile out, which are less than a patch.
    Thin {
        /// Size afterwards.
        to: Size,
        /// Pixels of a tile's edge.
        every: u32,
        /// Those of them that stay.
        keep: u32,
    },
    /// Lays the picture on a ground.
    Pad {
        /// Size of the ground.
        to: Size,
        /// Pixels to the left of the picture.
        x: u32,
        /// Pixels above the picture.
        y: u32,
        /// Red, green and blue of the ground.
        color: [u8; 3],
    },
}

/// A part of a canvas that the tower sees as one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Where it is on the canvas.
    pub area: Area,
    /// Patches that it is cut into.
    pub patches: Grid,
    /// Rows and columns of what the tower makes of it.
    pub merged: Grid,
    /// Rows that the tower makes of it, with those that mark the ends of lines: after each line, or after each but the last.
    pub rows: u32,
}

impl Plan {
    /// A plan of one canvas that is one tile of so many rows.
    fn whole(steps: Vec<Step>, size: Size, patches: Grid, merged: Grid, rows: u32) -> Self {
        let area = Area { x: 0, y: 0, size };
        let tile = Tile {
            area,
            patches,
            merged,
            rows,
        };
        Self {
            canvases: vec![Canvas {
                steps,
                tiles: vec![tile],
            }],
            grid: Grid::new(1, 1),
            rows,
        }
    }

    /// The plan, if it keeps to the bounds of rows and pixels.
    fn checked(self, size: Size) -> Result<Self, ImageFault> {
        let tiles = self.canvases.iter().flat_map(|canvas| &canvas.tiles);
        let views: u64 = tiles.map(|tile| tile.area.size.pixels()).sum();
        let steps = self.canvases.iter().flat_map(|canvas| &canvas.steps);
        let largest = steps.map(|step| step.size().pixels()).max().unwrap_or(0);
        let reason = match self.rows {
            0 => "there would be none",
            rows if rows > ROWS_MAX || views.max(largest) > VIEW_PIXELS_MAX => TOO_MANY,
            _ => return Ok(self),
        };
        Err(ImageFault::Plan { size, reason })
    }

    /// The tiles in the order in which the model sees them, one for each view.
    pub fn tiles(&self) -> impl Iterator<Item = &Tile> {
        self.canvases.iter().flat_map(|canvas| &canvas.tiles)
    }

    /// The pictures that the tower sees, in order.
    #[must_use]
    pub fn views(&self, image: &Pixels) -> Vec<Pixels> {
        self.canvases
            .iter()
            .flat_map(|canvas| canvas.views(image))
            .collect()
    }
}

impl Canvas {
    /// A canvas that is resized once and cut into equal tiles.
    fn of_tiles(to: Size, filter: Filter, tile: Size, patches: Grid, merged: Grid) -> Self {
        Self {
            steps: vec![Step::Resize { to, filter }],
            tiles: tiles_of(to, tile, patches, merged),
        }
    }

    fn views(&self, image: &Pixels) -> Vec<Pixels> {
        let mut made: Option<Pixels> = None;
        for step in &self.steps {
            let from = made.as_ref().unwrap_or(image);
            made = Some(match *step {
                Step::Resize { to, filter } => resize(from, to, filter),
                Step::Crop(area) => from.crop(area),
                Step::Thin { every, keep, .. } => from.thinned(every, keep),
                Step::Pad { to, x, y, color } => from.pad(to, x, y, color),
            });
        }
        let canvas = made.as_ref().unwrap_or(image);
        self.tiles
            .iter()
            .map(|tile| canvas.crop(tile.area))
            .collect()
    }
}

impl Step {
    /// The size afterwards.
    fn size(&self) -> Size {
        match *self {
            Self::Resize { to, .. } | Self::Pad { to, .. } | Self::Thin { to, .. } => to,
            Self::Crop(area) => area.size,
        }
    }
}

const TOO_MANY: &str = "there would be too many";

/// Checks what a rule divides by and multiplies with: the size of the image and the parameters of the model, products
/// included.
fn check(size: Size, parameters: &[u32]) -> Result<(), ImageFault> {
    if size.shorter() == 0 {
        return Err(ImageFault::NoPixels { size });
    }
    if parameters
        .iter()
        .any(|value| !(1..=PARAMETER_MAX).contains(value))
    {
        let reason = "a parameter of the model is out of range";
        return Err(ImageFault::Plan { size, reason });
    }
    Ok(())
}

/// Checks the number of tiles before a list of them is made.
fn check_tiles(size: Size, grid: Grid) -> Result<(), ImageFault> {
    if grid.count() > TILES_MAX {
        let reason = TOO_MANY;
        return Err(ImageFault::Plan { size, reason });
    }
    Ok(())
}

/// Rows of all tiles.
fn rows_of(canvases: &[Canvas]) -> u32 {
    let tiles = canvases.iter().flat_map(|canvas| &canvas.tiles);
    tiles.fold(0, |rows, tile| tile.rows.saturating_add(rows))
}

/// Equal tiles of a canvas, row by row.
fn tiles_of(canvas: Size, tile: Size, patches: Grid, merged: Grid) -> Vec<Tile> {
    let rows = (0..canvas.height / tile.height).map(|row| row * tile.height);
    rows.flat_map(|y| {
        (0..canvas.width / tile.width).map(move |column| Tile {
            area: Area {
                x: column * tile.width,
                y,
                size: tile,
            },
            patches,
            merged,
            rows: merged.count(),
        })
    })
    .collect()
}

/// Where a picture that is scaled to fit into `target` ends: one edge is the target's, the other rounded up.
fn fitted(size: Size, target: Size) -> Size {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let across = f64::from(target.width) / width;
    let down = f64::from(target.height) / height;
    if across < down {
        let height = (height * across).ceil() as u32;
        Size::new(target.width, height.clamp(1, target.height))
    } else {
        let width = (width * down).ceil() as u32;
        Size::new(width.clamp(1, target.width), target.height)
    }
}

/// The step that puts a fitted picture into the middle of `target`.
fn centered(size: Size, target: Size, color: [u8; 3]) -> Step {
    Step::Pad {
        to: target,
        x: (target.width - size.width) / 2,
        y: (target.height - size.height) / 2,
        color,
    }
}

/// Width over height, as transformers computes it.
fn aspect(size: Size) -> f64 {
    f64::from(size.width) / f64::from(size.height)
}

/// An edge up to a multiple of `unit`.
fn up_to_multiple(edge: u32, unit: u32) -> u32 {
    edge.div_ceil(unit) * unit
}
