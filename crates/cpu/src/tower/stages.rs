//! The order in which a tower computes, and its division into units.
//!
//! A unit is one stage for one block of rows. Which rows are a block depends on the picture alone, so the bits of a row do not
//! depend on how many units are computed at a time.

use std::ops::Range;
use weights::vision::VisionConfig;

/// Rows of the stream of a block.
pub(super) const BLOCK_PATCHES: usize = 256;
/// Rows of a block of a projector, each of which is several patches wide.
pub(super) const BLOCK_ROWS: usize = 128;
/// Keys that the queries of a block read together, at most: 25 to 60 ms of attention on two cores.
const BLOCK_KEYS: usize = BLOCK_PATCHES * 4096;
/// Queries of the smallest block.
const BLOCK_QUERIES_MIN: usize = 32;

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
    /// Rows for a further text layer, by their number among these.
    Deepstack(usize),
    /// Rows.
    Head,
}

/// All stages of a tower, in order.
pub(super) fn stages(config: &VisionConfig) -> Vec<Stage> {
    let mut stages = vec![Stage::Patches];
    for layer in 0..config.layers {
        stages.extend([
            Stage::KeysValues(layer),
            Stage::Attention(layer),
            Stage::FeedForward(layer),
        ]);
        let after = config.deepstack.iter().position(|after| *after == layer);
        stages.extend(after.map(Stage::Deepstack));
    }
    stages.push(Stage::Head);
    stages
}

/// Sizes of one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PictureSize {
    /// Rows of the stream: patches and class tokens.
    pub(super) stream: usize,
    /// Blocks of patches, of which each becomes a row.
    pub(super) blocks: usize,
}

impl Stage {
    /// Rows of the stage, and of each of its blocks but the last.
    fn extent(self, size: PictureSize) -> (usize, usize) {
        match self {
            Self::Patches | Self::KeysValues(_) | Self::FeedForward(_) => {
                (size.stream, BLOCK_PATCHES)
            }
            Self::Attention(_) => {
                let queries =
                    BLOCK_KEYS / size.stream.max(1) / BLOCK_QUERIES_MIN * BLOCK_QUERIES_MIN;
                (size.stream, queries.clamp(BLOCK_QUERIES_MIN, BLOCK_PATCHES))
            }
            Self::Deepstack(_) | Self::Head => (size.blocks, BLOCK_ROWS),
        }
    }
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
    pub(super) fn units(size: PictureSize, stages: &[Stage]) -> usize {
        let units = stages.iter().map(|stage| {
            let (rows, block) = stage.extent(size);
            rows.div_ceil(block)
        });
        units.sum()
    }

    /// The unit, and a step to the next; `None` after the last.
    pub(super) fn advance(&mut self, stages: &[Stage]) -> Option<(Stage, Range<usize>)> {
        let stage = *stages.get(self.stage)?;
        let (rows, block) = stage.extent(self.size);
        let unit = self.row..rows.min(self.row + block);
        self.row = unit.end;
        if self.row == rows {
            (self.stage, self.row) = (self.stage + 1, 0);
        }
        Some((stage, unit))
    }

    /// Whether no unit is left.
    pub(super) fn is_done(&self, stages: &[Stage]) -> bool {
        self.stage >= stages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_each_stage_once_and_in_order() {
        let stages = [
            Stage::Patches,
            Stage::KeysValues(0),
            Stage::Attention(0),
            Stage::Head,
        ];
        for patches in [4, 256, 1000, 4096, 16_384] {
            let size = PictureSize {
                stream: patches,
                blocks: patches / 4,
            };
            let (mut cursor, mut units, mut found) = (Cursor::new(size), 0, Vec::new());
            while let Some((stage, rows)) = cursor.advance(&stages) {
                assert!(!rows.is_empty() && rows.len() <= BLOCK_PATCHES);
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
            let wanted = stages.map(|stage| (stage, stage.extent(size).0));
            assert_eq!(found, wanted, "{patches}");
        }
    }
}
