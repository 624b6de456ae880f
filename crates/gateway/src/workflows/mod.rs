//! Workflows over HTTP: a run of a program is a stream like any other.
//!
//! ```text
//! folder   documents by name           launch   from a permit to a run
//! running  a run, seen from outside    drive    polls it, and writes what it tells into a log
//! routes   the API                     run_slot  its place, while it goes on
//! ```
//!
//! A run has a permit, a name in the registry, a log, and a keeper, as a resumable job has; only that its log
//! is written by [`drive`] instead of the engine. So whoever reads, resumes, pauses, cancels or acknowledges
//! it does so as with any stream. What it asks of the engine are requests of its caller's account.
//! Credit holds it up where it writes its log: a program whose reader is slow is not polled, and what it has
//! under way in the engine is parked by its own small window.

pub mod folder;
pub mod launch;
pub mod run_control;
pub(crate) mod run_driver;
pub(crate) mod run_slot;

pub(crate) use launch::{Program, RunLauncher};
pub(crate) use run_control::RunControl;
