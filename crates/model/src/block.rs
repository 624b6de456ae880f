//! The pass over a block: rows that see each other, as those of one image do in some models.
//!
//! Such rows need each other's keys and values of a layer before any of them leaves the layer, so they cannot be divided among
//! the chunks of a prompt. The pass is divided between layers instead, and within a layer after its keys and values are stored:
//! it stops after each unit and keeps the rows, so that a step computes as many units as fit its time.

use crate::{Batch, ForwardError};

/// Computes the keys and values of a block in units. Other batches may be computed between two units: bits depend on them as
/// little as those of any batch do.
pub trait AdvanceBlock {
    /// Begins the pass over a block; one that is under way is dropped. The batch is one span of vectors without outputs
    /// ([`Batch::check_block`]), of any number of rows; each sees the positions up to the last of them, in the layers where the
    /// model has it so. Returns the number of units, at least 1.
    ///
    /// Until the last unit, the keys and values of the block's positions are undefined, and no other pass writes them or those
    /// before.
    ///
    /// # Errors
    /// See [`ForwardError`]; nothing is under way then.
    fn begin_block(&mut self, batch: &Batch) -> Result<usize, ForwardError>;

    /// The cost of what [`Self::advance_block`] computes with the same `units_max`, at least 1: twice the cost takes about twice
    /// as long.
    fn next_cost(&self, units_max: usize) -> u64;

    /// Computes the next unit, or as many of the next `units_max` (at least 1) as the model computes together: that takes less
    /// time, and the bits are the same. Returns the number of units that are left. 0: keys and values of all rows are in their
    /// pages. The last row sees what it would see outside of the block, so a batch that computes it again has its logits, and
    /// stores the same bits.
    ///
    /// # Errors
    /// See [`ForwardError`]; or nothing is under way. The units may be tried again.
    fn advance_block(&mut self, units_max: usize) -> Result<usize, ForwardError>;
}
