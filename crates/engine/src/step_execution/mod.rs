//! The execution of a planned step: copies of pages, draft tokens, the batch, and what its results change.
//!
//! Most models compute a batch while the engine waits ([`now`]). A model that runs ahead has the next batch started before the
//! results of the last one are awaited ([`ahead`]). Units of an encoding ([`encoding`]) or of a block ([`block`]) are computed before
//! the batch.

mod ahead;
mod block;
mod encoding;
mod now;

use crate::Stats;
use crate::plan::{Plan, PlannedSpan};
use crate::sampler::Sampler;
use crate::scheduler::{DraftPass, Scheduler};
use ahead::Flights;
use model::{Batch, DeviceFault, Forward};
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
    flights: Flights,
    finished: Option<FinishedBatch>,
}

/// Sizes of a batch whose results were applied; of two in one step the sum.
#[derive(Clone, Copy, Default)]
pub(crate) struct FinishedBatch {
    pub(crate) rows_prefill: usize,
    pub(crate) rows_decode: usize,
    pub(crate) sequences: usize,
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

impl StepBuffers {
    /// `runs_ahead`: for a model that does.
    pub(crate) fn new(sequences_max: usize, runs_ahead: bool) -> Self {
        Self {
            batch: Batch::default(),
            batched: Vec::with_capacity(sequences_max),
            keys: Vec::with_capacity(sequences_max),
            flights: Flights::new(if runs_ahead { sequences_max } else { 0 }),
            finished: None,
        }
    }

    /// Whether a batch was started whose results have not come.
    pub(crate) fn are_in_flight(&self) -> bool {
        self.flights.are_in_flight()
    }

    /// Takes the sizes of what was finished since the last call.
    pub(crate) fn take_finished(&mut self) -> Option<FinishedBatch> {
        self.finished.take()
    }

    /// Forgets the batches in flight: the device is lost.
    pub(crate) fn lose_flights(&mut self) {
        self.flights.lose();
        self.finished = None;
    }

    fn add_finished(&mut self, batch: FinishedBatch) {
        let all = self.finished.get_or_insert_default();
        all.rows_prefill += batch.rows_prefill;
        all.rows_decode += batch.rows_decode;
        all.sequences += batch.sequences;
    }
}

impl FinishedBatch {
    fn of(plan: &Plan) -> Self {
        Self {
            rows_prefill: plan.rows() - plan.decodes,
            rows_decode: plan.decodes,
            sequences: plan.spans.len(),
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
        self.encode()?;
        self.advance_block()?;
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
        if self.model.ahead().is_some() {
            self.compute_ahead()
        } else {
            self.compute_now()
        }
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
