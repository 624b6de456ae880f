//! The engine: takes requests, plans a step, runs the model, applies the results. Its thread is the only place in this
//! crate that reads the clock or parks.
//!
//! # Devices that fail
//! After [`model::ForwardError::Device`] all pages and states are without content. The engine takes the pages of all
//! sequences as in a preemption, empties the prefix cache, and lets the model open the device again
//! ([`model::Forward::recover`]). The sequences then compute their tokens again and continue: no token is appended twice,
//! and none is lost. Where the device cannot be opened, or fails too often, started requests end with
//! [`stream::FailCode::Device`].

use crate::disk_cache::{DiskCache, DiskCacheConfig, DiskCacheError};
use crate::handle::HandleShared;
use crate::inbox::{Inbox, InboxState};
use crate::media::MediaAbilities;
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::scheduler::{Scheduler, StepCounters};
use crate::step_execution::{FinishedBatch, StepBuffers, StepExecution};
use crate::{ConfigError, EngineConfig, Handle, Observer, Stats, StepFacts};
use model::{DeviceFault, Forward};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};
use stream::FailCode;

/// Report of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Rows given to the model.
    pub rows: usize,
    /// Rows of prompts, or of tokens lost to a preemption.
    pub rows_prefill: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// Choices that ended.
    pub ended: usize,
    /// Next action of the loop.
    pub next: Next,
}

/// Action of the loop after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is work: step again at once.
    Step,
    /// All requests are parked: step again when woken (by a new request, a cancel, a
    /// pause, a resume, or a reader that returned credit or left), or at this time, when a clock runs out;
    /// at the latest after [`crate::WAIT_MAX`].
    Wait(Instant),
    /// There are no requests: sleep until woken.
    Sleep,
    /// The inbox is closed and everything has ended: leave the loop.
    Leave,
}

/// The engine: a model and the scheduler of the sequences. One owner calls [`Engine::step`].
pub struct Engine {
    inbox: Arc<Inbox>,
    handles: Weak<HandleShared>,
    model: Box<dyn Forward>,
    draft: Option<Box<dyn Forward>>,
    scheduler: Scheduler,
    sampler: Sampler,
    plan: Plan,
    buffers: StepBuffers,
    /// What the last step finished.
    finished: Option<FinishedBatch>,
    /// Head of the step since which the model computes what was not finished.
    busy_since: Option<Instant>,
    /// Counts of the last step.
    counters: StepCounters,
    recoveries: Recoveries,
}

impl Engine {
    /// An engine without requests. Times in [`crate::Progress`] count from `epoch`.
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

    /// An engine with a draft model, for [`crate::Speculation::Draft`]. A model with recurrent layers uses no draft model,
    /// and none may have such layers.
    ///
    /// # Errors
    /// As for [`Engine::new`], for both models; or their vocabularies differ in size.
    pub fn with_draft(
        model: Box<dyn Forward>,
        draft: Box<dyn Forward>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Result<Self, ConfigError> {
        Self::build(model, Some(draft), config, epoch)
    }

    fn build(
        mut model: Box<dyn Forward>,
        draft: Option<Box<dyn Forward>>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Result<Self, ConfigError> {
        let (dims, capabilities) = (model.dims(), model.capabilities());
        let states = capabilities.states;
        config.check(&dims)?;
        let (config, draft) = match states {
            0 => (config, draft),
            _ => (config.for_states(states)?, None),
        };
        let draft_dims = draft.as_ref().map(|draft| draft.dims());
        config.check_draft(&dims, draft_dims.as_ref())?;
        config.check_draft_states(
            draft
                .as_ref()
                .map_or(0, |draft| draft.capabilities().states),
        )?;
        config.check_mtp(model.mtp_head().is_some())?;
        if !capabilities.is_causal {
            config.check_whole_prompts(&dims)?;
        }
        let encoder = model.encoder().map(|encoder| encoder.dims());
        let mut inbox = Inbox::new(dims, draft_dims, config, epoch);
        inbox.hidden_dim = capabilities.hidden_dim;
        inbox.is_causal = capabilities.is_causal;
        inbox.states = states;
        inbox.adapters = capabilities.adapters;
        inbox.media = MediaAbilities {
            encoder,
            axes: capabilities.axes,
            blocks: model.blocks().is_some(),
        };
        let inbox = Arc::new(inbox);
        let runs_ahead = model.ahead().is_some();
        let scheduler = Scheduler::new(Arc::clone(&inbox));
        scheduler.publish_gauges();
        Ok(Self {
            inbox,
            handles: Weak::new(),
            model,
            draft,
            scheduler,
            sampler: Sampler::new(dims.vocab),
            plan: Plan::new(config.sequences_max),
            buffers: StepBuffers::new(config.sequences_max, runs_ahead),
            finished: None,
            busy_since: None,
            counters: StepCounters::default(),
            recoveries: Recoveries::default(),
        })
    }

    /// A handle for other threads. When all handles are dropped, the engine finishes all requests and stops.
    pub fn handle(&mut self) -> Handle {
        Handle::reuse_or_open(&mut self.handles, &self.inbox)
    }

    /// The engine's counters.
    pub fn stats(&self) -> &Stats {
        &self.inbox.stats
    }

    /// Keeps prefixes of prompts in a directory, and reads them back where that is faster than computing.
    /// Before the first step; blocks while the directory is listed.
    ///
    /// # Errors
    /// The model cannot have one, or the directory cannot be used; the engine then goes on without.
    pub fn cache_on_disk(&mut self, config: DiskCacheConfig) -> Result<(), DiskCacheError> {
        let pages = self.model.page_export();
        let page_bytes = pages.map_or(0, |pages| pages.page_bytes());
        let capabilities = self.model.capabilities();
        let unsupported = match &self.inbox.config {
            _ if capabilities.states > 0 => Some(
                "a model with recurrent layers goes on only from a state, and states are not kept on disk",
            ),
            _ if !capabilities.is_causal => Some("a text of an encoder is always computed"),
            config if !config.prefix_cache => Some("the prefix cache is off"),
            _ if page_bytes == 0 => Some("the model's pages cannot be copied out"),
            _ => None,
        };
        if let Some(why) = unsupported {
            return Err(DiskCacheError::Unsupported(why));
        }
        let waker = Waker::from(Arc::clone(&self.inbox));
        let disk = DiskCache::open(config, &self.inbox.dims, page_bytes, waker)?;
        self.scheduler.set_disk_cache(disk);
        Ok(())
    }

    /// Replaces the observer.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.scheduler.set_observer(observer);
    }

    /// Runs one step of the loop. `now` never decreases.
    ///
    /// `now` is the time of the step's head. An event after the forward pass (a first token,
    /// an end) is recorded with that time at once, so that a reader of the token finds a time, and again with
    /// the time of the next step's head, which follows directly and is more exact.
    pub fn step(&mut self, now: Instant) -> StepReport {
        self.time_last_step(now);
        let state = self.scheduler.begin_step(now);
        self.scheduler.exchange_with_disk(&mut *self.model);
        self.scheduler.plan_step(state, &mut self.plan);
        let rows = self.plan.rows();
        let has_units = self.scheduler.has_units();
        let has_work = rows > 0 || has_units || self.buffers.are_in_flight();
        if has_work {
            if rows > 0 || self.buffers.are_in_flight() {
                self.busy_since.get_or_insert(now);
            }
            // Before the pass, so that one that hangs is counted.
            let started = u64::from(rows > 0);
            self.inbox.stats.steps.fetch_add(started, Ordering::Relaxed);
            if self.execute_plan().is_err() {
                self.reopen_device(now);
            }
        }
        self.finished = self.buffers.take_finished();
        self.counters = self.scheduler.counters();
        let all_rows = rows + self.counters.draft_rows;
        let stats = &self.inbox.stats;
        stats.rows.fetch_add(all_rows as u64, Ordering::Relaxed);
        self.scheduler.publish_phases();
        self.scheduler.publish_gauges();
        let next = self.next_action(has_work, state);
        if cfg!(debug_assertions) || next == Next::Sleep {
            self.scheduler.check(self.buffers.are_in_flight());
        }
        StepReport {
            rows: all_rows,
            rows_prefill: rows - self.plan.decodes,
            tokens: self.counters.tokens,
            ended: self.counters.ended,
            next,
        }
    }

    /// Runs the model on the plan, samples tokens and applies them.
    fn execute_plan(&mut self) -> Result<(), DeviceFault> {
        let execution = StepExecution {
            model: &mut *self.model,
            draft: self.draft.as_deref_mut(),
            scheduler: &mut self.scheduler,
            sampler: &mut self.sampler,
            plan: &self.plan,
            buffers: &mut self.buffers,
            stats: &self.inbox.stats,
        };
        execution.run()
    }

    /// Opens the device again after it failed, if it has not failed too often; otherwise started requests end.
    fn reopen_device(&mut self, now: Instant) {
        self.inbox
            .stats
            .device_faults
            .fetch_add(1, Ordering::Relaxed);
        self.scheduler.lose_pages();
        self.buffers.lose_flights();
        self.busy_since = None;
        let is_open = self.recoveries.take(now) && self.recover_models();
        let is_lost = u64::from(!is_open);
        self.inbox
            .stats
            .device_lost
            .store(is_lost, Ordering::Relaxed);
        if !is_open {
            self.scheduler.fail_started(FailCode::Device);
        }
    }

    /// Opens the devices of the models again; false: not that of the model.
    fn recover_models(&mut self) -> bool {
        let open = |model: &mut Box<dyn Forward>| {
            let opened = catch_unwind(AssertUnwindSafe(|| model.recover()));
            matches!(opened, Ok(Ok(())))
        };
        // A draft model that cannot be opened costs draft tokens only.
        self.draft.as_mut().map(open);
        open(&mut self.model)
    }

    fn next_action(&self, has_work: bool, state: InboxState) -> Next {
        if has_work {
            Next::Step
        } else if !self.scheduler.is_empty() {
            Next::Wait(self.scheduler.next_alarm(state.drain_deadline))
        } else if state.closed && self.inbox.queued() == 0 {
            Next::Leave
        } else {
            Next::Sleep
        }
    }

    /// Measures what the last step finished. The model computed it since the head of that step, or since the one before where
    /// it began while the model was idle.
    fn time_last_step(&mut self, now: Instant) {
        let (Some(batch), Some(then)) = (self.finished.take(), self.busy_since) else {
            return;
        };
        self.busy_since = self.buffers.are_in_flight().then_some(now);
        let ns = now.saturating_duration_since(then).as_nanos() as u64;
        let facts = StepFacts {
            rows_prefill: batch.rows_prefill,
            rows_decode: batch.rows_decode,
            rows_draft: self.counters.draft_rows,
            batch: batch.sequences,
            tokens: self.counters.tokens,
            duration_ns: ns,
        };
        self.scheduler.record_step(&facts);
        let stats = &self.inbox.stats;
        let rows = batch.rows_prefill + batch.rows_decode;
        let of_rows = self.scheduler.without_units(ns);
        let decode_ns = of_rows / rows.max(1) as u64 * batch.rows_decode as u64;
        stats
            .decode_ns_total
            .fetch_add(decode_ns, Ordering::Relaxed);
        stats.step_ns_total.fetch_add(ns, Ordering::Relaxed);
        stats.step_ns_last.store(ns, Ordering::Relaxed);
    }

    /// Sets the thread that handles wake.
    pub(crate) fn set_thread(&self, thread: std::thread::Thread) {
        self.inbox.set_thread(thread);
    }
}

impl Drop for Engine {
    /// Queued requests end with `Lost`, later ones are rejected.
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

/// Waits for the engine thread. Dropping the value detaches the thread.
pub struct EngineThread {
    thread: std::thread::JoinHandle<()>,
}

/// The engine thread panicked, which is a bug; the engine's streams ended with `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnginePanicked;

impl EngineThread {
    /// Waits until the engine has left (after `Handle::shutdown`, or after the last handle's drop).
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(self) -> Result<(), EnginePanicked> {
        self.thread.join().map_err(|_| EnginePanicked)
    }

    /// Whether [`EngineThread::join`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Runs the engine on a new thread, named `engine`.
///
/// The thread parks while there is no work. Every call of a handle wakes the thread, and so does a reader that
/// returns credit or leaves; clocks that run meanwhile limit the park.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn(mut engine: Engine) -> std::io::Result<(Handle, EngineThread)> {
    let handle = engine.handle();
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || run_loop(engine))?;
    // Set before a caller has the handle: a call of the handle before the thread's own first line would wake nothing. The
    // wake is for calls of handles that were there before.
    handle.set_thread(thread.thread().clone());
    thread.thread().unpark();
    Ok((handle, EngineThread { thread }))
}

fn run_loop(mut engine: Engine) {
    engine.set_thread(std::thread::current());
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "the engine loop's head: one of the two places"
        )]
        let now = Instant::now();
        match engine.step(now).next {
            Next::Step => {}
            Next::Wait(until) => std::thread::park_timeout(until.saturating_duration_since(now)),
            Next::Sleep => std::thread::park(),
            Next::Leave => return,
        }
    }
}

/// Times that a device is opened again within [`RECOVERY_TIME`]: one that fails more often is broken.
const RECOVERIES_MAX: usize = 2;

/// See [`RECOVERIES_MAX`].
const RECOVERY_TIME: Duration = Duration::from_mins(10);

/// The last times at which the device was opened again.
#[derive(Default)]
pub(crate) struct Recoveries {
    /// Oldest first.
    last: [Option<Instant>; RECOVERIES_MAX],
}

impl Recoveries {
    /// Whether the device may be opened again now; counts the attempt.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let oldest = self.last[0];
        let is_recent =
            oldest.is_some_and(|then| now.saturating_duration_since(then) < RECOVERY_TIME);
        if !is_recent {
            self.last.rotate_left(1);
            self.last[RECOVERIES_MAX - 1] = Some(now);
        }
        !is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;
    use crate::fake::{FakeConfig, FakeModel};

    #[test]
    fn handle_wakes_the_thread_as_soon_as_there_is_a_handle() {
        let model = Box::new(FakeModel::new(FakeConfig::default()));
        #[expect(clippy::disallowed_methods, reason = "a real thread")]
        let now = Instant::now();
        let engine = Engine::new(model, EngineConfig::default(), now).expect("valid");
        let (handle, thread) = spawn(engine).expect("a thread");
        assert_eq!(handle.woken_thread(), Some(thread.thread.thread().id()));
        handle.shutdown(now);
        thread.join().expect("no panic");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
    fn device_is_opened_twice_in_ten_minutes() {
        let start = Instant::now();
        let mut recoveries = Recoveries::default();
        // (minutes, whether the device may be opened)
        let rows = [
            (0, true),
            (3, true),
            (4, false),
            (9, false),
            (10, true),
            (12, false),
            (13, true),
        ];
        for (minutes, is_allowed) in rows {
            let now = start + Duration::from_mins(minutes);
            assert_eq!(recoveries.take(now), is_allowed, "minute {minutes}");
        }
    }
}
