//! The order in which a tower computes, and its division into units.
//!
//! A unit is one stage for one block of rows. Which rows are a block depends on the picture alone, so the bits of a row do not
//! depend on how many units are computed at a time.

use kernels::DENSE_TILE;
use std::ops::Range;
use weights::vision::{NEIGHBORS, VisionConfig};

/// Rows of the stream of a block.
pub(super) const BLOCK_PATCHES: usize = 256;
/// Rows of a block of a projector, each of which is several patches wide.
pub(super) const BLOCK_ROWS: usize = 128;
/// Multiplications of a unit, at most where a block can be short enough: 6 to 15 ms on two cores without tiles. Units of four
/// times as many made the pass faster by one percent.
const UNIT_PRODUCTS: usize = 1_500_000_000;
/// Multiplications of a cost of 1.
const COST_PRODUCTS: usize = 1_000_000;
/// A multiplication of attention takes as long as so many of a matrix.
const ATTENTION_FACTOR: usize = 2;
/// Blocks begin at multiples of this: whole tiles of keys and of rows.
const BLOCK_STEP: usize = DENSE_TILE;

/// A part of the pass that is computed for all rows before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Patches to the stream, with their places.
    Patches,
    /// Keys and values of a layer, from the stream.
    KeysValues(usize),
    /// Attention of a layer, added to the stream.
    Attention(usize),
    /// Feed-forward part of a layer, added to the stream.
    FeedForward(usize),
    /// Keys and values of neighbors, which become one row.
    NeighborKeysValues,
    /// Attention of neighbors, added to the stream.
    NeighborAttention,
    /// Neighbors to one row; the stream is shorter from here on.
    Neighbors,
    /// Keys and values for the queries of a resampler, from the stream.
    SeenKeysValues,
    /// Rows for a further text layer, by their number among these.
    Deepstack(usize),
    /// Rows.
    Head,
}

/// A stage, and what a row of it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StageCost {
    stage: Stage,
    /// Multiplications of a row.
    row: usize,
    /// Multiplications of a row for each row of the picture.
    key: usize,
    /// Patches of a row of the stream: several behind [`Stage::Neighbors`].
    merged: usize,
}

/// All stages of a tower, in order. `gated` towers have a third matrix in their feed-forward parts; `neighbors` is the width
/// between the matrices of the merger between two layers.
pub(super) fn stages(config: &VisionConfig, gated: bool, neighbors: usize) -> Vec<StageCost> {
    let (dim, side) = (config.dim, config.side());
    let mut merged = 1;
    let cost = |merged, stage, row| StageCost {
        stage,
        row,
        key: 0,
        merged,
    };
    let matrices = if gated { 3 } else { 2 };
    let head = side * (side + config.projection_dim);
    let mut stages = vec![cost(1, Stage::Patches, config.patch_cols() * dim)];
    for layer in 0..config.layers {
        let is_bound = config.windows.bound(layer);
        let keys = if is_bound { 0 } else { 2 * dim };
        stages.extend([
            cost(merged, Stage::KeysValues(layer), 2 * dim * dim),
            StageCost {
                key: ATTENTION_FACTOR * keys,
                ..cost(merged, Stage::Attention(layer), 2 * dim * dim)
            },
            cost(
                merged,
                Stage::FeedForward(layer),
                matrices * dim * config.hidden,
            ),
        ]);
        if config.merge_after == Some(layer) {
            stages.push(cost(1, Stage::NeighborKeysValues, 2 * dim * dim));
            stages.push(cost(1, Stage::NeighborAttention, 2 * dim * dim));
            merged = NEIGHBORS;
            let products = (NEIGHBORS + 1) * dim * neighbors;
            stages.push(cost(merged, Stage::Neighbors, products));
        }
        let after = config.deepstack.iter().position(|after| *after == layer);
        stages.extend(after.map(|number| cost(merged, Stage::Deepstack(number), head)));
    }
    if config.resampler.is_some() {
        let out = config.projection_dim;
        let seen = out * (dim + 2 * out);
        stages.push(cost(1, Stage::SeenKeysValues, seen));
        stages.push(StageCost {
            key: ATTENTION_FACTOR * 2 * out,
            ..cost(1, Stage::Head, 3 * out * out)
        });
    } else {
        stages.push(cost(merged, Stage::Head, head));
    }
    stages
}

/// Sizes of one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PictureSize {
    /// Rows of the stream: patches and class tokens.
    pub(super) stream: usize,
    /// Blocks of patches, of which each becomes a row, or queries.
    pub(super) blocks: usize,
}

impl StageCost {
    /// Multiplications of a row.
    fn row_products(self, size: PictureSize) -> usize {
        self.row + self.key * size.stream
    }

    /// Rows of the stage, and of each of its blocks but the last.
    fn extent(self, size: PictureSize) -> (usize, usize) {
        let (rows, most) = match self.stage {
            Stage::Deepstack(_) | Stage::Head => (size.blocks, BLOCK_ROWS),
            Stage::Neighbors => (size.stream / self.merged, BLOCK_ROWS),
            _ => (size.stream / self.merged, BLOCK_PATCHES),
        };
        let fit = UNIT_PRODUCTS / self.row_products(size).max(1);
        let block = fit / BLOCK_STEP * BLOCK_STEP;
        (rows, block.clamp(BLOCK_STEP, most))
    }
}

/// A stage for one block of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) stage: Stage,
    /// Rows of the stream.
    pub(super) stream: usize,
    /// Rows of the block.
    pub(super) rows: Range<usize>,
}

/// The next unit of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    size: PictureSize,
    /// Index of the stage.
    stage: usize,
    /// The first row of the block.
    row: usize,
}

impl Cursor {
    /// The first unit of a picture.
    pub(super) fn new(size: PictureSize) -> Self {
        Self {
            size,
            stage: 0,
            row: 0,
        }
    }

    /// Units of the whole encoding.
    pub(super) fn units(size: PictureSize, stages: &[StageCost]) -> usize {
        let units = stages.iter().map(|stage| {
            let (rows, block) = stage.extent(size);
            rows.div_ceil(block)
        });
        units.sum()
    }

    /// The unit, and a step to the next; `None` after the last.
    pub(super) fn advance(&mut self, stages: &[StageCost]) -> Option<Unit> {
        let stage = *stages.get(self.stage)?;
        let (rows, block) = stage.extent(self.size);
        let unit = self.row..rows.min(self.row + block);
        self.row = unit.end;
        if self.row == rows {
            (self.stage, self.row) = (self.stage + 1, 0);
        }
        Some(Unit {
            stage: stage.stage,
            stream: self.size.stream / stage.merged,
            rows: unit,
        })
    }

    /// The cost of the next unit, at least 1.
    pub(super) fn next_cost(&self, stages: &[StageCost]) -> u64 {
        let Some(stage) = stages.get(self.stage) else {
            return 1;
        };
        let (rows, block) = stage.extent(self.size);
        let unit = block.min(rows - self.row);
        (unit * stage.row_products(self.size))
            .div_ceil(COST_PRODUCTS)
            .max(1) as u64
    }

    /// Whether no unit is left.
    pub(super) fn is_done(&self, stages: &[StageCost]) -> bool {
        self.stage >= stages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> [StageCost; 4] {
        let (row, key, merged) = (30_000_000, 0, 1);
        [
            Stage::Patches,
            Stage::KeysValues(0),
            Stage::Attention(0),
            Stage::Head,
        ]
        .map(|stage| match stage {
            Stage::Attention(_) => StageCost {
                stage,
                row,
                key: 4000,
                merged,
            },
            _ => StageCost {
                stage,
                row,
                key,
                merged,
            },
        })
    }

    fn size_of(patches: usize) -> PictureSize {
        PictureSize {
            stream: patches,
            blocks: patches / 4,
        }
    }

    #[test]
    fn units_cover_each_stage_once_and_in_order() {
        let stages = listed();
        for patches in [4, 256, 1000, 4096, 16_384] {
            let size = size_of(patches);
            let (mut cursor, mut units, mut found) = (Cursor::new(size), 0, Vec::new());
            while let Some(Unit { stage, rows, .. }) = cursor.advance(&stages) {
                assert!(!rows.is_empty() && rows.len() <= BLOCK_PATCHES);
                assert!(rows.start.is_multiple_of(DENSE_TILE), "{rows:?}");
                units += 1;
                match found.last_mut() {
                    Some((last, end)) if *last == stage => {
                        assert_eq!(*end, rows.start);
                        *end = rows.end;
                    }
                    _ => found.push((stage, rows.end)),
                }
            }
            assert!(cursor.is_done(&stages));
            assert_eq!(units, Cursor::units(size, &stages), "{patches}");
            let wanted = stages.map(|stage| (stage.stage, stage.extent(size).0));
            assert_eq!(found, wanted, "{patches}");
        }
    }

    #[test]
    fn blocks_are_shorter_where_rows_cost_more() {
        let block = |row, key, patches| {
            let stage = Stage::Attention(0);
            let cost = StageCost {
                stage,
                row,
                key,
                merged: 1,
            };
            cost.extent(size_of(patches)).1
        };
        assert_eq!(block(2_500_000, 0, 1024), BLOCK_PATCHES);
        assert_eq!(block(10_000_000, 0, 1024), 128);
        assert_eq!(block(1_000_000, 4608, 1024), BLOCK_PATCHES);
        assert_eq!(block(1_000_000, 4608, 4096), 64);
        assert_eq!(block(usize::MAX / 2, 0, 4), BLOCK_STEP);
    }
}
