//! Counts of the current step.

/// Counts since the step's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepCounters {
    /// Tokens appended to logs.
    pub(crate) tokens: usize,
    /// Rows of draft tokens and forced tokens.
    pub(crate) draft_rows: usize,
    /// Choices that ended.
    pub(crate) ended: usize,
}
