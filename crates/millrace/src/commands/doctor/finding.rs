//! One line of the report.

use std::fmt;

/// Columns of the verdict and of the subject.
const VERDICT_COLUMNS: usize = 8;
const SUBJECT_COLUMNS: usize = 16;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// Serving works, and would be faster or safer otherwise.
    Better,
    /// Serving with these settings fails.
    Wrong,
}

/// What was found about a subject, and what to do.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) subject: &'static str,
    found: String,
    /// What to do; empty of a good finding.
    advice: String,
}

impl Finding {
    pub(super) fn good(subject: &'static str, found: impl fmt::Display) -> Self {
        Self {
            verdict: Verdict::Good,
            subject,
            found: found.to_string(),
            advice: String::new(),
        }
    }

    /// This finding with advice, which does not prevent serving.
    pub(super) fn better(self, advice: impl fmt::Display) -> Self {
        self.with(Verdict::Better, &advice)
    }

    /// This finding as one that prevents serving.
    pub(super) fn wrong(self, advice: impl fmt::Display) -> Self {
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
