//! A step of a model that runs ahead ([`model::Ahead`]): the planned batch is started, and only then the results of the one
//! before are awaited.
//!
//! ```text
//! start(k+1)        queued behind the draws of k; the last token of a sequence may be "what draw i gives"
//! land(k)           waits for the draws of k, and applies them; the model computes k+1 meanwhile
//! launch(k+1)       the draws of k+1: masks, penalties and random numbers depend on the tokens up to k, which are known now
//! ```
//!
//! From the launch to the landing a sequence has an [`InFlight`]. It takes part in all of the next plan: it may be parked,
//! preempted, ended, and get its next row. What it must not do before its token is known, it does a step later:
//!
//! - **A sequence whose token is drawn by the model** has its positions computed from the launch on. It gets its next row
//!   where there is a token and credit after the one on its way, no update waits for it, it is not the first choice of
//!   several whose prompt was just computed, draft tokens are off and none are forced.
//! - **Other sequences**, whose rows come to be sampled here (DRY, XTC, `typical_p`, verification of draft and forced
//!   tokens) or pooled (embeddings), get rows again when the results have landed: every second step next to sequences that
//!   run ahead. Where none does, results land in the step of their start, as in a model that does not run ahead.
//! - **An end** that the token brings (end-of-sequence, a stop string, a complete grammar) makes the row that was started
//!   void: it is counted, and no draw is made from it. An end of another cause, and a preemption, make the results void.
//!   Pages and states are free at once: what is written to them later is queued behind the batch in flight.
//!
//! What is in flight names its sequence by key *and* age: a key is given away again in the next step.
//!
//! A batch that cannot be started is computed by [`super::now`], after what is in flight has landed: all its tokens are known
//! then. An error of a draw, or of the wait for it, is a failure of the device.

use super::{FinishedBatch, SpanSampling, StepExecution};
use crate::plan::PlannedSpan;
use crate::sampler::Sampled;
use crate::sequence::InFlight;
use crate::stats::count;
use crate::terms::Age;
use crate::{TOP_LOGPROBS_MAX, Token, TopLogprob};
use model::{Ahead, DeviceFault, DrawOutcome, Drawn, DrawnToken, Draws, ForwardError};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

/// The batch in flight, and buffers.
pub(super) struct Flights {
    current: Flight,
    /// The one that is launched next.
    next: Flight,
    draws: Draws,
    alternatives: Vec<TopLogprob>,
    launched: u64,
}

/// A batch that was started, and what its results are for.
struct Flight {
    /// `None`: nothing is in flight.
    number: Option<u64>,
    spans: Vec<FlightSpan>,
    /// Sequences that get a token, by key and age.
    choices: Vec<(usize, Age)>,
    batch: FinishedBatch,
}

/// A span with results.
struct FlightSpan {
    planned: PlannedSpan,
    draws: Range<usize>,
    choices: Range<usize>,
    /// Whether the model draws; otherwise the rows come.
    is_drawn: bool,
    /// Rows of hidden states of the batch.
    hidden: Range<usize>,
}

impl Flights {
    pub(super) fn new(sequences_max: usize) -> Self {
        Self {
            current: Flight::new(sequences_max),
            next: Flight::new(sequences_max),
            draws: Draws::default(),
            alternatives: Vec::with_capacity(TOP_LOGPROBS_MAX as usize),
            launched: 0,
        }
    }

    pub(super) fn are_in_flight(&self) -> bool {
        self.current.number.is_some()
    }

    pub(super) fn lose(&mut self) {
        self.current.clear();
        self.next.clear();
    }
}

impl Flight {
    fn new(sequences_max: usize) -> Self {
        Self {
            number: None,
            spans: Vec::with_capacity(sequences_max),
            choices: Vec::with_capacity(sequences_max),
            batch: FinishedBatch::default(),
        }
    }

    fn clear(&mut self) {
        self.number = None;
        self.spans.clear();
        self.choices.clear();
    }

    /// Whether the results have the shape of what was asked for.
    fn fits(&self, drawn: &Drawn<'_>, vocab: usize, hidden_dim: usize) -> bool {
        let draws = self.spans.last().map_or(0, |span| span.draws.end);
        let rows = self.spans.iter().filter(|span| !span.is_drawn);
        let rows: usize = rows.map(|span| span.draws.len()).sum();
        let hidden = self.spans.iter().map(|span| span.hidden.end).max();
        let alternatives = drawn.tokens.iter().map(|token| token.alternatives);
        drawn.tokens.len() == draws
            && drawn.logits.len() == rows * vocab
            && drawn.hidden.len() >= hidden.unwrap_or(0) * hidden_dim
            && drawn.alternatives.len() == alternatives.sum::<usize>()
    }
}

impl StepExecution<'_> {
    /// Starts the planned batch, applies the results of the one before, and launches the new one.
    pub(super) fn compute_ahead(&mut self) -> Result<(), DeviceFault> {
        if self.fill_batch(0..self.plan.spans.len()) == 0 {
            return self.land();
        }
        let batch = &self.buffers.batch;
        let is_started = call(&mut *self.model, |model| model.start(batch))?;
        if is_started.is_none() {
            count(&self.stats.retries, 1);
            self.land()?;
            return self.compute_now();
        }
        self.land()?;
        self.launch()?;
        if self.scheduler.stays_ahead() {
            return Ok(());
        }
        self.land()
    }

    /// Says how tokens are drawn from the batch that was started.
    fn launch(&mut self) -> Result<(), DeviceFault> {
        let flights = &mut self.buffers.flights;
        flights.launched += 1;
        flights.next.clear();
        flights.next.number = Some(flights.launched);
        flights.next.batch = FinishedBatch::of(self.plan);
        flights.draws.clear();
        let (mut row, mut hidden_row) = (0, 0);
        for at in 0..self.buffers.batched.len() {
            let batched = self.buffers.batched[at];
            let rows = row..row + batched.logit_rows;
            let hidden = hidden_row..hidden_row + batched.hidden_rows;
            (row, hidden_row) = (rows.end, hidden.end);
            let planned = &self.plan.spans[batched.at];
            if !self.scheduler.is_alive(planned.key, planned.age) {
                count(&self.stats.rows_void, planned.positions.len());
            } else if rows.is_empty() && hidden.is_empty() {
                self.scheduler.apply_positions(planned);
            } else {
                self.launch_span(planned, rows, hidden);
            }
        }
        let flights = &mut self.buffers.flights;
        std::mem::swap(&mut flights.current, &mut flights.next);
        let draws = &flights.draws;
        call(&mut *self.model, |model| model.draw(draws))?.ok_or(DeviceFault::Failed)
    }

    /// Describes the draws of a span, or asks for its rows.
    fn launch_span(&mut self, planned: &PlannedSpan, rows: Range<usize>, hidden: Range<usize>) {
        let Flights { next, draws, .. } = &mut self.buffers.flights;
        let (first_draw, first_choice) = (draws.len(), next.choices.len());
        let is_drawn = self.scheduler.is_drawn_by_model(planned.key);
        self.scheduler.add_choices(planned.key, &mut next.choices);
        let choices = &next.choices[first_choice..];
        let mut draw = None;
        let mut may_follow = false;
        if is_drawn {
            self.scheduler.apply_positions(planned);
            let sampler = &mut *self.sampler;
            if !self
                .scheduler
                .describe_draws(choices, rows.start, sampler, draws)
            {
                draws.truncate(first_draw);
                return next.choices.truncate(first_choice);
            }
            let at = choices.iter().position(|&(key, _)| key == planned.key);
            draw = Some((first_draw + at.unwrap_or_default()) as u32);
            // Until the others have their share of the prompt's last page, no row is written to it.
            may_follow = choices.len() == 1;
        } else {
            rows.for_each(|row| draws.push(row, None));
        }
        let in_flight = InFlight {
            batch: self.buffers.flights.launched,
            draw,
            may_follow,
        };
        self.scheduler.set_in_flight(planned.key, in_flight);
        let Flights { next, draws, .. } = &mut self.buffers.flights;
        next.spans.push(FlightSpan {
            planned: planned.clone(),
            draws: first_draw..draws.len(),
            choices: first_choice..next.choices.len(),
            is_drawn,
            hidden,
        });
    }

    /// Waits for the results of the batch in flight, and applies them.
    pub(super) fn land(&mut self) -> Result<(), DeviceFault> {
        let flights = &mut self.buffers.flights;
        let Some(number) = flights.current.number else {
            return Ok(());
        };
        let flight = &flights.current;
        let (vocab, hidden_dim) = (
            self.model.dims().vocab,
            self.model.capabilities().hidden_dim,
        );
        let drawn = call(&mut *self.model, Ahead::drawn)?.ok_or(DeviceFault::Failed)?;
        if !flight.fits(&drawn, vocab, hidden_dim) {
            return Err(DeviceFault::Failed);
        }
        let Drawn {
            tokens,
            mut alternatives,
            mut logits,
            hidden,
        } = drawn;
        for span in &flight.spans {
            let tokens = &tokens[span.draws.clone()];
            let count_of = |token: &DrawnToken| token.alternatives;
            let alternatives = split(&mut alternatives, tokens.iter().map(count_of).sum());
            let rows = if span.is_drawn { 0 } else { tokens.len() };
            let logits = split(&mut logits, rows * vocab);
            let choices = &flight.choices[span.choices.clone()];
            let Some(key) = self.scheduler.take_in_flight(choices, number) else {
                count(&self.stats.rows_void, span.planned.positions.len());
                continue;
            };
            let planned = PlannedSpan {
                key,
                ..span.planned.clone()
            };
            let mut sampling = SpanSampling {
                scheduler: self.scheduler,
                sampler: self.sampler,
                keys: &mut self.buffers.keys,
            };
            if span.is_drawn {
                let scratch = &mut flights.alternatives;
                sampling.apply_draws(key, (choices, tokens), alternatives, scratch);
            } else {
                sampling.sample_and_apply(&planned, logits, vocab);
                if !span.hidden.is_empty() {
                    let (from, to) = (span.hidden.start, span.hidden.end);
                    let rows = &hidden[from * hidden_dim..to * hidden_dim];
                    self.scheduler.apply_hidden(&planned, rows, hidden_dim);
                }
            }
        }
        let batch = flight.batch;
        flights.current.clear();
        self.buffers.add_finished(batch);
        Ok(())
    }
}

impl SpanSampling<'_> {
    /// Applies the tokens that the model drew from one row: that of the sequence under `key`, and with a prompt those of the
    /// other choices.
    fn apply_draws(
        &mut self,
        key: usize,
        (choices, tokens): (&[(usize, Age)], &[DrawnToken]),
        mut alternatives: &[(u32, f32)],
        scratch: &mut Vec<TopLogprob>,
    ) {
        let is_drawn = |token: &DrawnToken| {
            matches!(token.outcome, DrawOutcome::Token(_) | DrawOutcome::NoToken)
        };
        if !tokens.iter().all(is_drawn) {
            return self.scheduler.fail(key, FailCode::NotFinite);
        }
        self.scheduler.apply_row(key, 0, self.keys);
        for (&(key, age), token) in choices.iter().zip(tokens) {
            scratch.clear();
            let of_token = split(&mut alternatives, token.alternatives);
            let as_alternative = |&(id, logprob): &(u32, f32)| TopLogprob { id, logprob };
            scratch.extend(of_token.iter().map(as_alternative));
            if !self.scheduler.is_alive(key, age) {
                continue;
            }
            let sampled = match token.outcome {
                DrawOutcome::Token(id) => Sampled::Token(Token {
                    id,
                    logprob: token.logprob,
                }),
                _ => Sampled::NoToken,
            };
            self.scheduler.apply(key, sampled, scratch);
            self.scheduler.look_for_forced(key);
        }
    }
}

/// Calls a model that runs ahead. `None`: the call failed, or panicked, without a fault of the device.
fn call<'a, T>(
    model: &'a mut dyn model::Forward,
    act: impl FnOnce(&'a mut dyn Ahead) -> Result<T, ForwardError>,
) -> Result<Option<T>, DeviceFault> {
    let result = catch_unwind(AssertUnwindSafe(move || model.ahead().map(act)));
    match result {
        Ok(Some(Ok(value))) => Ok(Some(value)),
        Ok(Some(Err(ForwardError::Device(fault)))) => Err(fault),
        _ => Ok(None),
    }
}

/// Takes the first entries.
fn split<'a, T>(entries: &mut &'a [T], count: usize) -> &'a [T] {
    let (first, rest) = entries.split_at(count);
    *entries = rest;
    first
}
