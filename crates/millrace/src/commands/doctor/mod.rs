//! `millrace doctor`: what on this machine prevents serving with these settings, and what would make it faster. Files of
//! `/proc` and `/sys` are read, and a port is bound for a moment; nothing is changed and no privilege is needed.
//!
//! ```text
//! machine   what the kernel says of memory, processors and limits      finding   one line of the report
//! compute   processor and memory beside the settings                   serving   files, port and directories
//! ```

mod compute;
mod finding;
mod machine;
mod serving;
#[cfg(test)]
mod tests;

use crate::args::ServeArgs;
use crate::failure::Failure;
use finding::{Finding, Verdict};
use machine::Machine;
use std::io::Write;

/// Prints a line for each examined subject, with advice below where there is some.
///
/// # Errors
/// The settings are invalid, or something prevents serving with them.
pub(crate) fn doctor(args: &ServeArgs) -> Result<(), Failure> {
    let settings = args.settings()?.settings;
    let machine = Machine::this();
    let mut findings = compute::findings(&machine, &settings);
    findings.extend(serving::findings(&machine, &settings));
    let mut out = std::io::stdout().lock();
    for finding in &findings {
        write!(out, "{finding}")?;
    }
    let wrong = |finding: &&Finding| finding.verdict == Verdict::Wrong;
    match findings.iter().filter(wrong).count() {
        0 => Ok(()),
        count => Err(Failure::user(format!(
            "{count} of {} findings prevent serving with these settings",
            findings.len()
        ))),
    }
}
