//! Memory of a model on a device, known before a byte of a matrix is read.

use crate::layout::matrix_bytes;
use crate::operation::{CacheShape, Program, StatesShape};
use crate::webgpu::memory::scratch_bytes;

/// Bytes of a model on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The weights.
    pub weights: u64,
    /// Keys and values of all pages.
    pub kv: u64,
    /// States of sequences, in a model with recurrent layers.
    pub states: u64,
    /// The workspace of a batch.
    pub scratch: u64,
}

impl Place {
    pub(crate) fn of(program: &Program) -> Self {
        Self {
            weights: program.matrices.iter().map(matrix_bytes).sum(),
            kv: program
                .caches
                .iter()
                .map(|cache: &CacheShape| cache.bytes())
                .sum(),
            states: program.states.map_or(0, StatesShape::bytes),
            scratch: scratch_bytes(program),
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        let parts = [self.weights, self.kv, self.states, self.scratch];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// A model does not fit on the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model does not fit on the device ({why}): {} MiB of weights, {} MiB of keys and values, {} MiB of states, {} MiB of workspace",
    mib(.place.weights),
    mib(.place.kv),
    mib(.place.states),
    mib(.place.scratch)
)]
pub struct TooLarge {
    /// What the model takes.
    pub place: Place,
    /// The bound that is exceeded.
    pub why: String,
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
