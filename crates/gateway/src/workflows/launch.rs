//! From a permit to a run.
//!
//! Polls a run, and writes its output into the stream's log.
//!
//! One task per run. A run is not polled while paused, while the log is a window ahead of the reader, and without a
//! slot ([`RunSlot`]); control calls wake the task. Each poll does a bounded piece of work and then yields; a step
//! that is too long for that runs on a blocking thread.
//!
//! The slot of a run: returned while the run is parked, requested again to continue.
//!
//! As for the engine's sequences ([`engine::SequencePermits`]): a paused run returns the slot at once, a run that
//! waits for the reader after [`PERMIT_KEPT`]. Requests of the run in the engine then continue to the end of their
//! windows.

use crate::keys::TokenCharge;
use crate::models::{ModelTask, ServedModel};
use crate::streams::run_control::RunControl;
use crate::streams::{self, ChoiceLog, PermitHolder, Started, StartedGeneration, StreamRegistry};
use admission::Permit;
use engine::{Clocks, Follower, PERMIT_KEPT, Policy, Terms, Token, Transition};
use generate::error::{ApiError, Problem};
use generate::output::choice_reader::LogReaders;
use generate::output::parser_config::ParserConfig;
use generate::submit::{SubmissionHost, open_log};
use serde_json::{Map, Value as Json};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use stream::{End, FailCode, Owner, Writer};
use tokio::task::spawn_blocking;
use tokio::time::{Sleep, sleep, sleep_until};
use wire::clock;
use workflow::{Event, Faults, Limits, Outcome, Plan, Run, Spent, Value};

/// A program to be run, and the inputs.
pub struct Program {
    /// The compiled program.
    pub program: Arc<workflow::Program>,
    /// Inputs of the run, by name.
    pub given: Map<String, Json>,
    /// Most tokens of the output.
    pub tokens_max: usize,
}

impl Program {
    /// A run that has not begun. Takes time by the length of the inputs.
    ///
    /// # Errors
    /// The inputs do not match the program's.
    pub(crate) fn prepare_run(&self, served: &ServedModel, plan: Plan) -> Result<Run, ApiError> {
        let model = Arc::new(workflow::Model {
            handle: served.handle.clone(),
            pooling: served
                .facts
                .pooling
                .filter(|_| served.facts.task != ModelTask::Ranking),
        });
        let find = |id: Option<&str>| {
            let here = id.is_none_or(|id| id == served.id);
            here.then(|| Arc::clone(&model))
        };
        let run = Run::new(&self.program, &self.given, find, plan, clock::now());
        run.map_err(|faults| input_errors(&faults))
    }
}

/// Options of a new run.
pub(crate) struct RunLauncher<'a> {
    pub(crate) served: &'a ServedModel,
    pub(crate) streams: &'a StreamRegistry,
    pub(crate) deadline: Option<Instant>,
    pub(crate) terms: Terms,
    pub(crate) credit_window: u64,
    pub(crate) owner: Owner,
    pub(crate) retry_after: Duration,
    /// Bytes of input that are handled on an I/O thread.
    pub(crate) inline_bytes_max: usize,
}

impl RunLauncher<'_> {
    /// Starts a run, with a log for so many tokens. To be called inside a runtime.
    ///
    /// # Errors
    /// The segment pool is full.
    pub(crate) fn start_run(
        self,
        run: Run,
        tokens_max: usize,
        permit: Permit,
        stream: &mut streams::StreamRun,
    ) -> Result<Vec<LogReaders>, ApiError> {
        let pool = &self.served.handle.token_pool;
        let (log, tokens) = open_log(pool, tokens_max, &self, self.retry_after)?;
        let reporter = permit.latency_reporter();
        let record = Arc::clone(stream.record());
        let running = Arc::new(RunControl::default());
        let drive = RunDriver {
            run,
            log,
            running: Arc::clone(&running),
            place: Some(RunSlot::new(
                PermitHolder::new(permit, &record, &self.streams.undelivered),
                running.waker(),
            )),
            follower: record.transitions.engine_follower(0),
            credit_window: self.credit_window,
            alarm: None,
            token_charge: stream.key().token_charge(),
            charged: Spent::default(),
            inline_bytes_max: self.inline_bytes_max,
        };
        let choice = ChoiceLog {
            echoed: 0,
            tokens: tokens.tap(),
            gate: None,
            top: None,
            at_text_start: false,
            reading: ParserConfig::default(),
            echo_text: None,
            prompt: None,
        };
        let started = Started {
            generation: StartedGeneration {
                image_tokens: 0,
                described: None,
                engine: self.served.handle.engine.clone(),
                tokenizer: Arc::clone(&self.served.handle.tokenizer),
                requests: Vec::new(),
                choices: vec![choice],
                prompt_tokens: 0,
                resumed: None,
            },
            program: Some(running),
        };
        stream.start_stream(started, reporter);
        tokio::spawn(drive.run_to_end());
        Ok(vec![LogReaders { tokens, top: None }])
    }

    /// Limits and terms of a run that may write so many tokens.
    pub(crate) fn run_plan(&self, tokens_max: usize) -> Plan {
        Plan {
            limits: Limits {
                tokens_max,
                inline_bytes_max: self.inline_bytes_max,
                ..Limits::default()
            },
            // The program waits only for the reader of the run's log, which the detached driver watches.
            terms: Terms {
                policy: Policy::Keep,
                clocks: Clocks {
                    reader: None,
                    ..self.terms.clocks
                },
                ..self.terms
            },
            deadline: self.deadline,
            now_unix_s: clock::unix_s(),
        }
    }
}

/// Removes ended streams, so that the log of a program can use their segments.
impl SubmissionHost for RunLauncher<'_> {
    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.owner)
    }
}

fn input_errors(faults: &Faults) -> ApiError {
    let problem = |fault: &workflow::Fault| Problem::new(&fault.path, &fault.what);
    ApiError::fields(faults.0.iter().map(problem).collect())
}

/// A run in progress.
pub(crate) struct RunDriver {
    pub(crate) run: Run,
    pub(crate) log: Writer<Token>,
    pub(crate) running: Arc<RunControl>,
    /// The run's permit and slot, while the run works.
    pub(crate) place: Option<RunSlot>,
    pub(crate) follower: Box<dyn Follower>,
    /// Tokens that the log may be ahead of the reader; 0 = no limit.
    pub(crate) credit_window: u64,
    pub(crate) alarm: Option<Pin<Box<Sleep>>>,
    /// Key that the tokens are charged to.
    pub(crate) token_charge: TokenCharge,
    /// Work that was charged.
    pub(crate) charged: Spent,
    /// Bytes of input that are handled on an I/O thread.
    pub(crate) inline_bytes_max: usize,
}

impl RunDriver {
    /// Runs to the end.
    pub(crate) async fn run_to_end(mut self) {
        self.log.wake_on_credit(self.running.waker());
        self.follower.transition(Transition::Started, clock::now());
        let running = Arc::clone(&self.running);
        let end = loop {
            if running.is_cancelled() || self.log.is_abandoned() {
                self.run.stop();
            }
            let event = tokio::select! {
                biased;
                () = running.wait_for_change() => continue,
                event = poll_fn(|cx| self.poll_run(cx)) => event,
            };
            match event {
                Some(Event::Token { id, .. }) => self.write_token(id),
                Some(Event::Opened { channel, writer }) => running.channel_opened(channel, writer),
                Some(Event::Rest) => tokio::task::yield_now().await,
                Some(Event::Heavy) => {
                    let Some((drive, failed)) = self.run_long_step().await else {
                        return; // the server is leaving
                    };
                    self = drive;
                    if failed {
                        break End::Failed(FailCode::Panic);
                    }
                }
                Some(Event::Ended(outcome)) => {
                    let end = outcome.end;
                    store_result(running, outcome, self.inline_bytes_max).await;
                    break end;
                }
                None => break End::Lost,
            }
        };
        self.finish_run(end);
    }

    /// Has the step that is at hand done elsewhere; whether that panicked.
    async fn run_long_step(mut self) -> Option<(Self, bool)> {
        let done = spawn_blocking(move || {
            let done = catch_unwind(AssertUnwindSafe(|| self.run.labour()));
            (self, done.is_err())
        });
        done.await.ok()
    }

    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let stopped = self.running.is_cancelled() || self.log.is_abandoned();
        if !stopped {
            let paused = self.running.is_paused().then_some(RunParkReason::Paused);
            let credit = || self.is_out_of_credit().then_some(RunParkReason::Credit);
            let still = paused.or_else(credit);
            let place = self.place.as_mut();
            let waits = place.is_some_and(|place| place.poll_slot(cx, still).is_pending());
            if waits || still.is_some() {
                return Poll::Pending; // the waker_target is rung when that changes
            }
        }
        let event = self.run.poll(cx, clock::now());
        self.charge_tokens();
        self.alarm = self.run.alarm().map(|at| {
            let mut alarm = Box::pin(sleep_until(at.into()));
            if alarm.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            alarm
        });
        event
    }

    /// Charges the work since the last call.
    fn charge_tokens(&mut self) {
        let spent = self.run.spent();
        let sum = |spent: Spent| spent.prompt_tokens + spent.drawn_tokens;
        let more = sum(spent) - sum(self.charged);
        if more > 0 {
            self.charged = spent;
            self.token_charge.charge(more, clock::now());
        }
    }

    fn is_out_of_credit(&self) -> bool {
        self.credit_window > 0 && self.log.unaccepted() >= self.credit_window
    }

    /// The log has capacity for all tokens of the run.
    fn write_token(&mut self, id: u32) {
        let token = Token {
            id,
            logprob: f32::NAN,
        };
        if self.log.append(token).is_err() {
            self.run.stop();
        }
    }

    /// The permit is released before the end is visible.
    fn finish_run(self, end: End) {
        drop((self.run, self.place));
        self.follower
            .transition(Transition::Ended(end), clock::now());
        self.log.finish(end);
    }
}

/// Stores the result of a run; long values on a blocking thread.
async fn store_result(running: Arc<RunControl>, outcome: Outcome, inline_bytes_max: usize) {
    let bytes = outcome.value.as_ref().map_or(0, Value::bytes);
    if bytes <= inline_bytes_max {
        return running.set_result(&outcome);
    }
    // The closure cannot fail.
    let _ = spawn_blocking(move || running.set_result(&outcome)).await;
}

/// Why a run is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunParkReason {
    Paused,
    Credit,
}

/// The slot of one run, and the permit.
pub(crate) struct RunSlot {
    work: PermitHolder,
    state: SlotState,
}

enum SlotState {
    None,
    Wanted,
    Held,
    /// The run waits for the reader and keeps the slot until this time.
    Kept(Pin<Box<Sleep>>),
}

impl RunSlot {
    /// The slot of a new run. `waker` is woken by a grant.
    pub(crate) fn new(work: PermitHolder, waker: Waker) -> Self {
        work.permit().wake_on_slot(waker);
        Self {
            work,
            state: SlotState::None,
        }
    }

    /// Ready when a run that is not parked has a slot; pending when parked.
    fn poll_slot(&mut self, cx: &mut Context<'_>, still: Option<RunParkReason>) -> Poll<()> {
        let permit = self.work.permit();
        match (still, &mut self.state) {
            (None, SlotState::Held | SlotState::Kept(_)) => self.state = SlotState::Held,
            (None, SlotState::None | SlotState::Wanted) => {
                if matches!(self.state, SlotState::None) {
                    permit.request_slot();
                }
                self.state = if permit.take_slot() {
                    SlotState::Held
                } else {
                    SlotState::Wanted
                };
            }
            (Some(RunParkReason::Credit), SlotState::Held) => {
                self.state = SlotState::Kept(Box::pin(sleep(PERMIT_KEPT)));
                return self.poll_slot(cx, still);
            }
            (Some(RunParkReason::Credit), SlotState::Kept(until)) => {
                if until.as_mut().poll(cx).is_ready() {
                    self.return_slot();
                }
            }
            (Some(_), _) => self.return_slot(),
        }
        match (still, &self.state) {
            (None, SlotState::Held) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    fn return_slot(&mut self) {
        match std::mem::replace(&mut self.state, SlotState::None) {
            SlotState::None => {}
            SlotState::Wanted => self.work.permit().cancel_slot_request(),
            SlotState::Held | SlotState::Kept(_) => self.work.permit().return_slot(false),
        }
    }
}

#[cfg(test)]
#[path = "run_driver_tests.rs"]
mod tests;
