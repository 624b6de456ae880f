//! The slow part of a step: the forward pass, and what to do when it fails.
//!
//! A forward pass that reports an error or panics gives nothing, and the keys and values of its
//! rows are undefined. Those rows stand in pages that only their own sequence holds, at positions
//! that do not count as computed, so nothing else is touched: the same spans are tried again in
//! two halves, in the same step, until the culprit stands alone. It is tried once more (a fault
//! may pass); then its request ends with `Failed` (all choices: they share the prompt). The others get their tokens as if nothing had happened,
//! because the rows are written again by the pass that succeeds. One culprit among `n` spans costs
//! about `2 log2 n` passes. Where the model names the row that is not finite, that row's
//! request ends and the rest is tried again at once.

use crate::Stats;
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::scheduler::Scheduler;
use model::{Batch, Forward, ForwardError};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use stream::FailCode;

pub(crate) struct Turn<'a> {
    pub(crate) model: &'a mut dyn Forward,
    pub(crate) scheduler: &'a mut Scheduler,
    pub(crate) sampler: &'a mut Sampler,
    pub(crate) batch: &'a mut Batch,
    /// Which of the plan's spans are in the batch, in its order.
    pub(crate) batched: &'a mut Vec<usize>,
    pub(crate) plan: &'a Plan,
    pub(crate) stats: &'a Stats,
}

/// What went wrong in a forward pass.
enum Fault {
    /// The sequence under this key has logits that are not finite.
    NotFinite(usize),
    /// Anything else.
    Whole(FailCode),
}

impl Turn<'_> {
    /// Copies pages, computes the plan, applies it.
    pub(crate) fn run(mut self) {
        for copy in &self.plan.copies {
            let model = &mut *self.model;
            let copied = catch_unwind(AssertUnwindSafe(|| model.copy_page(copy.from, copy.to)));
            if copied.is_err() {
                self.scheduler.fail(copy.key, FailCode::Panic);
            }
        }
        self.compute(0..self.plan.spans.len());
    }

    /// Computes these spans; on failure their halves, and one alone once more.
    fn compute(&mut self, spans: Range<usize>) {
        let mut last_try = false;
        while self.fill(spans.clone()) > 0 {
            let code = match self.forward_and_apply() {
                Ok(()) => return,
                Err(Fault::NotFinite(key)) => {
                    self.scheduler.fail(key, FailCode::Inference);
                    continue;
                }
                Err(Fault::Whole(code)) => code,
            };
            if last_try {
                return self.scheduler.fail(self.plan.spans[spans.start].key, code);
            }
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            last_try = spans.len() == 1;
            if !last_try {
                let middle = spans.start + spans.len() / 2;
                self.compute(spans.start..middle);
                return self.compute(middle..spans.end);
            }
        }
    }

    /// Writes those spans whose sequences live into the batch. Returns how many.
    fn fill(&mut self, spans: Range<usize>) -> usize {
        self.batch.clear();
        self.batched.clear();
        for at in spans {
            if self.scheduler.put(&self.plan.spans[at], self.batch) {
                self.batched.push(at);
            }
        }
        self.batched.len()
    }

    fn forward_and_apply(&mut self) -> Result<(), Fault> {
        let (model, batch) = (&mut *self.model, &*self.batch);
        let vocab = model.dims().vocab;
        let in_batch = self.batched.iter().map(|&at| &self.plan.spans[at]);
        // Moves `model` in, so that the logits may outlive the call.
        let forward = move || {
            let model = model;
            model.forward(batch)
        };
        let logits = match catch_unwind(AssertUnwindSafe(forward)) {
            Ok(Ok(logits)) if logits.len() == batch.logit_rows() * vocab => logits,
            Ok(Err(ForwardError::NotFinite { row })) => {
                let culprit = in_batch.filter(|span| span.draws).nth(row);
                let whole = Fault::Whole(FailCode::Inference);
                return Err(culprit.map_or(whole, |span| Fault::NotFinite(span.key)));
            }
            Ok(_) => return Err(Fault::Whole(FailCode::Inference)),
            Err(_) => return Err(Fault::Whole(FailCode::Panic)),
        };
        let mut rows = logits.chunks_exact(vocab);
        for span in in_batch {
            // Taken also for a sequence that an earlier span's fault has ended.
            let row = if span.draws { rows.next() } else { None };
            self.scheduler.apply(span, row, self.sampler);
        }
        Ok(())
    }
}
