//! Generation programs: JSON documents that define what is prefilled, sampled, formatted and streamed, for
//! generation that is not "a prompt in, tokens out".
//!
//! ```text
//! document   JSON and the head                   program   a compiled document: instructions, names, inputs
//! compile/   steps -> instructions, all errors   inputs    the caller's values, checked and coerced
//! value      the values of variables             vars      a run's variables
//! account    memory of values, with a bound      ops       ops added by a Rust program
//! model      a loaded model                      session   a transcript, and the tokens that follow
//! run/       the machine: one run of a program
//! ```
//!
//! A document is compiled as a whole: all errors are reported, each with the path of a step. A [`Run`] is then a state machine
//! that is polled: a run never waits, holds no thread and no lock, and requests tokens from the engine like any other
//! caller. See docs/workflows.md for the language.
//!
//! # Sessions
//!
//! A session is a transcript: ids, and how many of them were given rather than sampled. Keys and values are in
//! the engine, found again by content; so rolling a session back truncates the ids, and is exact. Sampling
//! requests a continuation of the transcript. The engine's request runs ahead of the program by the credit
//! and no further, and is kept as long as the program follows the sampled tokens: a program that samples and forwards
//! the sampled tokens runs on one request, without extra cost. One that forwards other tokens, or samples with
//! other parameters, gets a new request whose random numbers continue those of the old one
//! ([`engine::SamplingParams::answered`]). So a token depends on the transcript and the parameters alone: not on
//! windows, their size, or tokens that were computed ahead.

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
