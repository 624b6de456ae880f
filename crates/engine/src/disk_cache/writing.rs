//! Writing: which runs are copied out, and the room for them.

use super::DiskCache;
use super::disk_worker::DiskJob;
use super::prefix_transfer::PrefixWrite;
use super::runs::{RUNS_MAX, RunPlace};
use crate::Stats;
use crate::pages::Pages;
use crate::prefix_index::{PrefixChain, PrefixRoot};
use crate::stats::count;
use model::{ExportPages, PageId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Time without writes after one that failed.
pub(super) const WRITE_PAUSE_NS: u64 = 60_000_000_000;

impl DiskCache {
    /// Takes note of the beginning of a prompt that was found in memory, page by page with the chain that ends there, to write
    /// the runs that are not on the disk.
    pub(crate) fn consider_write(
        &mut self,
        (root, tokens): (PrefixRoot, &[u32]),
        pages: impl Iterator<Item = (PageId, PrefixChain)>,
        now_ns: u64,
    ) {
        let is_short = tokens.len() < self.shape.tokens();
        let is_busy = self.write.is_some() || self.worker.is_none();
        if is_short || is_busy || now_ns < self.write_after_ns {
            return;
        }
        let prefix = self.prefix_of(root, tokens);
        let known = prefix.keys().iter();
        let known = known.take_while(|key| self.index.contains(**key)).count();
        self.index.touch(&prefix.keys()[..known]);
        if known < prefix.keys().len() {
            self.write = Some(PrefixWrite {
                prefix: Arc::new(prefix),
                pages: pages.collect(),
                next: known,
            });
        }
    }

    /// Copies the next run out and has it written, unless a run is being written or a prefix read.
    pub(super) fn write_next_run(&mut self, pages: &Pages, model: &dyn ExportPages) {
        if self.is_writing || self.read.is_some() || self.buffers.is_empty() {
            return;
        }
        let Some(mut write) = self.write.take() else {
            return;
        };
        let keys = write.prefix.keys().iter().skip(write.next);
        write.next += keys.take_while(|key| self.index.contains(**key)).count();
        let is_done = write.next == write.prefix.keys().len();
        if is_done || !write.is_intact(self.shape, pages) || !self.make_room(&write) {
            return;
        }
        let (Some(worker), Some(mut buffer)) = (&self.worker, self.buffers.pop()) else {
            return;
        };
        if write.copy_pages(self.shape, model, &mut buffer).is_err() {
            // The pages are lost with the device, and the next batch reports that.
            self.buffers.push(buffer);
            return;
        }
        let job = DiskJob::Write {
            place: write.place(),
            pages: buffer,
        };
        if worker.send(job).is_err() {
            return self.lose_worker();
        }
        self.is_writing = true;
        self.write = Some(write);
    }

    /// Removes the least recently used runs until there is room for the next one of this write. Returns whether there is:
    /// a prefix does not displace its own beginning.
    fn make_room(&mut self, write: &PrefixWrite) -> bool {
        let bytes = self.shape.file_bytes(write.next as u32);
        let mut evicted = Vec::new();
        let mut fits = true;
        while self.index.bytes() + bytes > self.bytes_max || self.index.len() >= RUNS_MAX {
            let oldest = self.index.oldest();
            let Some(oldest) = oldest.filter(|(key, _)| !write.prefix.keys().contains(key)) else {
                fits = false;
                break;
            };
            self.index.remove(oldest.0);
            evicted.push(oldest);
        }
        if evicted.is_empty() {
            return fits;
        }
        let job = DiskJob::Remove(evicted);
        let sent = self.worker.as_ref().map(|worker| worker.send(job));
        if !matches!(sent, Some(Ok(()))) {
            self.lose_worker();
            return false;
        }
        fits
    }

    /// Takes note of a run that was written, or not.
    pub(super) fn take_written(
        &mut self,
        place: &RunPlace,
        outcome: std::io::Result<()>,
        stats: &Stats,
        now_ns: u64,
    ) {
        let run = place.run as u32;
        let bytes = self.shape.file_bytes(run);
        match outcome {
            Ok(()) => {
                self.index.insert(place.key(), run, bytes);
                self.index.touch(&place.prefix.keys()[..=place.run]);
                stats.disk_bytes_written.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                count(&stats.disk_failures, 1);
                self.write = None;
                self.write_after_ns = now_ns.saturating_add(WRITE_PAUSE_NS);
                (self.warn)(&format!("nothing is written for a minute: {error}"));
            }
        }
    }
}
