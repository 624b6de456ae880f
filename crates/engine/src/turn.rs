//! The slow part of a step: the forward pass, and what to do when it fails.
//!
//! A forward pass that reports an error or panics gives nothing, and the keys and values of its
//! rows are undefined. Those rows stand in pages that only their own sequence holds, at positions
//! that do not count as computed, so nothing else is touched: the same spans are tried again in
//! two halves, in the same step, until the culprit stands alone. It is tried once more (a fault
//! may pass); then its request ends with `Failed` (all choices: they share the prompt). The others get their tokens as if nothing had happened,
//! because the rows are written again by the pass that succeeds. One culprit among `n` spans costs
//! about `2 log2 n` passes. Where the model names the row that is not finite, that row's
//! request ends and the rest is tried again at once. Nobody fails for a guess: a culprit with guesses
//! is tried without them before it is held to be one.

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
    pub(crate) draft: Option<&'a mut (dyn Forward + 'static)>,
    pub(crate) scheduler: &'a mut Scheduler,
    pub(crate) sampler: &'a mut Sampler,
    pub(crate) batch: &'a mut Batch,
    /// Which of the plan's spans are in the batch, in its order.
    pub(crate) batched: &'a mut Vec<Batched>,
    pub(crate) plan: &'a Plan,
    pub(crate) stats: &'a Stats,
}

/// A span of the plan that is in the batch.
#[derive(Clone, Copy)]
pub(crate) struct Batched {
    /// Which one.
    at: usize,
    /// For how many of its rows there will be logits.
    logit_rows: usize,
    /// For how many there will be hidden states.
    hidden_rows: usize,
}

/// What went wrong in a forward pass.
enum Fault {
    /// The sequence under this key has logits that are not finite.
    NotFinite(usize),
    /// Anything else.
    Whole(FailCode),
}

impl Turn<'_> {
    /// Copies pages, lets the draft model guess, computes the plan, applies it.
    pub(crate) fn run(mut self) {
        for copy in &self.plan.copies {
            let model = &mut *self.model;
            let copied = catch_unwind(AssertUnwindSafe(|| model.copy_page(copy.from, copy.to)));
            if copied.is_err() {
                self.scheduler.fail(copy.key, FailCode::Panic);
            }
        }
        if let Some(draft) = self.draft.take() {
            self.scheduler
                .propose(self.plan, draft, self.batch, self.sampler);
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
                    // Perhaps it was a guess that nobody would have drawn.
                    if !self.scheduler.forget_guesses(key) {
                        self.scheduler.fail(key, FailCode::NotFinite);
                    }
                    continue;
                }
                Err(Fault::Whole(code)) => code,
            };
            if last_try {
                return self.scheduler.fail(self.plan.spans[spans.start].key, code);
            }
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            last_try = spans.len() == 1;
            if last_try {
                let key = self.plan.spans[spans.start].key;
                self.scheduler.forget_guesses(key);
            } else {
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
            if let Some(logit_rows) = self.scheduler.put(&self.plan.spans[at], self.batch) {
                let put = self.batch.ranges().last();
                let hidden_rows = put.map_or(0, |s| s.want.hidden_rows(s.tokens.len()));
                self.batched.push(Batched {
                    at,
                    logit_rows,
                    hidden_rows,
                });
            }
        }
        self.batched.len()
    }

    fn forward_and_apply(&mut self) -> Result<(), Fault> {
        let (model, batch) = (&mut *self.model, &*self.batch);
        let vocab = model.dims().vocab;
        // Moves `model` in, so that the logits may outlive the call.
        let forward = move || {
            let model = model;
            model.forward(batch)
        };
        let logits = match catch_unwind(AssertUnwindSafe(forward)) {
            Ok(Ok(logits)) if logits.len() == batch.logit_rows() * vocab => logits,
            Ok(Err(ForwardError::NotFinite { row })) => {
                let whole = Fault::Whole(FailCode::Inference);
                let culprit = culprit(self.batched, row).map(|at| self.plan.spans[at].key);
                return Err(culprit.map_or(whole, Fault::NotFinite));
            }
            Ok(_) => return Err(Fault::Whole(FailCode::Inference)),
            Err(_) => return Err(Fault::Whole(FailCode::Panic)),
        };
        let mut rest = &*logits;
        for batched in self.batched.iter() {
            // Taken also for a sequence that an earlier span's fault has ended.
            let (rows, others) = rest.split_at(batched.logit_rows * vocab);
            rest = others;
            let span = &self.plan.spans[batched.at];
            self.scheduler.apply(span, rows, vocab, self.sampler);
        }
        self.apply_hidden();
        Ok(())
    }

    /// Hands out hidden states, after the logits. Where the model gave too few, those who wanted them end
    /// without.
    fn apply_hidden(&mut self) {
        let dim = self.model.hidden_dim();
        let mut rest = self.model.hidden();
        for batched in self.batched.iter().filter(|b| b.hidden_rows > 0) {
            let split = rest.split_at_checked(batched.hidden_rows * dim);
            let (rows, others) = split.unwrap_or_default();
            rest = others;
            let span = &self.plan.spans[batched.at];
            self.scheduler.apply_hidden(span, rows, dim);
        }
    }
}

/// Which span of the plan has its logits in this row of them.
fn culprit(batched: &[Batched], row: usize) -> Option<usize> {
    let mut end = 0;
    let batched = batched.iter().find(|batched| {
        end += batched.logit_rows;
        row < end
    })?;
    Some(batched.at)
}
