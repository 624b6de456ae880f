//! Pixels as the numbers that the first matrix of a tower takes.

use crate::pixels::Pixels;
use crate::size::Grid;

/// How levels of 0 to 255 become numbers: `(x / 255 − mean) / std`, each channel by its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// Means of red, green and blue.
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue.
    pub std: [f32; 3],
}

impl Normalization {
    /// Levels to −1…1: SigLIP, Qwen3-VL, Gemma.
    pub const HALF: Self = Self {
        mean: [0.5; 3],
        std: [0.5; 3],
    };

    /// Levels to 0…1: what files of Gemma 4 have.
    pub const PARTS: Self = Self {
        mean: [0.0; 3],
        std: [1.0; 3],
    };

    /// The pictures that CLIP was trained on: LLaVA, Pixtral, Qwen2-VL.
    pub const CLIP: Self = Self {
        mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
        std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
    };

    /// The pictures of ImageNet: InternVL.
    pub const IMAGENET: Self = Self {
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
    };

    /// The number of each level of each channel, (3, 256). The division by 255 is a product in f64, rounded to f32
    /// before the mean is taken away, as transformers does it.
    fn table(&self) -> [[f32; 256]; 3] {
        std::array::from_fn(|channel| {
            std::array::from_fn(|level| {
                let part = (level as f64 * (1.0 / 255.0)) as f32;
                (part - self.mean[channel]) / self.std[channel]
            })
        })
    }
}

/// The order of the patches of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchOrder {
    /// Row by row.
    Raster,
    /// Blocks of so many patches on each side, row by row, and row by row within a block: what becomes one row of the
    /// tower's output is together. What is left at the right and at the bottom makes no patch.
    Blocks(u32),
    /// Windows of so many patches on each side, row by row, cut at the right and at the bottom; within each, blocks.
    Windows {
        /// Patches on each side of a block.
        merge: u32,
        /// Patches on each side of a window, a multiple of `merge`.
        edge: u32,
    },
}

impl PatchOrder {
    /// The places (row, column) of a grid's patches, in this order.
    pub fn places(self, grid: Grid) -> impl Iterator<Item = (u32, u32)> {
        let merge = self.merge();
        self.areas(grid).flat_map(move |(top, left, blocks)| {
            (0..blocks.count()).flat_map(move |block| {
                let row = (top + block / blocks.columns) * merge;
                let column = (left + block % blocks.columns) * merge;
                (0..merge * merge)
                    .map(move |within| (row + within / merge, column + within % merge))
            })
        })
    }

    /// The number of patches of each window, in this order: of all patches, where there are no windows.
    pub fn windows(self, grid: Grid) -> impl Iterator<Item = u32> {
        let patches = self.merge() * self.merge();
        self.areas(grid)
            .map(move |(_, _, blocks)| blocks.count() * patches)
    }

    /// Patches on each side of a block.
    fn merge(self) -> u32 {
        match self {
            Self::Raster => 1,
            Self::Blocks(merge) | Self::Windows { merge, .. } => merge.max(1),
        }
    }

    /// Windows in blocks: the first row and column of each, and its size.
    fn areas(self, grid: Grid) -> impl Iterator<Item = (u32, u32, Grid)> {
        let blocks = grid.merged(self.merge());
        let edge = match self {
            Self::Raster | Self::Blocks(_) => blocks.rows.max(blocks.columns).max(1),
            Self::Windows { edge, .. } => (edge / self.merge()).max(1),
        };
        let across = blocks.columns.div_ceil(edge);
        (0..blocks.rows.div_ceil(edge) * across).map(move |window| {
            let (top, left) = (window / across * edge, window % across * edge);
            let (rows, columns) = (blocks.rows - top, blocks.columns - left);
            (top, left, Grid::new(rows.min(edge), columns.min(edge)))
        })
    }
}

/// Planes of a picture, (3, height, width).
#[must_use]
pub fn planes(pixels: &Pixels, normalization: &Normalization) -> Vec<f32> {
    let (pixels, _) = pixels.bytes().as_chunks::<3>();
    let table = normalization.table();
    let mut planes = Vec::with_capacity(pixels.len() * 3);
    for (channel, table) in table.iter().enumerate() {
        planes.extend(
            pixels
                .iter()
                .map(|pixel| table[usize::from(pixel[channel])]),
        );
    }
    planes
}

/// Patches of a picture, (patches, 3 · patch · patch): within a patch by channel, then row, then column, as the kernel
/// of a convolution is stored. What is left at the right and at the bottom of the picture makes no patch.
#[must_use]
pub fn patches(
    pixels: &Pixels,
    patch: u32,
    order: PatchOrder,
    normalization: &Normalization,
) -> Vec<f32> {
    if patch == 0 {
        return Vec::new();
    }
    let grid = Grid::of_cells(pixels.size(), patch);
    let table = normalization.table();
    let row_bytes = pixels.row_bytes();
    let edge = patch as usize;
    let mut numbers = Vec::with_capacity(grid.count() as usize * 3 * edge * edge);
    for (row, column) in order.places(grid) {
        let start = row as usize * edge * row_bytes + column as usize * edge * 3;
        for (channel, table) in table.iter().enumerate() {
            for y in 0..edge {
                let line = &pixels.bytes()[start + y * row_bytes..][..edge * 3];
                let (line, _) = line.as_chunks::<3>();
                numbers.extend(line.iter().map(|pixel| table[usize::from(pixel[channel])]));
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    #[test]
    fn places_of_blocks_are_together_and_cover_the_grid() {
        let raster: Vec<_> = PatchOrder::Raster.places(Grid::new(2, 3)).collect();
        assert_eq!(raster, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        let blocks: Vec<_> = PatchOrder::Blocks(2).places(Grid::new(2, 4)).collect();
        let first = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let second = [(0, 2), (0, 3), (1, 2), (1, 3)];
        assert_eq!(blocks, [first, second].concat());
        let mut all: Vec<_> = PatchOrder::Blocks(2).places(Grid::new(6, 4)).collect();
        all.sort_unstable();
        let raster: Vec<_> = PatchOrder::Raster.places(Grid::new(6, 4)).collect();
        assert_eq!(all, raster);
    }

    #[test]
    fn windows_are_together_and_cut_at_the_edges() {
        let order = PatchOrder::Windows { merge: 2, edge: 4 };
        let grid = Grid::new(6, 10);
        assert!(order.windows(grid).eq([16, 16, 8, 8, 8, 4]));
        let places: Vec<_> = order.places(grid).collect();
        assert_eq!(
            places[..6],
            [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
        );
        assert_eq!(places[16], (0, 4));
        assert_eq!(places[40..42], [(4, 0), (4, 1)]);
        let (mut found, mut all) = (places, PatchOrder::Raster.places(grid).collect::<Vec<_>>());
        found.sort_unstable();
        all.sort_unstable();
        assert_eq!(found, all);
        assert_eq!(order.windows(Grid::new(0, 5)).count(), 0);
        assert!(PatchOrder::Blocks(2).windows(grid).eq([60]));
    }

    #[test]
    fn patches_are_planes_cut_into_squares() {
        let size = Size::new(8, 4);
        let bytes: Vec<u8> = (0..96).map(|i| (i * 7 % 256) as u8).collect();
        let pixels = Pixels::new(size, bytes);
        let planes = planes(&pixels, &Normalization::CLIP);
        for order in [PatchOrder::Raster, PatchOrder::Blocks(2)] {
            let patches = patches(&pixels, 2, order, &Normalization::CLIP);
            for (index, (row, column)) in order.places(Grid::new(2, 4)).enumerate() {
                for (at, number) in patches[index * 12..][..12].iter().enumerate() {
                    let (channel, y, x) = (at / 4, at / 2 % 2, at % 2);
                    let line = row as usize * 2 + y;
                    let place = channel * 32 + line * 8 + column as usize * 2 + x;
                    assert_eq!(*number, planes[place], "{order:?} {index} {at}");
                }
            }
        }
    }
}
