//! A step whose results are there at its end: the forward pass, sampling, and recovery from failed passes.
//!
//! A forward pass that reports an error or panics gives no results, and the keys and values of its rows are undefined.
//! Each of those rows is in a page that only the sequence of the row holds, at a position that does not count as
//! computed, so nothing else is damaged: the same spans are tried again in two halves, in the same step, until the
//! culprit is alone. A lone culprit is tried once more (a fault may pass); then the culprit's request ends with
//! `Failed` (all choices: they share the prompt). The other requests get their tokens as without the fault, because the
//! pass that succeeds writes the rows again. One culprit among `n` spans costs about `2 log2 n` passes. Where the model
//! names the row that is not finite, that row's request ends and the rest is tried again at once. No request fails
//! because of draft tokens: a culprit with draft tokens is first tried without them.
//!
//! A device that fails is not the fault of a span: nothing is tried again here, and the engine opens the device again
//! ([`crate::engine`]).

use super::{BatchedSpan, FinishedBatch, SpanSampling, StepBuffers, StepExecution};
use crate::stats::count;
use model::{DeviceFault, ForwardError};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

/// The reason why a forward pass failed.
enum ForwardFault {
    /// The logits of the sequence under this key are not finite.
    NotFinite(usize),
    /// The device failed.
    Device(DeviceFault),
    /// Any other failure.
    Unknown(FailCode),
}

impl StepExecution<'_> {
    /// Computes all spans of the plan, and waits for the results.
    pub(super) fn compute_now(&mut self) -> Result<(), DeviceFault> {
        if self.plan.spans.is_empty() {
            return Ok(());
        }
        self.buffers.add_finished(FinishedBatch::of(self.plan));
        self.compute_spans(0..self.plan.spans.len())
    }

    /// Computes these spans; on failure their halves, and a lone span once more.
    fn compute_spans(&mut self, spans: Range<usize>) -> Result<(), DeviceFault> {
        let mut is_last_try = false;
        while self.fill_batch(spans.clone()) > 0 {
            let code = match self.run_pass() {
                Ok(()) => return Ok(()),
                Err(ForwardFault::Device(fault)) => return Err(fault),
                Err(ForwardFault::NotFinite(key)) => {
                    // The culprit may be a draft token that would not have been sampled.
                    if !self.scheduler.drop_drafts(key) {
                        self.scheduler.fail(key, FailCode::NotFinite);
                    }
                    continue;
                }
                Err(ForwardFault::Unknown(code)) => code,
            };
            let first_key = self.plan.spans[spans.start].key;
            if is_last_try {
                self.scheduler.fail(first_key, code);
                return Ok(());
            }
            count(&self.stats.retries, 1);
            is_last_try = spans.len() == 1;
            if is_last_try {
                self.scheduler.drop_drafts(first_key);
            } else {
                let middle = spans.start + spans.len() / 2;
                self.compute_spans(spans.start..middle)?;
                return self.compute_spans(middle..spans.end);
            }
        }
        Ok(())
    }

    /// Runs the forward pass, samples tokens from the logits and applies the tokens, span by span.
    fn run_pass(&mut self) -> Result<(), ForwardFault> {
        let StepBuffers {
            batch,
            batched,
            keys,
            ..
        } = &mut *self.buffers;
        let (model, batch) = (&mut *self.model, &*batch);
        let vocab = model.dims().vocab;
        // Moves `model` in, so that the logits may outlive the call.
        let forward = move || {
            let model = model;
            model.forward(batch)
        };
        let logits = match catch_unwind(AssertUnwindSafe(forward)) {
            Ok(Ok(logits)) if logits.len() == batch.logit_rows() * vocab => &*logits,
            Ok(Err(ForwardError::NotFinite { row })) => {
                let unknown = ForwardFault::Unknown(FailCode::Inference);
                let culprit = span_of_row(batched, row).map(|at| self.plan.spans[at].key);
                return Err(culprit.map_or(unknown, ForwardFault::NotFinite));
            }
            Ok(Err(ForwardError::Device(fault))) => return Err(ForwardFault::Device(fault)),
            Ok(_) => return Err(ForwardFault::Unknown(FailCode::Inference)),
            Err(_) => return Err(ForwardFault::Unknown(FailCode::Panic)),
        };
        let mut rest = logits;
        for span in batched.iter() {
            // Split off also for a sequence that an earlier span's fault has ended.
            let (rows, others) = rest.split_at(span.logit_rows * vocab);
            rest = others;
            let mut sampling = SpanSampling {
                scheduler: self.scheduler,
                sampler: self.sampler,
                keys,
            };
            sampling.sample_and_apply(&self.plan.spans[span.at], rows, vocab);
        }
        self.apply_hidden();
        Ok(())
    }

    /// Applies hidden states, after the logits. Where the model gave too few, the sequences that wanted them end
    /// without.
    fn apply_hidden(&mut self) {
        let dim = self.model.capabilities().hidden_dim;
        let mut rest = self.model.hidden();
        let batched = self.buffers.batched.iter();
        for span in batched.filter(|span| span.hidden_rows > 0) {
            let split = rest.split_at_checked(span.hidden_rows * dim);
            let (rows, others) = split.unwrap_or_default();
            rest = others;
            let span = &self.plan.spans[span.at];
            self.scheduler.apply_hidden(span, rows, dim);
        }
    }
}

/// Index in the plan of the span with this row of logits.
fn span_of_row(batched: &[BatchedSpan], row: usize) -> Option<usize> {
    let mut end = 0;
    let batched = batched.iter().find(|batched| {
        end += batched.logit_rows;
        row < end
    })?;
    Some(batched.at)
}
