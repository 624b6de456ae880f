//! Metrics of the journal, set by the recorder after each commit.

use super::journal_state::lock;
use journal::{Durability, FileSystem, Impairment, Writer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The last values.
#[derive(Debug, Default)]
pub(crate) struct JournalMetrics {
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    errors: AtomicU64,
    rewritten_streams: AtomicU64,
    segments: AtomicU64,
    live_bytes: AtomicU64,
    streams: AtomicU64,
    is_durable: AtomicBool,
    impairment: Mutex<Option<Impairment>>,
}

/// Counts and sizes of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalGauges {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Writes, syncs and removals that failed.
    pub errors: u64,
    /// Streams that were rewritten.
    pub rewritten_streams: u64,
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of live streams' records.
    pub live_bytes: u64,
    /// Live streams.
    pub streams: u64,
    /// Whether records reach the disk.
    pub is_durable: bool,
    /// Why not.
    pub impairment: Option<Impairment>,
    /// Tokens that are generated and not shown yet.
    pub behind_tokens: u64,
}

impl JournalGauges {
    pub(crate) fn of_writer<F: FileSystem>(writer: &Writer<F>) -> Self {
        let (counts, sizes) = (writer.counts(), writer.sizes());
        Self {
            written_bytes: counts.written_bytes,
            syncs: counts.syncs,
            errors: counts.errors,
            rewritten_streams: counts.rewritten_streams,
            segments: sizes.segments as u64,
            live_bytes: sizes.live_bytes,
            streams: sizes.streams as u64,
            is_durable: writer.durability() == Durability::Durable,
            impairment: match writer.durability() {
                Durability::Durable => None,
                Durability::NotDurable(why) => Some(why),
            },
            behind_tokens: 0,
        }
    }
}

impl JournalMetrics {
    pub(crate) fn set(&self, gauges: &JournalGauges) {
        let set = |value: &AtomicU64, new| value.store(new, Ordering::Relaxed);
        set(&self.written_bytes, gauges.written_bytes);
        set(&self.syncs, gauges.syncs);
        set(&self.errors, gauges.errors);
        set(&self.rewritten_streams, gauges.rewritten_streams);
        set(&self.segments, gauges.segments);
        set(&self.live_bytes, gauges.live_bytes);
        set(&self.streams, gauges.streams);
        self.is_durable.store(gauges.is_durable, Ordering::Relaxed);
        *lock(&self.impairment) = gauges.impairment;
    }

    /// The last values, without tokens.
    pub(crate) fn get(&self) -> JournalGauges {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        JournalGauges {
            written_bytes: get(&self.written_bytes),
            syncs: get(&self.syncs),
            errors: get(&self.errors),
            rewritten_streams: get(&self.rewritten_streams),
            segments: get(&self.segments),
            live_bytes: get(&self.live_bytes),
            streams: get(&self.streams),
            is_durable: self.is_durable.load(Ordering::Relaxed),
            impairment: *lock(&self.impairment),
            behind_tokens: 0,
        }
    }
}
