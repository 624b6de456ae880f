//! Attention over a paged KV cache, with KV splits as in flash-decoding.
//!
//! The positions of a sequence are cut into *KV splits* of about [`KV_SPLIT_SLOTS`] at fixed positions
//! (multiples of whole pages from position 0). Within a split, a query's scores are computed, normalized by a
//! softmax against the maximum of the split, and used to sum the values (PV product); the partial results of a
//! query are then merged in rising order of the splits (partial softmax merge). This arithmetic is fixed:
//! consecutive rows of one sequence form a *query tile* to share the loads of keys and values, and with few
//! tiles and long contexts the splits run on different workers, but the order of each row's additions does not
//! change. So a row's result has the same bits for every batch, every chunking of the prompt and every number
//! of threads (on one level; levels differ by rounding).
//!
//! An attention sink is a score without a value: it is added to the sum of a query's weights after all splits were
//! merged, on every path.
//!
//! With AMX ([`amx`]) that holds separately for rows of short and of long runs: 16 and more consecutive rows
//! (32, where no heads share keys) use another arithmetic than fewer.

#[cfg(target_arch = "x86_64")]
mod amx;
mod call;
mod int4;
mod int8;
mod params;
mod partial_softmax;
mod reference;
mod schedule;
mod scratch;
#[cfg(test)]
mod tests;
mod workspace;

pub use params::{AttentionParams, KV_SPLIT_SLOTS, QueryRow, Window};
pub use scratch::{AttentionBounds, AttentionScratch};

use crate::{Isa, KvCache, Pool};
use call::AttentionCall;

/// Computes `out`, of the shape of `q`: `(rows.len(), heads, head_dim)`. A row's result depends on that row's
/// positions only, not on the other rows or on the chunking of the prompt.
///
/// # Panics
/// If the shapes do not match each other, the bounds of `scratch` are exceeded, `isa` differs from the bounds,
/// a block table is too short for its row, or a page has more than [`KV_SPLIT_SLOTS`] positions.
#[expect(clippy::too_many_arguments, reason = "one call, ten inputs")]
pub fn attend(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut AttentionScratch,
    kv: &KvCache,
    layer: usize,
    params: &AttentionParams<'_>,
    rows: &[QueryRow],
    tables: &[u32],
    q: &[f32],
    out: &mut [f32],
) {
    if rows.is_empty() {
        return;
    }
    let call = AttentionCall {
        isa,
        kv,
        layer,
        params,
        rows,
        tables,
        q,
    };
    call.check_shapes(scratch.bounds(), out.len());
    call.run(pool, scratch, out);
}
