//! Attention over paged KV.
//!
//! The positions of a sequence are cut into *spans* of about [`KV_SPLIT_SLOTS`] at fixed places (multiples
//! of whole pages from position 0). Within a span a query's scores are computed, softened against
//! their own maximum, and used to weigh the values; the spans of a query are then folded together in
//! rising order. That is the arithmetic, whoever does it: consecutive rows of one sequence are
//! taken together as a *tile* to share the loads of keys and values, and when there are few tiles and
//! long contexts the spans go to different workers, but each row's additions keep their order. So a
//! row's result is the same, bit for bit, for every batch, chunking and number of threads (of one
//! level; levels differ by rounding). On AMX ([`tiled`]) that holds for rows of short runs and for rows of
//! long ones, each among themselves: 16 consecutive rows and more (32, where no heads share keys) have another
//! arithmetic than fewer.

mod call;
mod codes;
mod desk;
mod params;
mod scalar;
mod scratch;
mod share;
mod spread;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiled;

pub use params::{AttentionParams, QueryRow, KV_SPLIT_SLOTS};
pub use scratch::{AttentionBounds, AttentionScratch};

use crate::{Isa, KvCache, Pool};
use call::Call;

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
    let call = Call {
        isa,
        kv,
        layer,
        params,
        rows,
        tables,
        q,
    };
    call.check(scratch.bounds(), out.len());
    call.spread(pool, scratch, out);
}
