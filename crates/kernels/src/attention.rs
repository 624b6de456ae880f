//! Attention over paged KV.
//!
//! The positions of a sequence are cut into *splits* of about [`KV_SPLIT_SLOTS`] at fixed places (multiples
//! of whole pages from position 0). Within a split a query's scores are computed, softened against
//! their own maximum, and used to weigh the values; the splits of a query are then folded together in
//! rising order. That is the arithmetic, whoever does it: consecutive rows of one sequence are
//! taken together as a *tile* to share the loads of keys and values, and when there are few tiles and
//! long contexts the splits go to different workers, but each row's additions keep their order. So a
//! row's result is the same, bit for bit, for every batch, chunking and number of threads (of one
//! level; levels differ by rounding). On AMX ([`tiled`]) that holds for rows of short runs and for rows of
//! long ones, each among themselves: 16 consecutive rows and more (32, where no heads share keys) have another
//! arithmetic than fewer.

#[cfg(target_arch = "x86_64")]
mod amx;
mod call;
mod int8;
mod params;
mod partial_softmax;
mod reference;
mod schedule;
mod scratch;
#[cfg(test)]
mod tests;
mod workspace;

pub use params::{AttentionParams, KV_SPLIT_SLOTS, QueryRow};
pub use scratch::{AttentionBounds, AttentionScratch};

use crate::{Isa, KvCache, Pool};
use call::AttentionCall;

/// `q` and `out` are `(rows.len(), heads, head_dim)`. Each row's result depends on that row's
/// positions only: not on its batch-mates, not on how the prompt was cut into chunks.
///
/// # Panics
/// If the shapes do not fit each other, or they or the level the scratch's bounds, a block table is too short for its
/// row, or a page has more than [`KV_SPLIT_SLOTS`] positions.
#[expect(clippy::too_many_arguments, reason = "one call, ten inputs")]
pub fn attend(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut AttentionScratch,
    kv: &KvCache,
    layer: usize,
    params: &AttentionParams,
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
