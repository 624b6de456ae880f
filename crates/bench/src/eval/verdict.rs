//! Outcome of one case.

/// Outcome of one case.
pub(super) struct Verdict {
    pub(super) skill: String,
    pub(super) question: String,
    pub(super) outcome: Result<(), String>,
}
