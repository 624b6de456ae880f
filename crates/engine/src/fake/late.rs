//! The fake model as one that runs ahead: what a device does at once is computed at the call, and given late.
//!
//! A device computes in the order of the calls; so does this model, since it computes each batch when the batch is started. A
//! page or a state that was given away too early then has the content of its new owner when a batch reads it, which is
//! noticed: each slot's content is checked to follow from the slot before it. That, and calls in another order than
//! [`model::Ahead`] has them, is noted in [`LateLog`].

use super::{FakeModel, FaultKind, NOT_A_NUMBER, SIMULATED_ERROR, mix, of_adapters};
use crate::TopLogprob;
use crate::sampler::Sampler;
use model::{
    Ahead, Batch, DRAWN, DeviceFault, DrawOutcome, Drawn, DrawnToken, Draws, ForwardError, VECTOR,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches that may be in flight.
const FLIGHTS_MAX: usize = 2;

/// What a model that runs ahead has seen.
#[derive(Clone, Debug, Default)]
pub struct LateLog {
    shared: Arc<LateCounts>,
}

#[derive(Debug, Default)]
struct LateCounts {
    misuse: Mutex<Vec<&'static str>>,
    started_ahead: AtomicU64,
}

impl LateLog {
    /// What the engine did against the rules of [`model::Ahead`].
    pub fn misuse(&self) -> Vec<&'static str> {
        let misuse = self.shared.misuse.lock();
        misuse.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Batches that were started before the results of the one before were asked for.
    pub fn started_ahead(&self) -> u64 {
        self.shared.started_ahead.load(Ordering::Relaxed)
    }

    fn note(&self, what: &'static str) {
        let misuse = self.shared.misuse.lock();
        misuse.unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// Batches in flight.
pub(super) struct Late {
    sampler: Sampler,
    log: LateLog,
    /// The batch that was started last, with its tokens.
    batch: Batch,
    /// Whether it was started, and its draws have not come.
    is_started: bool,
    /// The device fails before these results are given.
    fault: Option<DeviceFault>,
    /// Tokens of the last draws.
    tokens: Vec<DrawOutcome>,
    /// Results that were not asked for, oldest first.
    results: VecDeque<Results>,
    /// The results that were given last, and buffers.
    given: Vec<Results>,
}

#[derive(Default)]
struct Results {
    tokens: Vec<DrawnToken>,
    alternatives: Vec<(u32, f32)>,
    logits: Vec<f32>,
    hidden: Vec<f32>,
    fault: Option<DeviceFault>,
}

impl Late {
    pub(super) fn new(vocab: usize, log: LateLog) -> Self {
        Self {
            sampler: Sampler::new(vocab),
            log,
            batch: Batch::default(),
            is_started: false,
            fault: None,
            tokens: Vec::new(),
            results: VecDeque::with_capacity(FLIGHTS_MAX),
            given: (0..=FLIGHTS_MAX).map(|_| Results::default()).collect(),
        }
    }

    /// Forgets what is in flight.
    pub(super) fn lose(&mut self) {
        self.is_started = false;
        self.fault = None;
        self.given.extend(self.results.drain(..));
    }

    /// Notes a pass other than [`Ahead::start`] while a batch is in flight.
    pub(super) fn check_idle(&self) {
        if self.is_started || !self.results.is_empty() {
            self.log.note("a pass while a batch is in flight");
        }
    }

    fn check_start(&self, batch: &Batch) {
        if self.is_started {
            self.log
                .note("a batch is started before the draws of the last one");
        }
        if self.results.len() >= FLIGHTS_MAX {
            self.log.note("a third batch is in flight");
        }
        let is_ahead = !self.results.is_empty();
        let counter = &self.log.shared.started_ahead;
        counter.fetch_add(u64::from(is_ahead), Ordering::Relaxed);
        let last = |token: u32| self.tokens.get((token & !DRAWN) as usize);
        let drawn = batch.tokens().iter();
        let drawn = drawn.filter(|&&token| token & DRAWN != 0 && token != VECTOR);
        for outcome in drawn.map(|&token| last(token)) {
            if !is_ahead || outcome.is_none_or(|o| *o == DrawOutcome::Row) {
                self.log.note("a token that no draw gives");
            }
        }
    }

    /// The token of a batch that is started.
    fn resolve(&self, token: u32) -> u32 {
        match self.tokens.get((token & !DRAWN) as usize) {
            _ if token & DRAWN == 0 => token,
            Some(DrawOutcome::Token(id)) => *id,
            _ => 0,
        }
    }
}

impl FakeModel {
    /// This model as one that runs ahead. What the engine does against the rules is noted.
    pub fn late(self, log: LateLog) -> Self {
        let late = Some(Box::new(Late::new(self.config.dims.vocab, log)));
        Self { late, ..self }
    }

    /// Notes slots before the spans whose content does not follow from the slot before: they were written by another
    /// sequence, or not at all.
    fn check_slots(&self, batch: &Batch, log: &LateLog) {
        for span in batch.spans() {
            let adapted = of_adapters(&span);
            let mut before = 0;
            for position in 0..span.position {
                let slot = self.slot(&span, position);
                let input = self.inputs[slot];
                let follows = mix(before, adapted ^ u64::from(input)) >> 1;
                let found = self.slots[slot];
                if self.blocked[slot] {
                    before = found;
                    continue;
                }
                if found == NOT_A_NUMBER {
                    break;
                }
                if found != follows {
                    log.note("a page has the content of another sequence");
                    break;
                }
                before = found;
            }
        }
    }

    fn start_late(&mut self, late: &mut Late, batch: &Batch) -> Result<(), ForwardError> {
        late.check_start(batch);
        let mut resolved = std::mem::take(&mut late.batch);
        resolved.copy_with(batch, |token| late.resolve(token));
        self.check_slots(&resolved, &late.log);
        let computed = self.compute(&resolved);
        if let Err(ForwardError::BadBatch(why)) = computed
            && why != SIMULATED_ERROR
        {
            late.log.note(why);
        }
        late.batch = resolved;
        late.is_started = computed.is_ok();
        late.fault = self.late_fault();
        computed
    }

    /// The fault of this call that shows when the results are awaited.
    fn late_fault(&self) -> Option<DeviceFault> {
        let call = super::FaultAt::Call(self.calls - 1);
        let mut faults = self.config.faults.iter().filter(|fault| fault.at == call);
        faults.find_map(|fault| match fault.kind {
            FaultKind::LateDevice(fault) => Some(fault),
            _ => None,
        })
    }

    fn draw_late(&self, late: &mut Late, draws: &Draws) {
        if !std::mem::take(&mut late.is_started) {
            late.log.note("draws without a batch");
        }
        let mut results = late.given.pop().unwrap_or_default();
        results.clear();
        late.tokens.clear();
        let vocab = self.config.dims.vocab;
        for draw in draws.iter() {
            let row = &self.logits[draw.row * vocab..][..vocab];
            let drawn = late.sampler.draw_described(row, &draw);
            if drawn.outcome == DrawOutcome::Row {
                results.logits.extend_from_slice(row);
            }
            let top = late.sampler.alternatives().iter();
            let top = top.map(|&TopLogprob { id, logprob }| (id, logprob));
            results.alternatives.extend(top);
            results.tokens.push(drawn);
            late.tokens.push(drawn.outcome);
        }
        results.hidden.extend_from_slice(&self.hidden);
        results.fault = late.fault.take();
        late.results.push_back(results);
    }
}

impl Results {
    fn clear(&mut self) {
        self.tokens.clear();
        self.alternatives.clear();
        self.logits.clear();
        self.hidden.clear();
        self.fault = None;
    }
}

impl Ahead for FakeModel {
    fn start(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        let Some(mut late) = self.late.take() else {
            return Err(ForwardError::BadBatch("a model that does not run ahead"));
        };
        let started = std::panic::AssertUnwindSafe(|| self.start_late(&mut late, batch));
        let started = std::panic::catch_unwind(started);
        self.late = Some(late);
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn draw(&mut self, draws: &Draws) -> Result<(), ForwardError> {
        if self.is_lost {
            return Err(ForwardError::Device(DeviceFault::Lost));
        }
        if let Some(mut late) = self.late.take() {
            self.draw_late(&mut late, draws);
            self.late = Some(late);
        }
        Ok(())
    }

    fn drawn(&mut self) -> Result<Drawn<'_>, ForwardError> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        let results = self.late.as_mut().and_then(|late| late.results.pop_front());
        let results = results.ok_or(ForwardError::BadBatch("nothing is in flight"))?;
        if let Some(fault) = results.fault.filter(|_| !self.is_lost) {
            return Err(self.lose_device(fault));
        }
        if self.is_lost {
            return Err(ForwardError::Device(DeviceFault::Lost));
        }
        let Some(late) = &mut self.late else {
            return Err(ForwardError::BadBatch("nothing is in flight"));
        };
        late.given.push(results);
        // The buffer that is used next is the last one: the results stay valid until the next call.
        let results = &late.given[late.given.len() - 1];
        Ok(Drawn {
            tokens: &results.tokens,
            alternatives: &results.alternatives,
            logits: &results.logits,
            hidden: &results.hidden,
        })
    }
}
