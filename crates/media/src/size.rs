//! Sizes, areas and grids in pixels, patches and rows.

use std::fmt;

/// Width and height, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Size {
    /// Pixels of a row.
    pub width: u32,
    /// Pixels of a column.
    pub height: u32,
}

impl Size {
    /// A size of these edges.
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// A size of two equal edges.
    #[must_use]
    pub const fn square(edge: u32) -> Self {
        Self::new(edge, edge)
    }

    /// Width times height.
    #[must_use]
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// The longer edge.
    #[must_use]
    pub const fn longer(self) -> u32 {
        if self.width > self.height {
            self.width
        } else {
            self.height
        }
    }

    /// The shorter edge.
    #[must_use]
    pub const fn shorter(self) -> u32 {
        if self.width > self.height {
            self.height
        } else {
            self.width
        }
    }

    /// The size after a quarter turn.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self::new(self.height, self.width)
    }

    /// Bytes of this many pixels in RGB.
    #[must_use]
    pub const fn rgb_bytes(self) -> usize {
        self.pixels() as usize * 3
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.width, self.height)
    }
}

/// A rectangle within a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    /// Pixels to the left of it.
    pub x: u32,
    /// Pixels above it.
    pub y: u32,
    /// Width and height.
    pub size: Size,
}

/// Rows and columns of equal things: tiles, patches, or the rows that a tower returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Things on top of each other.
    pub rows: u32,
    /// Things next to each other.
    pub columns: u32,
}

impl Grid {
    /// A grid of this many rows and columns.
    #[must_use]
    pub const fn new(rows: u32, columns: u32) -> Self {
        Self { rows, columns }
    }

    /// Rows times columns.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.rows.saturating_mul(self.columns)
    }

    /// The grid of cells of `edge` pixels in a picture; what is left at the right and at the bottom does not count. No
    /// cells, if they have no pixels.
    #[must_use]
    pub const fn of_cells(size: Size, edge: u32) -> Self {
        Self::new(size.height, size.width).merged(edge)
    }

    /// The grid of blocks of `edge` by `edge` cells.
    #[must_use]
    pub const fn merged(self, edge: u32) -> Self {
        match edge {
            0 => Self::new(0, 0),
            edge => Self::new(self.rows / edge, self.columns / edge),
        }
    }
}
