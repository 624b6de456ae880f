//! Generation programs: JSON documents that say what is prefilled, sampled, formatted and streamed, for
//! generation that is not "a prompt in, tokens out".
//!
//! ```text
//! document   JSON -> what stands in it          program   a compiled document: instructions, names, inputs
//! compile/   steps -> instructions, all faults  inputs    what a caller gives, checked and coerced
//! value      what a variable holds              vars      a run's variables
//! account    what values take, and may take      ops       ops that a Rust program adds
//! model      an engine, a tokenizer, a template session   a transcript, and the tokens that follow it
//! run/       the machine: one run of a program
//! ```
//!
//! A program is compiled whole: every fault is told, each with its step's path. A [`Run`] is then a machine
//! that is polled: it never waits, holds no thread and no lock, and asks the engine for tokens as any request
//! does. See docs/workflows.md for the language.
//!
//! # What a session is
//!
//! A session is a transcript: ids, and how many of them were given rather than sampled. Keys and values are
//! the engine's, found again by content; so rolling a session back is cutting its ids, and is exact. Sampling
//! asks the engine to continue the transcript. The engine's request runs ahead of the program by its credit
//! and no further, and is kept as long as the program goes where it went: a program that samples and forwards
//! what it sampled runs on one request, as fast as any. One that forwards something else, or samples with
//! other numbers, gets a new request whose draws are numbered as if it had been the old one
//! ([`engine::SamplingParams::answered`]). So a token depends on the transcript and the numbers alone: not on
//! windows, their size, or what was computed too far.

mod account;
mod compile;
mod document;
mod error;
mod expr;
mod inputs;
mod model;
mod ops;
mod program;
mod run;
mod session;
mod value;
mod vars;

pub use document::{DOCUMENT_BYTES_MAX, NESTING_MAX, STEPS_MAX, VARIABLES_MAX};
pub use error::{Fault, Faults};
pub use inputs::{Input, InputType};
pub use model::Model;
pub use ops::{Call, CustomOp, Field, NameTaken, Ops, Role};
pub use program::Program;
pub use run::{Event, Limits, Observer, Outcome, Plan, Run, Spent, Trouble, UNITS_PER_POLL};
pub use session::Session;
pub use value::{Kind, Value};
