//! `millrace doctor`: what on this machine prevents serving with these settings, and what would make it faster. Files of
//! `/proc` and `/sys` are read, and a port is bound for a moment; nothing is changed and no privilege is needed.
//!
//! ```text
//! compute   processor and memory, compared with the settings     device   GPUs, and the report on one
//! serving   files, port and directories
//! ```

mod compute;
mod device;
mod serving;
#[cfg(test)]
mod tests;

use crate::args::DoctorArgs;
use crate::failure::Failure;
use compute::Machine;
use std::fmt;
use std::io::Write;

/// Prints a line for each examined subject, with advice below where there is some.
///
/// # Errors
/// The settings are invalid, or something prevents serving with them.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    let settings = args.serve.settings()?.settings;
    if args.report {
        return device::report(&settings);
    }
    let machine = Machine::this();
    let mut findings = compute::findings(&machine, &settings);
    findings.extend(device::findings(&settings));
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

/// Columns of the verdict and of the subject.
const VERDICT_COLUMNS: usize = 8;
const SUBJECT_COLUMNS: usize = 16;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Serving works, and would be faster or safer otherwise.
    Better,
    /// Serving with these settings fails.
    Wrong,
}

/// What was found about a subject, and what to do.
#[derive(Debug)]
struct Finding {
    verdict: Verdict,
    subject: &'static str,
    found: String,
    /// What to do; empty of a good finding.
    advice: String,
}

impl Finding {
    fn good(subject: &'static str, found: impl fmt::Display) -> Self {
        Self {
            verdict: Verdict::Good,
            subject,
            found: found.to_string(),
            advice: String::new(),
        }
    }

    /// This finding with advice, which does not prevent serving.
    fn better(self, advice: impl fmt::Display) -> Self {
        self.with(Verdict::Better, &advice)
    }

    /// This finding as one that prevents serving.
    fn wrong(self, advice: impl fmt::Display) -> Self {
        self.with(Verdict::Wrong, &advice)
    }

    fn with(self, verdict: Verdict, advice: &dyn fmt::Display) -> Self {
        Self {
            verdict,
            advice: advice.to_string(),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Better => "better",
            Verdict::Wrong => "WRONG",
        };
        let (subject, found) = (self.subject, &self.found);
        writeln!(
            f,
            "{verdict:<VERDICT_COLUMNS$}{subject:<SUBJECT_COLUMNS$}{found}"
        )?;
        let width = VERDICT_COLUMNS + SUBJECT_COLUMNS;
        for line in self.advice.lines() {
            writeln!(f, "{:width$}{}", "", line.trim_start())?;
        }
        Ok(())
    }
}
