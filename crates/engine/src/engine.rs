//! The one who runs the model: takes requests, plans, computes, applies; once per turn.

use crate::handle;
use crate::inbox::{Door, Inbox};
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::scheduler::Scheduler;
use crate::turn::{Batched, Turn};
use crate::{ConfigError, EngineConfig, Handle, Observer, Stats, StepFacts};
use model::{Batch, Forward};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Rows the model was given.
    pub rows: usize,
    /// How many of them were prompt, or tokens lost to a preemption.
    pub rows_prefill: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// Choices that ended.
    pub ended: usize,
    /// What to do next.
    pub next: Next,
}

/// What the loop does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is work: step again at once.
    Step,
    /// There are requests, but each stands still: step again when woken (by a new request, a cancel, a
    /// pause, a resume, or a reader that returned credit or left), or at this time, when a clock runs out;
    /// at the latest after [`crate::LOOK_EACH`].
    Wait(Instant),
    /// There is nothing: sleep until woken.
    Sleep,
    /// The inbox is closed and everything has ended: leave.
    Leave,
}

/// The one who runs the model. Not shared: whoever owns it steps it.
pub struct Engine {
    inbox: Arc<Inbox>,
    door: Weak<handle::Door>,
    model: Box<dyn Forward>,
    draft: Option<Box<dyn Forward>>,
    scheduler: Scheduler,
    sampler: Sampler,
    plan: Plan,
    batch: Batch,
    batched: Vec<Batched>,
    /// The head of the last step, if the model ran in it.
    computed_at: Option<Instant>,
    /// Tokens appended in it, and rows of guesses.
    tokens: usize,
    drafted: usize,
}

impl Engine {
    /// An engine with nothing to do. `epoch` is what times in [`crate::Progress`] count from.
    ///
    /// # Errors
    /// A bound of `config`, or of the model's [`model::Dims`], is too small.
    pub fn new(
        model: Box<dyn Forward>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Result<Self, ConfigError> {
        Self::build(model, None, config, epoch)
    }

    /// The same with a smaller model that guesses what comes next, for [`Speculation::Draft`].
    ///
    /// # Errors
    /// As for [`Engine::new`], for both models; their vocabularies differ in size.
    pub fn with_draft(
        model: Box<dyn Forward>,
        draft: Box<dyn Forward>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Result<Self, ConfigError> {
        Self::build(model, Some(draft), config, epoch)
    }

    fn build(
        model: Box<dyn Forward>,
        draft: Option<Box<dyn Forward>>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Result<Self, ConfigError> {
        let dims = model.dims();
        let draft_dims = draft.as_ref().map(|draft| draft.dims());
        config.check(&dims)?;
        config.check_draft(&dims, draft_dims.as_ref())?;
        let mut inbox = Inbox::new(dims, draft_dims, config, epoch);
        inbox.hidden_dim = model.hidden_dim();
        let inbox = Arc::new(inbox);
        let scheduler = Scheduler::new(Arc::clone(&inbox));
        scheduler.publish();
        Ok(Self {
            inbox,
            door: Weak::new(),
            model,
            draft,
            scheduler,
            sampler: Sampler::new(dims.vocab),
            plan: Plan::new(config.sequences_max),
            batch: Batch::default(),
            batched: Vec::with_capacity(config.sequences_max),
            computed_at: None,
            tokens: 0,
            drafted: 0,
        })
    }

    /// A way in, for other threads. When all of them are dropped, the engine finishes and leaves.
    pub fn handle(&mut self) -> Handle {
        Handle::through(&mut self.door, &self.inbox)
    }

    /// The engine's counters.
    pub fn stats(&self) -> &Stats {
        &self.inbox.stats
    }

    /// Tells this observer what happens from now on, in place of the one before.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.scheduler.observe(observer);
    }

    /// One turn of the loop. `now` never goes back.
    ///
    /// `now` is the time of the step's head. What happens after the forward pass (a first token,
    /// an end) is stamped with it at once, so that whoever sees the token sees a time, and stamped
    /// again at the next step's head, which follows directly and is nearer the truth.
    pub fn step(&mut self, now: Instant) -> StepReport {
        self.time_last_step(now);
        let door = self.scheduler.take(now);
        self.scheduler.plan(now, door, &mut self.plan);
        let rows = self.plan.rows();
        if rows > 0 {
            self.computed_at = Some(now);
            self.inbox.stats.steps.fetch_add(1, Ordering::Relaxed);
            self.turn().run();
        }
        self.drafted = self.scheduler.drafted();
        let all_rows = rows + self.drafted;
        let stats = &self.inbox.stats;
        stats.rows.fetch_add(all_rows as u64, Ordering::Relaxed);
        self.scheduler.settle_phases();
        self.scheduler.publish();
        let next = self.next(rows, door);
        if cfg!(debug_assertions) || next == Next::Sleep {
            self.scheduler.check();
        }
        let (tokens, ended) = self.scheduler.done();
        self.tokens = tokens;
        StepReport {
            rows: all_rows,
            rows_prefill: rows - self.plan.decodes,
            tokens,
            ended,
            next,
        }
    }

    fn turn(&mut self) -> Turn<'_> {
        Turn {
            model: &mut *self.model,
            draft: self.draft.as_deref_mut(),
            scheduler: &mut self.scheduler,
            sampler: &mut self.sampler,
            batch: &mut self.batch,
            batched: &mut self.batched,
            plan: &self.plan,
            stats: &self.inbox.stats,
        }
    }

    fn next(&self, rows: usize, door: Door) -> Next {
        if rows > 0 {
            Next::Step
        } else if !self.scheduler.is_empty() {
            Next::Wait(self.scheduler.alarm(door.drain_deadline))
        } else if door.closed && self.inbox.queued() == 0 {
            Next::Leave
        } else {
            Next::Sleep
        }
    }

    fn time_last_step(&mut self, now: Instant) {
        if let Some(then) = self.computed_at.take() {
            let ns = now.saturating_duration_since(then).as_nanos() as u64;
            let facts = StepFacts {
                rows_prefill: self.plan.rows() - self.plan.decodes,
                rows_decode: self.plan.decodes,
                rows_draft: self.drafted,
                batch: self.plan.spans.len(),
                tokens: self.tokens,
                duration_ns: ns,
            };
            self.scheduler.learn(&facts);
            self.inbox
                .stats
                .step_ns_total
                .fetch_add(ns, Ordering::Relaxed);
            self.inbox.stats.step_ns_last.store(ns, Ordering::Relaxed);
        }
    }
}

impl Drop for Engine {
    /// Nobody will take requests any more: what is queued ends with `Lost`, what comes is refused.
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

impl Engine {
    /// Names the thread that handles wake.
    pub(crate) fn wake_this(&self, thread: std::thread::Thread) {
        self.inbox.wake_this(thread);
    }
}
