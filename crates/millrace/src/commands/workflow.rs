//! `millrace run --workflow`: a generation program on the terminal.

use crate::args::{Output, ProgramArgs};
use crate::clock::{now, now_unix_s};
use crate::failure::Failure;
use crate::generation::thread_waker;
use crate::loading::LoadedEngine;
use serde_json::{Map, Value as Json, json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use stream::{End, Stop};
use text::Decoder;
use workflow::{
    DOCUMENT_BYTES_MAX, Event, Model, Observer, Ops, Outcome, Plan, Program, Run, Value,
};

/// Variable: write every step of an instruction.
const DEBUG_OPS: &str = "MILLRACE_DEBUG_WORKFLOW_OPS";
/// Variable: write every window of tokens that is read.
const DEBUG_POLL: &str = "MILLRACE_DEBUG_STREAM_POLL";

/// Reads and compiles a document.
pub(crate) fn compile(path: &Path) -> Result<Arc<Program>, Failure> {
    let named = |why: &dyn std::fmt::Display| Failure::user(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|why| named(&why))?.len();
    if size > DOCUMENT_BYTES_MAX as u64 {
        return Err(named(&format!(
            "has {size} bytes; at most {DOCUMENT_BYTES_MAX}"
        )));
    }
    let document = std::fs::read(path).map_err(|why| named(&why))?;
    let program = Program::compile(&document, &Ops::default()).map_err(|faults| {
        let faults = faults.0.iter().map(|fault| format!("\n  {fault}"));
        named(&faults.collect::<String>())
    })?;
    Ok(Arc::new(program))
}

/// Runs a program on a model and writes the output.
pub(crate) fn run(
    loaded: &LoadedEngine,
    program: &Arc<Program>,
    args: &ProgramArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let given: Map<String, Json> = args
        .kwarg
        .iter()
        .map(|(name, text)| (name.clone(), program.read(name, text)))
        .collect();
    let model = Arc::new(Model {
        handle: loaded.handle.clone(),
        pooling: loaded.facts.pooling,
    });
    let find = |id: Option<&str>| {
        let here = id.is_none_or(|id| id == loaded.name);
        here.then(|| Arc::clone(&model))
    };
    let plan = Plan {
        limits: workflow::Limits {
            tokens_max: loaded.handle.context_max,
            ..workflow::Limits::default()
        },
        now_unix_s: now_unix_s(),
        ..Plan::default()
    };
    let run = Run::new(program, &given, find, plan, now()).map_err(Failure::user)?;
    let mut told = WrittenOutput::new(loaded, args.output);
    let outcome = poll_to_end(run, &mut told, out)?;
    told.finish(&outcome, out)?;
    match (outcome.end, outcome.fault) {
        (_, Some(fault)) => Err(Failure::user(fault)),
        (End::Stop(_) | End::Length, None) => Ok(()),
        (end, None) => Err(Failure::bug(format!("the program ended with {end:?}"))),
    }
}

/// Polls the run to the end, and parks the thread while the run is pending.
fn poll_to_end(
    mut run: Run,
    told: &mut WrittenOutput,
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    let debug = StepTrace {
        ops: is_set(DEBUG_OPS),
        drains: is_set(DEBUG_POLL),
    };
    if debug.ops || debug.drains {
        run.observe(Box::new(debug));
    }
    let waker = thread_waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        match run.poll(&mut cx, now()) {
            Poll::Ready(Some(Event::Token { id, .. })) => told.write_token(id, out)?,
            // A terminal has no input events: a program that waits for one gets an error.
            Poll::Ready(Some(Event::Opened { .. } | Event::Rest)) => {}
            Poll::Ready(Some(Event::Heavy)) => run.labour(),
            Poll::Ready(Some(Event::Ended(outcome))) => return Ok(outcome),
            Poll::Ready(None) => return Err(Failure::bug("the program ended twice")),
            Poll::Pending => match run.alarm() {
                Some(at) => thread::park_timeout(at.saturating_duration_since(now())),
                None => thread::park(),
            },
        }
    }
}

/// The output so far.
struct WrittenOutput {
    output: Output,
    decoder: Decoder,
    piece: String,
    tokens: Vec<u32>,
}

impl WrittenOutput {
    fn new(loaded: &LoadedEngine, output: Output) -> Self {
        Self {
            output,
            decoder: Decoder::new(Arc::clone(&loaded.handle.tokenizer), false),
            piece: String::new(),
            tokens: Vec::new(),
        }
    }

    fn write_token(&mut self, id: u32, out: &mut impl Write) -> Result<(), Failure> {
        self.tokens.push(id);
        if self.output == Output::Text {
            self.piece.clear();
            self.decoder.push(id, &mut self.piece);
            out.write_all(self.piece.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome, out: &mut impl Write) -> Result<(), Failure> {
        match self.output {
            Output::None => {}
            Output::Json => {
                let object = json!({
                    "end": end_name(outcome.end),
                    "value": outcome.value.as_ref().map(Value::to_json),
                    "tokens": self.tokens,
                    "fault": outcome.fault.as_ref().map(ToString::to_string),
                });
                writeln!(out, "{object}")?;
            }
            Output::Text => {
                self.piece.clear();
                self.decoder.finish(&mut self.piece);
                if self.tokens.is_empty() {
                    match &outcome.value {
                        Some(Value::Text(text)) => self.piece.push_str(text),
                        Some(value) => self.piece.push_str(&value.to_json().to_string()),
                        None => {}
                    }
                }
                writeln!(out, "{}", self.piece)?;
            }
        }
        Ok(())
    }
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Stop(Stop::Eos | Stop::StopString(_) | Stop::ToolCalls) => "stop",
        End::Length => "length",
        End::Cancelled => "cancelled",
        End::Deadline => "deadline",
        End::TimedOut(_) => "timed_out",
        End::Failed(_) => "failed",
        End::Lost => "lost",
    }
}

/// Writes the steps of a run, to debug a program.
struct StepTrace {
    ops: bool,
    drains: bool,
}

#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
impl Observer for StepTrace {
    fn op(&mut self, place: &str) {
        if self.ops {
            eprintln!("op {place}");
        }
    }

    fn drain(&mut self, place: &str, tokens: usize) {
        if self.drains {
            eprintln!("drain {place}: {tokens}");
        }
    }
}
