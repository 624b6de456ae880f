//! Who runs, who waits, who leaves. All of the engine's state but the model's and the sampler's.
//!
//! # Policy
//!
//! - *Age* decides: requests by arrival, choices of a request by number.
//! - **Leaving** comes first: cancelled, abandoned, past the deadline. Pages are free at once.
//! - **Decodes before prefill.** Each sequence that generates gets its row. Only where there are
//!   more of them than rows do they take turns; an eighth of the rows (at least one) is then left to prefill.
//! - **Prefill in chunks.** Of the rows left over, half go to the oldest prompt; the rest to the others,
//!   shortest remainder first; what either does not use goes to the other. So a giant prompt always
//!   advances by half, a short one behind it is through at once, and prompts of equal length are served
//!   nearly in order.
//! - **Admission in order of age**, preempted sequences before new requests, when there are pages for all
//!   their tokens and one more for each sequence that runs (at most an eighth of all): the headroom that keeps a
//!   newcomer from being preempted right away. All these pages are taken at once. Nobody overtakes.
//! - **Preemption** when a running sequence needs a page and there is none: first parked sequences give theirs up, the
//!   youngest first, then the youngest of those that run, itself perhaps. The oldest that runs always advances, so
//!   everybody becomes the oldest in time: nobody starves. Full pages given up stay cached until they are taken.
//! - **Parked** is who is `credit_window` tokens ahead of its reader: no rows; pages kept while they are not short.
//!
//! A sequence is in the table under a key, and in `order`, from its admission to its end; everything
//! else follows from its state.

mod admit;
mod apply;
mod check;
mod leave;
mod select;

use crate::inbox::{Door, Inbox};
use crate::pages::Pages;
use crate::plan::Plan;
use crate::prefix::Chain;
use crate::sequence::{Common, Sequence, State, Submitted};
use crate::{Phase, Progress};
use model::{Batch, Want};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) struct Scheduler {
    inbox: Arc<Inbox>,
    rows_max: usize,
    logit_rows_max: usize,
    pages: Pages,
    /// Not started yet, oldest first.
    queue: VecDeque<Box<Submitted>>,
    /// By slot.
    requests: Vec<Option<Common>>,
    /// Slots to give back to the inbox.
    vacated: Vec<usize>,
    /// By key. An ended sequence leaves its key in `order` until the next step's head.
    sequences: Vec<Option<Sequence>>,
    vacant: Vec<usize>,
    /// Keys, oldest first.
    order: Vec<usize>,
    /// Age of the last sequence that had a turn when there were too many for one step.
    last_turn: (u64, u32),
    /// Keys of sequences in prefill; scratch.
    prefills: Vec<usize>,
    /// Times written roughly, to be written again at the next step's head.
    stamps: Vec<Stamp>,
    /// References per page; scratch of `check`.
    held: Vec<u32>,
    now_ns: u64,
    tokens: usize,
    ended: usize,
}

/// A time that will be known better at the next step's head.
enum Stamp {
    FirstToken(Arc<Progress>),
    Ended(Arc<Progress>),
}

impl Scheduler {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        let (config, dims) = (inbox.config, inbox.dims);
        let (sequences, requests) = (config.sequences_max, config.requests_max());
        Self {
            rows_max: config.step_tokens.min(dims.rows_max),
            logit_rows_max: dims.logit_rows_max,
            pages: Pages::new(&dims, config.prefix_cache),
            queue: VecDeque::with_capacity(config.inbox_max),
            requests: (0..requests).map(|_| None).collect(),
            vacated: Vec::with_capacity(requests),
            sequences: (0..sequences).map(|_| None).collect(),
            vacant: (0..sequences).rev().collect(),
            order: Vec::with_capacity(sequences),
            last_turn: (0, 0),
            prefills: Vec::with_capacity(sequences),
            stamps: Vec::with_capacity(2 * requests),
            held: vec![0; dims.pages],
            now_ns: 0,
            tokens: 0,
            ended: 0,
            inbox,
        }
    }

    /// The step's head: new requests in, ended sequences' keys out, times set right.
    pub(crate) fn take(&mut self, now: Instant) -> Door {
        let since_epoch = now.saturating_duration_since(self.inbox.epoch);
        // 0 says "has not happened".
        self.now_ns = (since_epoch.as_nanos() as u64).max(1);
        (self.tokens, self.ended) = (0, 0);
        for stamp in self.stamps.drain(..) {
            match stamp {
                Stamp::FirstToken(progress) => progress.set_first_token(self.now_ns),
                Stamp::Ended(progress) => progress.set_ended(self.now_ns),
            }
        }
        self.sweep();
        self.inbox.take(&mut self.queue, &mut self.vacated)
    }

    /// Who runs, who leaves, who is parked.
    pub(crate) fn plan(&mut self, now: Instant, door: Door, plan: &mut Plan) {
        plan.clear();
        self.leave(now, door);
        self.sweep();
        self.settle_credit();
        let decodes = self.select_decodes(&mut plan.copies);
        self.admit();
        self.select_prefill(decodes);
        self.write(plan);
    }

    /// Puts a planned span into the batch, unless its sequence has ended since. Returns whether.
    pub(crate) fn put(&self, span: &crate::plan::Planned, batch: &mut Batch) -> bool {
        let Some(sequence) = &self.sequences[span.key] else {
            return false;
        };
        let tokens = &sequence.tokens[span.positions.clone()];
        let want = if span.draws { Want::Last } else { Want::None };
        batch.push(tokens, span.positions.start, &sequence.pages, want);
        true
    }

    /// Tokens appended and choices ended since the step's head.
    pub(crate) fn done(&self) -> (usize, usize) {
        (self.tokens, self.ended)
    }

    /// Whether there is neither a queued nor a started request.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sequences.iter().all(Option::is_none)
    }

    /// Frees the keys of ended sequences.
    fn sweep(&mut self) {
        let (sequences, vacant) = (&self.sequences, &mut self.vacant);
        self.order.retain(|&key| {
            let lives = sequences[key].is_some();
            if !lives {
                vacant.push(key);
            }
            lives
        });
    }

    /// Takes a sequence's pages away. Its tokens are computed again when it gets new ones.
    fn preempt(&mut self, key: usize) {
        let sequence = self.sequences[key]
            .as_mut()
            .expect("a live sequence is preempted");
        self.pages.release_all(&mut sequence.pages);
        (sequence.computed, sequence.indexed) = (0, 0);
        sequence.chain = Chain::START;
        sequence.rows = 0;
        if sequence.state == State::Active {
            sequence.state = State::Waiting;
        }
        count(&self.inbox.stats.preemptions, 1);
    }

    fn live(&self) -> impl DoubleEndedIterator<Item = (usize, &Sequence)> {
        self.order
            .iter()
            .filter_map(|&key| Some((key, self.sequences[key].as_ref()?)))
    }

    /// Sets each request's phase to what its choices do. Choices of a request are neighbours.
    pub(crate) fn settle_phases(&mut self) {
        let mut at = 0;
        while let Some(slot) = self.slot_at(at) {
            let mut phase = Phase::Parked;
            while self.slot_at(at) == Some(slot) {
                if let Some(sequence) = &self.sequences[self.order[at]] {
                    phase = livelier(phase, sequence);
                }
                at += 1;
            }
            if let Some(common) = &self.requests[slot] {
                common.progress.set_phase(phase);
            }
        }
    }

    /// The request of the first live sequence at or after this place in `order`.
    fn slot_at(&self, at: usize) -> Option<usize> {
        self.order
            .get(at..)?
            .iter()
            .find_map(|&key| Some(self.sequences[key].as_ref()?.slot))
    }

    /// Writes the gauges.
    pub(crate) fn publish(&self) {
        let stats = &self.inbox.stats;
        let pages = self.pages.counts();
        let (mut running, mut parked, mut waiting) = (0, 0, 0);
        for (_, sequence) in self.live() {
            match sequence.state {
                State::Active | State::Forking => running += 1,
                State::Parked => parked += 1,
                State::Waiting => waiting += 1,
            }
        }
        set(&stats.queued, self.inbox.queued());
        set(&stats.running, running);
        set(&stats.parked, parked);
        set(&stats.waiting, waiting);
        set(&stats.pages_free, pages.free);
        set(&stats.pages_used, pages.used);
        set(&stats.pages_cached, pages.cached);
    }
}

fn livelier(phase: Phase, sequence: &Sequence) -> Phase {
    match (phase, sequence.state) {
        (Phase::Running, _) => Phase::Running,
        (_, State::Active) if sequence.own() > 0 => Phase::Running,
        (_, State::Active) => Phase::Prefilling,
        (phase, _) => phase,
    }
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

fn set(gauge: &AtomicU64, to: usize) {
    gauge.store(to as u64, Ordering::Relaxed);
}
