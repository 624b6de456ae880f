//! Which requests run, wait and leave: all of the engine's state but the model's and the sampler's.
//!
//! # Policy
//!
//! - **Priority** decides the order: class, then the account with the least service, then age
//!   (requests by arrival, choices of a request by number). See [`priority::SchedulingPriority`] for ageing, which
//!   bounds how long a class or an account waits, and [`crate::fair_share`] for the counters.
//! - **Ends** come first: cancelled, abandoned, past the deadline, a clock run out. Pages are free at once.
//! - **Decodes before prefill.** Each decoding sequence gets one row. Only where there are more sequences
//!   than rows do they take turns by priority; an eighth of the rows (at least one) is then left to prefill.
//! - **Prefill in chunks.** Beside decodes only as many rows as are expected to keep the step under its target
//!   ([`crate::step_time`]). Half go to the prompt of the best priority; the rest to the others, by class and account,
//!   then shortest remainder first; rows that either does not use go to the other. So a giant prompt always advances
//!   by half, a short prompt behind the giant one completes at once, and prompts of equal length are served nearly in
//!   order.
//! - **Starts by priority**, within a class preempted sequences before new requests, when there are pages for all
//!   their tokens and one more for each sequence that runs (at most an eighth of all): the headroom that keeps a
//!   started sequence from being preempted right away. All these pages are taken at once. Starts are never reordered
//!   to fit.
//! - **Preemption** when a running sequence needs a page and there is none: first parked sequences give theirs up, then
//!   running ones, the claimant included; the least urgent first, of these the youngest. The oldest of the most urgent
//!   always advances, and a sequence without service becomes more urgent: none starves.
//! - **States** of a model with recurrent layers are two for each sequence that may be in the engine, so that none waits
//!   for one ([`states`]). Draft and forced tokens are then at most [`model::KEPT_MAX`]: a state cannot be taken back, so that
//!   the pass writes one after each row.
//! - **Parked** is a sequence `credit_window` tokens ahead of the reader, paused, or without a permit
//!   ([`crate::terms`]): no rows; pages kept while they are not short.
//!
//! # Owners
//!
//! [`Scheduler`] composes owners, each with a separate file, private state and methods; no owner accesses
//! [`Scheduler`] or, except for the table, another owner's state:
//!
//! ```text
//! sequence_table    started requests, sequences, their keys    priority        fair-share counters and ageing
//! start             requests that are not started, and the     row_budget      rows of a step and their cost
//!                   next one to get pages                      speculator      draft tokens, with draft_model or mtp_head
//! kv_cache          the model's pages and states               begin           updates in flight
//! notifier          the observer, times known at the next head
//! encodings         rows of inputs, and the encoder's work   blocks          the pass over rows that see each other
//! crate::disk_cache prefixes on disk
//! ```
//!
//! The other files are the phases of a step, each an `impl Scheduler` that calls the owners: `begin` (the head), `disk`, `park`,
//! `end`, `start`, `units`, `row_budget` (with `drafts`), `states`, `apply` (with `in_flight`).

mod apply;
mod begin;
mod blocks;
mod disk;
mod draft_model;
mod drafts;
mod encodings;
mod end;
mod in_flight;
mod kv_cache;
mod mtp_head;
mod notifier;
mod park;
mod priority;
mod row_budget;
mod sequence_table;
mod speculator;
mod start;
mod states;
mod units;

use crate::disk_cache::DiskCache;
use crate::inbox::{Inbox, InboxState};
use crate::plan::Plan;
use crate::sequence::SequenceState;
use crate::step_time::StepClock;
use crate::{Observer, StepFacts};
use std::sync::Arc;

pub(crate) use blocks::BlockOutcome;
pub(crate) use draft_model::DraftPass;
pub(crate) use encodings::UnitOutcome;

use self::begin::UpdateQueue;
use self::blocks::Blocks;
use self::encodings::Encodings;
use self::kv_cache::KvCache;
use self::notifier::{Notifier, Timestamps};
use self::priority::PriorityPolicy;
use self::row_budget::RowBudget;
use self::sequence_table::SequenceTable;
use self::speculator::Speculator;
use self::start::{RequestQueue, StartCandidates};

/// The scheduler: see the module's documentation for the policy and the owners.
pub(crate) struct Scheduler {
    inbox: Arc<Inbox>,
    clock: StepClock,
    queue: RequestQueue,
    table: SequenceTable,
    priority: PriorityPolicy,
    start_candidates: StartCandidates,
    kv: KvCache,
    rows: RowBudget,
    speculator: Speculator,
    encodings: Encodings,
    blocks: Blocks,
    /// Whether the last step that had both prompts and units to compute took the units.
    were_units: bool,
    updates: UpdateQueue,
    timestamps: Timestamps,
    notifier: Notifier,
    counters: StepCounters,
    /// Prefixes on disk, where the operator wants it.
    disk: Option<Box<DiskCache>>,
    /// Scratch: keys of sequences with rows.
    keys: Vec<usize>,
}

impl Scheduler {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        let (config, dims) = (inbox.config, inbox.dims);
        let (sequences, requests) = (config.sequences_max, config.requests_max());
        let rows_max = if inbox.is_causal {
            config.step_tokens.min(dims.rows_max)
        } else {
            // A prompt of the whole context is one step.
            dims.rows_max
        };
        // The results of two batches may come in one step.
        let tokens_max = 2 * (sequences + dims.logit_rows_max);
        Self {
            clock: StepClock::new(inbox.epoch),
            queue: RequestQueue::new(config.inbox_max, requests),
            table: SequenceTable::new(sequences, requests),
            priority: PriorityPolicy::new(config.accounts_known(), config.ageing),
            start_candidates: StartCandidates::new(sequences + config.inbox_max),
            kv: KvCache::new(&dims, config.prefix_cache, inbox.states, sequences),
            rows: RowBudget::new(rows_max, dims.logit_rows_max, sequences, config.step_target)
                .with_whole_prompts(!inbox.is_causal),
            speculator: Speculator::new(&inbox),
            encodings: Encodings::new(&config, inbox.media.encoder),
            blocks: Blocks::default(),
            were_units: false,
            updates: UpdateQueue::new(),
            timestamps: Timestamps::new(requests, tokens_max),
            notifier: Notifier::new(config.slow_consumer),
            counters: StepCounters::default(),
            disk: None,
            keys: Vec::with_capacity(sequences),
            inbox,
        }
    }

    /// Plans the step: which sequences end, park, start and get rows.
    pub(crate) fn plan_step(&mut self, state: InboxState, plan: &mut Plan) {
        plan.clear();
        self.apply_pauses(state);
        self.end_expired(state);
        self.apply_updates();
        self.table.sweep();
        self.park_and_resume();
        let decodes = self.select_decodes(&mut plan.copies);
        self.start_requests();
        if !self.select_units(decodes) {
            self.rows
                .give_prefill_rows(&mut self.table, decodes, &self.priority, self.clock);
        }
        let forced = self.select_forced();
        self.select_drafts(forced);
        self.rows
            .write_spans(plan, &mut self.table, &mut self.priority, self.clock);
        self.reserve_states(plan);
        self.notifier
            .notify_changes(&mut self.table, &self.inbox.stats, self.clock);
        self.timestamps.set_planned();
    }

    /// Lets the draft model propose tokens for the planned sequences, or the MTP head of the model itself.
    pub(crate) fn propose_drafts(&mut self, plan: &Plan, pass: DraftPass<'_>) {
        let (table, stats) = (&mut self.table, &self.inbox.stats);
        if let Some(draft_model) = &mut self.speculator.draft_model {
            draft_model.propose(table, plan, pass, stats);
        } else if let Some(head) = &mut self.speculator.mtp_head {
            head.propose(table, plan, pass, stats);
        }
    }

    /// Learns from the last step; the step's duration is known at the head of the next step.
    pub(crate) fn record_step(&mut self, facts: &StepFacts) {
        if self.have_units_run() {
            self.rows.step_time.count_unit_step();
        } else {
            self.rows.record_step(facts);
            self.speculator.record_step(facts);
        }
        self.notifier.notify_step(&self.inbox.stats, facts);
    }

    /// Replaces the observer.
    pub(crate) fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.notifier.set_observer(observer);
    }

    /// Counts since the step's head.
    pub(crate) fn counters(&self) -> StepCounters {
        self.counters
    }

    /// Whether there is neither a queued nor a started request.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.table.is_empty()
    }
}

/// Counts since the step's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepCounters {
    /// Tokens appended to logs.
    pub(crate) tokens: usize,
    /// Rows of draft tokens and forced tokens.
    pub(crate) draft_rows: usize,
    /// Choices that ended.
    pub(crate) ended: usize,
}

impl Scheduler {
    /// Panics unless each owner's state is consistent, pages are conserved, and accounts have the demand of the
    /// queued requests and running sequences; and unless nothing is in flight where nothing may be.
    pub(crate) fn check(&mut self, may_be_in_flight: bool) {
        let sequences = self.table.live().map(|(_, sequence)| sequence);
        self.kv.check(sequences.clone());
        if let Some(draft_model) = &mut self.speculator.draft_model {
            draft_model.check(sequences);
        }
        let mut sequences = self.table.live();
        let waits = sequences.any(|(_, s)| s.in_flight.is_some());
        assert!(may_be_in_flight || !waits, "results that never come");
        self.table.check();
        self.queue.check();
        self.encodings.check();
        self.blocks.check(&self.table);
        self.check_fair_shares();
    }

    fn check_fair_shares(&self) {
        let requests = self.queue.len() + self.table.requests().count();
        let queued = self.queue.iter().filter(|r| !r.state.paused).count();
        let live = self.table.live();
        let running = live.filter(|(_, s)| s.state != SequenceState::Parked);
        let uncharged = self.table.live().map(|(_, s)| s.uncharged as u64).sum();
        assert_eq!(
            self.priority.fair_shares.totals(),
            (requests, queued + running.count(), uncharged),
            "requests, demand and uncharged tokens of accounts"
        );
    }
}
