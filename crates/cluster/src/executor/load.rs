//! The load of an engine for heartbeats.

use crate::messages::ReportedLoad;
use engine::Handle;

/// The load of a model's engine. `cache_epoch` changes when the prefix cache is emptied.
pub fn reported_load(engine: &Handle, cache_epoch: u64) -> ReportedLoad {
    let (stats, dims) = (engine.stats(), engine.dims());
    ReportedLoad {
        pages_total: stats.pages_free() + stats.pages_used() + stats.pages_cached(),
        pages_free: stats.pages_free(),
        pages_cached: stats.pages_cached(),
        page_tokens: dims.page_tokens as u64,
        slots: saturated(engine.sequences_max() as u64),
        queued: saturated(stats.queued()),
        running: saturated(stats.running()),
        step_us: stats.step_ns_last() / 1000,
        prefill_pending: None,
        prefill_tokens_per_s: None,
        cache_epoch,
    }
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
