//! The execution of a planned step: the forward pass, sampling, and recovery from failed passes.
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
//! ([`crate::device_loss`]).

use crate::Stats;
use crate::plan::{Plan, PlannedSpan};
use crate::sampler::Sampler;
use crate::scheduler::{DraftPass, Scheduler};
use crate::stats::count;
use model::{Batch, DeviceFault, Forward, ForwardError};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

/// One step's plan with everything that executes the plan.
pub(crate) struct StepExecution<'a> {
    pub(crate) model: &'a mut dyn Forward,
    pub(crate) draft: Option<&'a mut (dyn Forward + 'static)>,
    pub(crate) scheduler: &'a mut Scheduler,
    pub(crate) sampler: &'a mut Sampler,
    pub(crate) plan: &'a Plan,
    pub(crate) buffers: &'a mut StepBuffers,
    pub(crate) stats: &'a Stats,
}

/// Buffers of the execution, reused from step to step.
pub(crate) struct StepBuffers {
    batch: Batch,
    /// The plan's spans that are in the batch, in the batch's order.
    batched: Vec<BatchedSpan>,
    /// Sequences that sample from one row.
    keys: Vec<usize>,
}

/// A span of the plan that is in the batch.
#[derive(Clone, Copy)]
struct BatchedSpan {
    /// Index in the plan.
    at: usize,
    /// Rows of logits.
    logit_rows: usize,
    /// Rows of hidden states.
    hidden_rows: usize,
}

/// The reason why a forward pass failed.
enum ForwardFault {
    /// The logits of the sequence under this key are not finite.
    NotFinite(usize),
    /// The device failed.
    Device(DeviceFault),
    /// Any other failure.
    Unknown(FailCode),
}

impl StepBuffers {
    pub(crate) fn new(sequences_max: usize) -> Self {
        Self {
            batch: Batch::default(),
            batched: Vec::with_capacity(sequences_max),
            keys: Vec::with_capacity(sequences_max),
        }
    }
}

impl StepExecution<'_> {
    /// Copies pages, lets the draft model or the MTP head propose tokens, then computes, samples and applies.
    ///
    /// # Errors
    /// The model's device failed. The tokens that were applied before stay valid.
    pub(crate) fn run(mut self) -> Result<(), DeviceFault> {
        for copy in &self.plan.copies {
            let model = &mut *self.model;
            let copied = catch_unwind(AssertUnwindSafe(|| model.copy_page(copy.from, copy.to)));
            if copied.is_err() {
                self.scheduler.fail(copy.key, FailCode::Panic);
            }
        }
        let model: &mut dyn Forward = match self.draft.take() {
            Some(draft) => draft,
            None => &mut *self.model,
        };
        let pass = DraftPass {
            model,
            batch: &mut self.buffers.batch,
            sampler: self.sampler,
        };
        self.scheduler.propose_drafts(self.plan, pass);
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

    /// Writes the spans whose sequences are alive into the batch. Returns how many.
    fn fill_batch(&mut self, spans: Range<usize>) -> usize {
        let StepBuffers { batch, batched, .. } = &mut *self.buffers;
        batch.clear();
        batched.clear();
        for at in spans {
            if let Some(logit_rows) = self.scheduler.put_span(&self.plan.spans[at], batch) {
                let put = batch.ranges().last();
                let hidden_rows = put.map_or(0, |s| s.want.hidden_rows(s.tokens.len()));
                batched.push(BatchedSpan {
                    at,
                    logit_rows,
                    hidden_rows,
                });
            }
        }
        batched.len()
    }

    /// Runs the forward pass, samples tokens from the logits and applies the tokens, span by span.
    fn run_pass(&mut self) -> Result<(), ForwardFault> {
        let StepBuffers {
            batch,
            batched,
            keys,
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

/// The part of a step that follows the forward pass.
struct SpanSampling<'a> {
    scheduler: &'a mut Scheduler,
    sampler: &'a mut Sampler,
    keys: &'a mut Vec<usize>,
}

impl SpanSampling<'_> {
    /// Samples a token from the span's first row of logits and applies the token; then from each further row, as
    /// long as the token before was the draft token. `logits`: no row, the last row, or all rows of a
    /// verification.
    ///
    /// Sampling and applying alternate, because a row's penalties and constraint depend on the token before.
    fn sample_and_apply(&mut self, span: &PlannedSpan, logits: &[f32], vocab: usize) {
        let key = span.key;
        let Some(mut verification) = self.scheduler.apply_positions(span) else {
            return;
        };
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            if !self.sampler.is_sound(logits) {
                self.scheduler.fail(key, FailCode::NotFinite);
                break;
            }
            let draft = self.scheduler.apply_row(key, row, self.keys);
            let mut appended = None;
            for &key in self.keys.iter() {
                if let Some(sampled) = self.scheduler.sample(key, logits, self.sampler) {
                    let alternatives = self.sampler.alternatives();
                    appended = self.scheduler.apply(key, sampled, alternatives);
                }
            }
            if !verification.accept(draft, appended) || !self.scheduler.is_live(key) {
                break;
            }
        }
        self.scheduler.finish_verification(key, &verification);
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
