//! From a permit to a run.

use super::drive::Drive;
use super::running::Running;
use crate::admission::Permit;
use crate::choice_reader::LogReaders;
use crate::clock;
use crate::error::{ApiError, Problem};
use crate::reading::Reading;
use crate::served::ServedModel;
use crate::streams::{self, ChoiceLog, Started, Streams, Work};
use engine::{Clocks, Policy, Terms, Token};
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Owner, Reader, Writer};
use workflow::{Faults, Limits, Plan, Run};

/// A program that was asked for, with what it was given.
pub(crate) struct Program {
    pub(crate) program: Arc<workflow::Program>,
    pub(crate) given: Map<String, Json>,
    /// Tokens it may tell.
    pub(crate) tokens_max: usize,
}

/// What a run is started with.
pub(crate) struct Launch<'a> {
    pub(crate) served: &'a ServedModel,
    pub(crate) streams: &'a Streams,
    pub(crate) deadline: Option<Instant>,
    pub(crate) terms: Terms,
    pub(crate) credit_window: u64,
    pub(crate) owner: Owner,
    pub(crate) retry_after: Duration,
}

impl Launch<'_> {
    /// Starts it. To be called inside a runtime.
    ///
    /// # Errors
    /// What it was given is not what it takes; there is no room for its log.
    pub(crate) fn start(
        self,
        program: &Program,
        permit: Permit,
        stream: &mut streams::Run,
    ) -> Result<Vec<LogReaders>, ApiError> {
        let run = self.run(program)?;
        let (log, tokens) = self.open_log(program.tokens_max)?;
        let pulse = permit.pulse();
        let entry = Arc::clone(stream.entry());
        let running = Arc::new(Running::default());
        let drive = Drive {
            run,
            log,
            running: Arc::clone(&running),
            work: Arc::new(Work::new(permit, &entry, self.streams.unread())),
            follower: entry.transitions().follower(0),
            credit_window: self.credit_window,
            alarm: None,
        };
        let choice = ChoiceLog {
            tokens: tokens.tap(),
            top: None,
            at_text_start: false,
            reading: Reading::default(),
            preface: None,
            prompt: None,
        };
        let started = Started {
            engine: self.served.engine.clone(),
            tokenizer: Arc::clone(&self.served.tokenizer),
            requests: Vec::new(),
            choices: vec![choice],
            prompt_tokens: 0,
            program: Some(running),
        };
        stream.start(started, pulse);
        tokio::spawn(drive.on());
        Ok(vec![LogReaders { tokens, top: None }])
    }

    fn run(&self, program: &Program) -> Result<Run, ApiError> {
        let served = self.served;
        let model = Arc::new(workflow::Model {
            engine: served.engine.clone(),
            tokens: served.token_pool.clone(),
            tokenizer: Arc::clone(&served.tokenizer),
            template: Some(Arc::clone(&served.template)),
            eos: Arc::clone(&served.eos),
            context_max: served.context_max,
        });
        let find = |id: Option<&str>| {
            let here = id.is_none_or(|id| id == served.id);
            here.then(|| Arc::clone(&model))
        };
        let plan = Plan {
            limits: Limits {
                tokens_max: program.tokens_max,
                ..Limits::default()
            },
            // What holds the program up is its own log's reader, whom the keeper watches.
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
        };
        let run = Run::new(&program.program, &program.given, find, plan, clock::now());
        run.map_err(|faults| refused(&faults))
    }

    /// Streams that have ended make room where there is none.
    fn open_log(&self, items: usize) -> Result<(Writer<Token>, Reader<Token>), ApiError> {
        loop {
            match stream::open(&self.served.token_pool, items) {
                Ok(log) => return Ok(log),
                Err(_) if self.streams.make_room(self.owner) => {}
                Err(_) => {
                    self.streams.unread().cut_oldest();
                    let words = "no room for another stream of this length";
                    return Err(ApiError::capacity("overloaded", words, self.retry_after));
                }
            }
        }
    }
}

fn refused(faults: &Faults) -> ApiError {
    let problem = |fault: &workflow::Fault| Problem::new(&fault.path, &fault.what);
    ApiError::fields(faults.0.iter().map(problem).collect())
}
