//! Who runs, who waits, who leaves. All of the engine's state but the model's and the sampler's.
//!
//! # Policy
//!
//! - **Standing** decides who goes first: class, then the account that was given least, then age
//!   (requests by arrival, choices of a request by number). See [`standing::Standing`] for ageing, which
//!   bounds how long a class or an account waits, and [`crate::accounts`] for the counters.
//! - **Leaving** comes first: cancelled, abandoned, past the deadline, a clock run out. Pages are free at once.
//! - **Decodes before prefill.** Each sequence that generates gets its row. Only where there are
//!   more of them than rows do they take turns by standing; an eighth of the rows (at least one) is then left to prefill.
//! - **Prefill in chunks.** Beside decodes only as many rows as are expected to keep the step under its target
//!   ([`crate::pace`]). Half go to the prompt of the best standing; the rest to the others, by class and account, then
//!   shortest remainder first; what either does not use goes to the other. So a giant prompt always
//!   advances by half, a short one behind it is through at once, and prompts of equal length are served
//!   nearly in order.
//! - **Admission by standing**, within a class preempted sequences before new requests, when there are pages for all
//!   their tokens and one more for each sequence that runs (at most an eighth of all): the headroom that keeps a
//!   newcomer from being preempted right away. All these pages are taken at once. Nobody overtakes.
//! - **Preemption** when a running sequence needs a page and there is none: first parked sequences give theirs up, then
//!   those that run, itself perhaps; the least urgent first, of these the youngest. The oldest of the most urgent
//!   always advances, and who gets nothing becomes more urgent: nobody starves.
//! - **Parked** is who is `credit_window` tokens ahead of its reader, paused, or without a place
//!   ([`crate::places`]): no rows; pages kept while they are not short.
//!
//! A sequence is in the table under a key, and in `order`, from its admission to its end; everything
//! else follows from its state.

mod admit;
mod alarm;
mod apply;
mod check;
mod draft;
mod forced;
mod leave;
mod place;
mod propose;
mod publish;
mod select;
mod settle;
mod standing;
mod steer;
mod tune;
mod watch;

use self::admit::Candidate;
use self::apply::Awaited;
use self::propose::Small;
use self::select::Turn;
use self::watch::Watch;
use crate::accounts::Accounts;
use crate::inbox::{Door, Inbox};
use crate::pace::Pace;
use crate::pages::Pages;
use crate::plan::Plan;
use crate::prefix::Chain;
use crate::sequence::{Common, Sequence, State};
use crate::speculation::Worth;
use crate::submitted::Submitted;
use crate::{Observer, Phase, Progress, RequestId, STEERS_MAX, Steer, StepFacts, Transition};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use stream::End;

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
    accounts: Accounts,
    /// [`crate::EngineConfig::ageing`].
    ageing_ns: u64,
    /// Parked for credit longer than this, a reader is called slow.
    slow_consumer: Duration,
    pace: Pace,
    worth: Worth,
    small: Option<Small>,
    watch: Watch,
    /// Changes that wait for their request's first token.
    steers: Vec<(RequestId, Steer)>,
    /// Keys of sequences in prefill, or that decode; scratch.
    keys: Vec<usize>,
    /// Scratch of those who contend for rows, and for places.
    turns: Vec<Turn>,
    candidates: Vec<Candidate>,
    /// For each token of the last step that was not a choice's first.
    awaited: Vec<Awaited>,
    /// Times written roughly, to be written again at the next step's head.
    stamps: Vec<Stamp>,
    /// References per page, and per page of the draft model; scratch of `check`.
    held: Vec<u32>,
    held_small: Vec<u32>,
    now: Instant,
    now_ns: u64,
    /// Decode rows given so far: numbers the turns.
    rows_given: u64,
    /// Whether the plan is made: what happens from now on has a time at the next step's head.
    planned: bool,
    tokens: usize,
    drafted: usize,
    ended: usize,
}

/// What happened at a time that will be known better at the next step's head.
enum Stamp {
    FirstToken {
        id: RequestId,
        progress: Arc<Progress>,
        since_ns: u64,
    },
    Ended {
        id: RequestId,
        progress: Arc<Progress>,
        /// `None`: the observer knows already.
        end: Option<End>,
    },
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
            accounts: Accounts::new(config.accounts_known()),
            ageing_ns: nanos(config.ageing).max(1),
            pace: Pace::new(config.step_target),
            slow_consumer: config.slow_consumer,
            worth: Worth::new(),
            small: inbox
                .draft
                .map(|dims| Small::new(dims, config.prefix_cache)),
            watch: Watch::default(),
            steers: Vec::with_capacity(STEERS_MAX),
            keys: Vec::with_capacity(sequences),
            turns: Vec::with_capacity(sequences),
            candidates: Vec::with_capacity(sequences + config.inbox_max),
            awaited: Vec::with_capacity(sequences + dims.logit_rows_max),
            stamps: Vec::with_capacity(2 * requests),
            held: vec![0; dims.pages],
            held_small: vec![0; inbox.draft.map_or(0, |dims| dims.pages)],
            now: inbox.epoch,
            now_ns: 0,
            rows_given: 0,
            planned: false,
            tokens: 0,
            drafted: 0,
            ended: 0,
            inbox,
        }
    }

    /// The step's head: new requests in, ended sequences' keys out, times set right.
    pub(crate) fn take(&mut self, now: Instant) -> Door {
        let last_ns = self.now_ns;
        self.now = now;
        self.now_ns = self.since_epoch_ns(now);
        self.planned = false;
        self.tune();
        (self.tokens, self.drafted, self.ended) = (0, 0, 0);
        self.stamp();
        self.time_sequences(self.now_ns.saturating_sub(last_ns));
        self.sweep();
        let known = self.queue.len();
        let door = self.inbox.take(&mut self.queue, &mut self.vacated);
        (known..self.queue.len()).for_each(|at| self.arrive(at));
        door
    }

    /// Who runs, who leaves, who is parked.
    pub(crate) fn plan(&mut self, now: Instant, door: Door, plan: &mut Plan) {
        plan.clear();
        self.settle_pauses(door);
        self.leave(now, door);
        self.steer();
        self.sweep();
        self.settle_credit();
        let decodes = self.select_decodes(&mut plan.copies);
        self.admit();
        self.select_prefill(decodes);
        let forced = self.select_forced();
        self.select_drafts(forced);
        self.write(plan);
        self.tell_changes();
        self.planned = true;
    }

    /// What the last step was, known at the next one's head.
    pub(crate) fn learn(&mut self, facts: &StepFacts) {
        let StepFacts {
            rows_prefill,
            rows_decode,
            rows_draft,
            duration_ns,
            ..
        } = *facts;
        self.pace.took(rows_prefill, rows_decode, duration_ns);
        if rows_prefill == 0 && !self.small.as_ref().is_some_and(|small| small.behind) {
            self.worth.took(rows_decode, rows_draft, duration_ns);
        }
        self.watch.step(&self.inbox.stats, facts);
    }

    /// Tells this observer from now on, in place of the one before.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.watch = Watch::by(observer);
    }

    /// Tokens appended and choices ended since the step's head.
    pub(crate) fn done(&self) -> (usize, usize) {
        (self.tokens, self.ended)
    }

    /// Whether there is neither a queued nor a started request.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sequences.iter().all(Option::is_none)
    }

    /// A request is in the queue: it has a time and an account from now on.
    fn arrive(&mut self, at: usize) {
        let since = self.queue[at].common.since;
        let since_ns = since.map_or(self.now_ns, |since| self.since_epoch_ns(since));
        let submitted = &mut self.queue[at];
        let common = &mut submitted.common;
        if let Some(places) = &mut common.places {
            places.wake_by(Waker::from(Arc::clone(&self.inbox)));
        }
        common.since_ns = since_ns.min(self.now_ns);
        common.from_ns = common.since_ns;
        for sequence in &mut submitted.sequences {
            sequence.waits_ns = self.now_ns;
        }
        common.share = self.accounts.open(common.account, common.share.class);
        self.accounts.want(common.share);
        let (id, progress) = (common.id, Arc::clone(&common.progress));
        self.tell(id, &progress, Transition::Queued);
    }

    /// Writes times again that were known roughly.
    fn stamp(&mut self) {
        let mut stamps = std::mem::take(&mut self.stamps);
        for stamp in stamps.drain(..) {
            match stamp {
                Stamp::FirstToken {
                    id,
                    progress,
                    since_ns,
                } => {
                    progress.set_first_token(self.now_ns);
                    let waited = self.now_ns.saturating_sub(since_ns);
                    self.inbox.stats.first_token.record(waited);
                    self.tell(id, &progress, Transition::FirstToken);
                }
                Stamp::Ended { id, progress, end } => {
                    progress.set_ended(self.now_ns);
                    if let Some(end) = end {
                        self.tell(id, &progress, Transition::Ended(end));
                    }
                }
            }
        }
        self.stamps = stamps;
    }

    /// Takes note of the last step's tokens, and of the time readers kept their streams waiting.
    fn time_sequences(&mut self, step_ns: u64) {
        let stats = &self.inbox.stats;
        for token in self.awaited.drain(..) {
            let waited = self.now_ns.saturating_sub(token.since_ns);
            stats.inter_token.record(waited);
            token.progress.add_gap(waited, self.now_ns);
        }
        for &key in &self.order {
            let Some(sequence) = &mut self.sequences[key] else {
                continue;
            };
            if std::mem::take(&mut sequence.fresh) {
                sequence.waits_ns = self.now_ns;
            }
            if sequence.stalls()
                && let Some(common) = &self.requests[sequence.slot]
            {
                common.progress.stall_goes_on(step_ns, self.now_ns);
                stats.reader_stall_ns.fetch_add(step_ns, Ordering::Relaxed);
            }
        }
    }

    /// 0 says "has not happened".
    fn since_epoch_ns(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.inbox.epoch)).max(1)
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
        if let Some(small) = &mut self.small {
            sequence.drafts.table.release(&mut small.pages);
        }
        self.pages.release_all(&mut sequence.pages);
        (sequence.computed, sequence.indexed) = (0, 0);
        sequence.chain = Chain::Start(sequence.salt);
        sequence.rows = 0;
        if sequence.state == State::Active {
            sequence.state = State::Waiting;
        }
        count(&self.inbox.stats.preemptions, 1);
        if let Some(common) = &self.requests[sequence.slot] {
            common.progress.add_preemption();
        }
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
                let still = phase == Phase::Parked && common.paused;
                let phase = if still { Phase::Paused } else { phase };
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
