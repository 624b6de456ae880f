//! Adapters beside the weights: which projections a file's pairs change.
//!
//! A tensor of several projections (`attn_qkv`, a fused `ffn_up`) has one pair in a file. The rows of `B` are cut as those
//! of the tensor were, and each projection has a copy of `A`.

use super::described::{Described, DescribedMatrix};
use super::low_rank::{LinearAdapters, RankGroup};
use super::tensors::{Packing, Projecting};
use super::{Attention, Dense, Layer, Linear, Weights};
use crate::Config;
use crate::adapters::{Adapter, LowRank};
use kernels::{Isa, PackError, Pool};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;

/// Pairs of one rank of a projection with these rows of `B` and so many inputs, with the numbers of their adapters.
struct Pairs<'a> {
    pairs: &'a [(usize, &'a LowRank)],
    rows: Range<usize>,
    cols: usize,
}

impl Weights {
    /// Packs adapters, whose numbers are their places in the list, with the projections.
    ///
    /// # Errors
    /// A matrix cannot be packed; pairs of a checked [`Adapter`] can.
    pub fn adapt(
        &mut self,
        config: &Config,
        adapters: &[Adapter],
        isa: Isa,
        pool: &mut Pool,
    ) -> Result<(), PackError> {
        self.adapt_by(config, adapters, |Pairs { pairs, rows, cols }| {
            RankGroup::pack((isa, &mut *pool), pairs, &rows, cols)
        })
    }
    /// Resident bytes of the adapters.
    pub fn adapter_bytes(&self) -> usize {
        let layers = self.layers.iter().flat_map(Layer::linears);
        let adapted = layers.filter_map(|linear| linear.adapters.as_ref());
        adapted.map(LinearAdapters::bytes).sum()
    }
}

impl Weights<Described> {
    /// Describes adapters, whose numbers are their places in the list, with the projections. Their numbers are kept in memory.
    pub fn describe_adapters(&mut self, config: &Config, adapters: &[Adapter]) {
        let described = self.adapt_by(config, adapters, |Pairs { pairs, rows, cols }| {
            Ok::<_, Infallible>(RankGroup::describe(pairs, &rows, cols))
        });
        match described {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }
}

impl RankGroup<Described> {
    /// Describes pairs of one rank, with these rows of `B`.
    fn describe(pairs: &[(usize, &LowRank)], rows: &Range<usize>, cols: usize) -> Self {
        let (count, rank) = (pairs.len(), pairs[0].1.rank);
        let down: Vec<f32> = pairs
            .iter()
            .flat_map(|(_, pair)| &pair.down)
            .copied()
            .collect();
        let kept = rows.start * rank..rows.end * rank;
        let up = pairs.iter().flat_map(|(_, pair)| &pair.up[kept.clone()]);
        let up: Vec<f32> = up.copied().collect();
        let down = DescribedMatrix::of_floats((count, rank, cols), &down);
        let up = DescribedMatrix::of_floats((count, rows.len(), rank), &up);
        Self::new(pairs, down, up)
    }
}

impl<P: Packing> Weights<P>
where
    P::Matrix: Projecting,
{
    /// Gives each projection the pairs that change it, one group for each rank.
    fn adapt_by<E>(
        &mut self,
        config: &Config,
        adapters: &[Adapter],
        mut pack: impl FnMut(Pairs<'_>) -> Result<RankGroup<P>, E>,
    ) -> Result<(), E> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            for (linear, places) in places(layer, index, config) {
                let (outputs, cols) = linear.weight.shape();
                let mut by_rank: BTreeMap<(usize, usize), Vec<(usize, &LowRank)>> = BTreeMap::new();
                for (adapter, given) in adapters.iter().enumerate() {
                    let found = places.iter().find_map(|(part, first)| {
                        let pair = given.pair(&format!("blk.{index}.{part}.weight"))?;
                        Some((pair, *first))
                    });
                    if let Some((pair, first)) = found {
                        let kind = by_rank.entry((pair.rank, first)).or_default();
                        kind.push((adapter, pair));
                    }
                }
                let mut groups = Vec::new();
                for ((_, first), pairs) in by_rank {
                    groups.push(pack(Pairs {
                        pairs: &pairs,
                        rows: first..first + outputs,
                        cols,
                    })?);
                }
                linear.adapters = (!groups.is_empty()).then_some(LinearAdapters { groups });
            }
        }
        Ok(())
    }
}

impl Layer {
    /// The projections that adapters may change.
    fn linears(&self) -> impl Iterator<Item = &Linear> {
        let attention = self.attention.iter();
        let stored = attention.clone().flat_map(|attention| &attention.key_value);
        let stored = stored.flat_map(|stored| std::iter::once(&stored.key).chain(&stored.value));
        let dense = self.dense.iter();
        let dense = dense.flat_map(|dense| [&dense.up, &dense.down].into_iter().chain(&dense.gate));
        attention
            .flat_map(|attention| [&attention.query, &attention.out])
            .chain(stored)
            .chain(dense)
    }
}

/// Parts of tensors' names, with the first row of the projection in the tensor.
type TensorPlaces = Vec<(&'static str, usize)>;

/// The projections of a layer that adapters may change, and where a file has them.
fn places<'a, P: Packing>(
    layer: &'a mut Layer<P>,
    index: usize,
    config: &Config,
) -> Vec<(&'a mut Linear<P>, TensorPlaces)>
where
    P::Matrix: Projecting,
{
    let mut all = Vec::new();
    if let Some(attention) = &mut layer.attention {
        all.extend(attention_places(attention));
    }
    if let Some(dense) = &mut layer.dense {
        all.extend(dense_places(dense, index, config));
    }
    all
}

fn attention_places<P: Packing>(attention: &mut Attention<P>) -> Vec<(&mut Linear<P>, TensorPlaces)>
where
    P::Matrix: Projecting,
{
    let (rows, _) = attention.query.weight.shape();
    let mut all = vec![(&mut attention.out, vec![("attn_output", 0)])];
    // With a gate, the rows of both alternate in the tensor, whose adapters are refused.
    if attention.gate.is_none() {
        all.push((&mut attention.query, vec![("attn_q", 0), ("attn_qkv", 0)]));
    }
    if let Some(stored) = &mut attention.key_value {
        let after_keys = rows + stored.key.weight.shape().0;
        all.push((&mut stored.key, vec![("attn_k", 0), ("attn_qkv", rows)]));
        if let Some(value) = &mut stored.value {
            all.push((value, vec![("attn_v", 0), ("attn_qkv", after_keys)]));
        }
    }
    all
}

fn dense_places<'a, P: Packing>(
    dense: &'a mut Dense<P>,
    layer: usize,
    config: &Config,
) -> impl Iterator<Item = (&'a mut Linear<P>, TensorPlaces)>
where
    P::Matrix: Projecting,
{
    let is_shared_expert =
        config.experts_of(layer).is_some() && !config.traits.dense_beside_experts;
    let (hidden, _) = dense.up.weight.shape();
    let [gate, up, down] = if is_shared_expert {
        [
            ("ffn_gate_shexp", 0),
            ("ffn_up_shexp", 0),
            ("ffn_down_shexp", 0),
        ]
    } else if config.traits.fused_gate_up {
        [("ffn_up", 0), ("ffn_up", hidden), ("ffn_down", 0)]
    } else {
        [("ffn_gate", 0), ("ffn_up", 0), ("ffn_down", 0)]
    };
    let gate = dense.gate.as_mut().map(|linear| (linear, vec![gate]));
    [(&mut dense.up, vec![up]), (&mut dense.down, vec![down])]
        .into_iter()
        .chain(gate)
}
