//! From a permit to a run.

use super::run_driver::{RunDriver, RunSlot};
use crate::models::{ModelTask, ServedModel};
use crate::streams::run_control::RunControl;
use crate::streams::{self, ChoiceLog, PermitHolder, Started, StartedGeneration, StreamRegistry};
use admission::Permit;
use engine::{Clocks, Policy, Terms};
use generate::error::{ApiError, Problem};
use generate::output::choice_reader::LogReaders;
use generate::output::parser_config::ParserConfig;
use generate::submit::{SubmissionHost, open_log};
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::Owner;
use wire::clock;
use workflow::{Faults, Limits, Plan, Run, Spent};

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
                PermitHolder::new(permit, &record, self.streams.undelivered_streams()),
                running.waker(),
            )),
            follower: record.transitions().engine_follower(0),
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
