//! The outcome of one case.

/// What came of one case.
pub(super) struct Verdict {
    pub(super) skill: String,
    pub(super) question: String,
    pub(super) outcome: Result<(), String>,
}
