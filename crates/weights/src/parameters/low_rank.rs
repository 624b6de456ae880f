//! The low-rank pairs of one projection, packed in f32.

use super::tensors::{KernelPacking, Packing};
use crate::adapters::LowRank;
use kernels::{Format, Isa, MatrixStack, PackError, Pool};
use std::ops::Range;

/// Low-rank changes of one projection by adapters.
pub struct LinearAdapters<P: Packing = KernelPacking> {
    /// One for each rank.
    pub groups: Vec<RankGroup<P>>,
}

/// Pairs of one rank.
pub struct RankGroup<P: Packing = KernelPacking> {
    /// Number of each matrix's adapter, ascending.
    adapters: Vec<usize>,
    /// Factor of each pair.
    scales: Vec<f32>,
    /// `A`, each (rank, inputs).
    pub down: P::Stack,
    /// `B`, each (outputs, rank).
    pub up: P::Stack,
}

impl<P: Packing> RankGroup<P> {
    /// The matrix and the factor of an adapter.
    pub fn matrix_of(&self, adapter: usize) -> Option<(usize, f32)> {
        let at = self.adapters.binary_search(&adapter).ok()?;
        Some((at, self.scales[at]))
    }

    pub(super) fn new(pairs: &[(usize, &LowRank)], down: P::Stack, up: P::Stack) -> Self {
        Self {
            adapters: pairs.iter().map(|(adapter, _)| *adapter).collect(),
            scales: pairs.iter().map(|(_, pair)| pair.scale).collect(),
            down,
            up,
        }
    }
}

impl RankGroup {
    /// Packs pairs of one rank, with these rows of `B`.
    pub(super) fn pack(
        (isa, pool): (Isa, &mut Pool),
        pairs: &[(usize, &LowRank)],
        rows: &Range<usize>,
        cols: usize,
    ) -> Result<Self, PackError> {
        let (count, rank) = (pairs.len(), pairs[0].1.rank);
        let mut down = MatrixStack::new(isa, Format::F32, count, rank, cols)?;
        let mut up = MatrixStack::new(isa, Format::F32, count, rows.len(), rank)?;
        for (at, (_, pair)) in pairs.iter().enumerate() {
            down.pack(pool, at, &bytes(&pair.down))?;
            let kept = &pair.up[rows.start * rank..rows.end * rank];
            up.pack(pool, at, &bytes(kept))?;
        }
        Ok(Self::new(pairs, down, up))
    }
}

impl LinearAdapters {
    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        let groups = self.groups.iter();
        groups
            .map(|group| group.down.bytes() + group.up.bytes())
            .sum()
    }
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().copied().flat_map(f32::to_le_bytes).collect()
}
