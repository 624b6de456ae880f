//! Prefixes on disk: which requests wait for them, and which are written.

use super::Scheduler;
use crate::disk_cache::DiskCache;
use crate::inbox::SubmittedRequest;
use crate::sequence::Sequence;
use model::Forward;

impl Scheduler {
    /// Uses this cache from now on.
    pub(crate) fn set_disk_cache(&mut self, disk: DiskCache) {
        self.disk = Some(Box::new(disk));
    }

    /// Fills pages with what was read since the last step, and copies out what is to be written. At the head of a step, before
    /// the plan.
    pub(crate) fn exchange_with_disk(&mut self, model: &mut dyn Forward) {
        let Some(disk) = &mut self.disk else {
            return;
        };
        if let Some(age) = disk.reads_for() {
            let queued = self.queue.get(self.queue.index_of(age));
            if queued.is_none_or(|request| request.age() != age) {
                disk.cancel_read();
            }
        }
        let (stats, now_ns) = (&self.inbox.stats, self.clock.now_ns());
        if let Some(model) = model.page_export() {
            disk.exchange(&mut self.kv.pages, model, stats, now_ns);
        }
    }

    /// Whether a queued request has to wait, because the beginning of its prompt is being read; begins to read it where that is
    /// expected to be faster than computing.
    pub(super) fn waits_for_disk(&mut self, submitted: &mut SubmittedRequest) -> bool {
        let age = submitted.age();
        let sequence = &mut submitted.sequences[0];
        let Some(disk) = &mut self.disk else {
            return false;
        };
        if sequence.pool.is_some() {
            return false;
        }
        // The last token is always computed. Rows of inputs have numbers of this process.
        let known = (sequence.tokens.len() - 1).min(sequence.media.rows_before());
        if let Some(reader) = disk.reads_for() {
            return reader == age
                || disk.reads_beginning_of(sequence.root, &sequence.tokens[..known]);
        }
        let needed = self.kv.pages.pages_for(sequence.tokens.len());
        if disk.is_empty() || disk.consider(age) || self.kv.available() < needed {
            return false;
        }
        let pages = self.kv.touch_prefix(sequence);
        let prompt = (sequence.root, &sequence.tokens[..known]);
        let (row_ns, now_ns) = (self.rows.step_time.prefill_row_ns(), self.clock.now_ns());
        disk.begin_read(age, prompt, pages, row_ns, now_ns)
    }

    /// Has the beginning of a prompt written that was just found in memory: another request used it before.
    pub(super) fn write_reused_pages(&mut self, sequence: &Sequence) {
        let Some(disk) = &mut self.disk else {
            return;
        };
        let pages = &self.kv.pages;
        let reused = &sequence.pages[..sequence.indexed];
        let chains = reused
            .iter()
            .filter_map(|&page| Some((page, pages.chain_of(page)?)));
        let known = sequence.computed.min(sequence.media.rows_before());
        let tokens = &sequence.tokens[..known];
        disk.consider_write((sequence.root, tokens), chains, self.clock.now_ns());
    }
}
