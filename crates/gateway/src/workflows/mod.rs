//! Workflow runs: a run of a program is a stream.
//!
//! ```text
//! folder  documents by name     launch  from a permit to a run, and its output into a log
//! ```
//!
//! A run has a permit, an id in the registry, a log and a detached driver, as a resumable job has; but `run_driver`
//! writes the log in place of the engine. So clients read, resume, pause, cancel and acknowledge a run as any stream.
//! The run's requests to the engine belong to the caller's tenant. Credit limits the run at its log: a program with a
//! slow reader is not polled, and the program's requests in the engine are parked by their own small windows.

pub mod folder;
pub mod launch;

pub(crate) use launch::{Program, RunLauncher};
