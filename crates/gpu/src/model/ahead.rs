//! Batches that are started before the tokens of the last one are known; the device draws these.
//!
//! The device's queue has the order of the calls: batch k, the draws of k, batch k + 1. A row whose token is drawn by the batch
//! before finds it in memory of the device; the host waits for the draws of k while k + 1 is computed.

use super::Model;
use crate::draw_record::{DrawBounds, DrawRecord, DrawResult, RESULT_WORDS};
use crate::operation::{BufferId, RowSet};
use crate::webgpu::loaded::Loaded;
use crate::webgpu::loaded::flight::ReadRows;
use model::{
    Ahead, Batch, DrawOutcome, DrawRule, DrawView, Drawn, DrawnToken, Draws, ForwardError,
};

/// Batches in flight. Reused, so that a warm step allocates nothing.
#[derive(Default)]
pub(super) struct Flights {
    bounds: DrawBounds,
    record: DrawRecord,
    /// Rows with logits and hidden states of the batch that was started, and whose draws have not come.
    started: Option<[usize; 2]>,
    /// Draws of the last batch: as many tokens the next batch may name.
    draws: usize,
    /// The rules of the draws whose results are on their way; `None`: the row itself.
    rules: Vec<Option<DrawRule>>,
    /// Rows that come with the results.
    rows: Vec<ReadRows>,
    is_awaited: bool,
    tokens: Vec<DrawnToken>,
    alternatives: Vec<(u32, f32)>,
    /// `(rows, vocab)`.
    logits: Vec<f32>,
}

impl Flights {
    pub(super) fn new(bounds: DrawBounds) -> Self {
        Self {
            bounds,
            record: DrawRecord::new(bounds),
            started: None,
            draws: 0,
            rules: Vec::with_capacity(bounds.draws),
            rows: Vec::with_capacity(bounds.draws),
            is_awaited: false,
            tokens: Vec::with_capacity(bounds.draws),
            alternatives: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// Whether results are on their way, or a batch waits for its draws.
    pub(super) fn are_in_flight(&self) -> bool {
        self.is_awaited || self.started.is_some()
    }

    /// Whether a batch waits for its draws.
    pub(super) fn awaits_draws(&self) -> bool {
        self.started.is_some()
    }

    /// Forgets what is in flight: the device is lost.
    pub(super) fn lose(&mut self) {
        self.started = None;
        self.is_awaited = false;
        self.draws = 0;
    }

    /// Rejects draws that a batch with so many rows of logits does not have.
    fn check(&self, draws: &Draws, rows: usize) -> Result<(), ForwardError> {
        if draws.len() > self.bounds.draws {
            return Err(ForwardError::BadBatch(
                "there are more than draws_max draws",
            ));
        }
        let mut checks = draws.iter().map(|draw| self.bounds.check(&draw, rows));
        checks
            .find_map(Result::err)
            .map_or(Ok(()), |why| Err(ForwardError::BadBatch(why)))
    }

    /// Notes what is read: the rows that are wanted themselves, those that follow each other at once, then hidden states.
    fn plan(&mut self, draws: &Draws, logits: BufferId, hidden: (BufferId, usize)) {
        self.rules.clear();
        self.rules.extend(draws.iter().map(|draw| draw.rule));
        self.rows.clear();
        for DrawView { row, .. } in draws.iter().filter(|draw| draw.rule.is_none()) {
            match self.rows.last_mut() {
                Some(last) if last.rows.end == row => last.rows.end += 1,
                _ => self.rows.push(ReadRows {
                    buffer: logits,
                    rows: row..row + 1,
                }),
            }
        }
        self.rows.push(ReadRows {
            buffer: hidden.0,
            rows: 0..hidden.1,
        });
    }

    /// Reads results: of all draws, then rows with `strides` words of logits and hidden states, of which `cols` are meant.
    fn read(&mut self, words: &[u32], layout: &RowLayouts, hidden: &mut Vec<f32>) {
        let (results, mut rest) = words.split_at(self.rules.len() * RESULT_WORDS);
        self.tokens.clear();
        self.alternatives.clear();
        for (number, rule) in self.rules.iter().enumerate() {
            let token = match rule {
                Some(rule) => DrawResult::of(results, number).token(rule, &mut self.alternatives),
                None => DrawnToken {
                    outcome: DrawOutcome::Row,
                    logprob: f32::NAN,
                    alternatives: 0,
                },
            };
            self.tokens.push(token);
        }
        self.logits.clear();
        hidden.clear();
        for read in &self.rows {
            let ([cols, stride], to) = if read.buffer == layout.logits_of {
                (layout.logits, &mut self.logits)
            } else {
                (layout.hidden, &mut *hidden)
            };
            for _ in read.rows.clone() {
                let (row, after) = rest.split_at(stride);
                to.extend(row[..cols].iter().map(|word| f32::from_bits(*word)));
                rest = after;
            }
        }
    }
}

/// Elements of a row that are meant, and floats between two rows, of the buffers of logits and hidden states.
struct RowLayouts {
    logits_of: BufferId,
    logits: [usize; 2],
    hidden: [usize; 2],
}

impl RowLayouts {
    fn of(loaded: &Loaded, [logits, hidden]: [BufferId; 2]) -> Self {
        let layout = |buffer: BufferId| {
            let shape = loaded.program().buffers[buffer.0 as usize];
            [shape.cols as usize, shape.stride() as usize]
        };
        Self {
            logits_of: logits,
            logits: layout(logits),
            hidden: layout(hidden),
        }
    }
}

impl Ahead for Model {
    fn start(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        if self.flights.started.is_some() {
            return Err(ForwardError::BadBatch("the draws of a batch are missing"));
        }
        self.check(batch, self.flights.draws)?;
        self.step.read(batch);
        if !batch.is_empty() {
            self.on_device(|loaded| {
                loaded.write_vectors(batch.vectors());
                loaded.start(self.step.record())
            })?;
        }
        let rows = [RowSet::Logits, RowSet::Hidden].map(|set| self.step.rows(set));
        self.flights.started = Some(rows);
        Ok(())
    }

    fn draw(&mut self, draws: &Draws) -> Result<(), ForwardError> {
        let mut flights = std::mem::take(&mut self.flights);
        let done = self.queue(&mut flights, draws);
        self.flights = flights;
        done
    }

    fn drawn(&mut self) -> Result<Drawn<'_>, ForwardError> {
        if !std::mem::take(&mut self.flights.is_awaited) {
            return Err(ForwardError::BadBatch("nothing is in flight"));
        }
        let outputs = [self.outputs.logits, self.outputs.hidden];
        let mut flights = std::mem::take(&mut self.flights);
        let mut read = std::mem::take(&mut self.read);
        let done = self.on_device(|loaded| {
            let layouts = RowLayouts::of(loaded, outputs);
            loaded.finish_results(|words| flights.read(words, &layouts, &mut read))
        });
        (self.flights, self.read) = (flights, read);
        done?;
        self.read_hidden();
        Ok(Drawn {
            tokens: &self.flights.tokens,
            alternatives: &self.flights.alternatives,
            logits: &self.flights.logits,
            hidden: &self.hidden,
        })
    }
}

impl Model {
    /// Queues the draws of the batch that was started.
    fn queue(&self, flights: &mut Flights, draws: &Draws) -> Result<(), ForwardError> {
        let Some([logits, hidden]) = flights.started.take() else {
            return Err(ForwardError::BadBatch("draws without a batch"));
        };
        if flights.is_awaited {
            return Err(ForwardError::BadBatch("the results before are not read"));
        }
        flights.check(draws, logits)?;
        flights.plan(draws, self.outputs.logits, (self.outputs.hidden, hidden));
        let (record, rows) = (&mut flights.record, &flights.rows);
        self.on_device(|loaded| loaded.queue_draws(record, draws, rows))?;
        flights.draws = draws.len();
        flights.is_awaited = true;
        Ok(())
    }
}
