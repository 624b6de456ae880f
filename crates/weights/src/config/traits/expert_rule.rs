//! Whether a family has experts.

/// Whether the feed-forward part may consist of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertRule {
    /// No.
    Never,
    /// Yes.
    Allowed {
        /// No other feed-forward part is known.
        required: bool,
        /// Whether the shares of the chosen experts add up to 1.
        normalized: bool,
        /// Whether an expert that each row uses may be beside them.
        shared: bool,
    },
    /// Yes; keys say in which layers, how a row chooses, and how many experts each row uses.
    ByKeys,
}

/// Experts with these properties of [`ExpertRule::Allowed`].
pub(super) const fn experts(required: bool, normalized: bool, shared: bool) -> ExpertRule {
    ExpertRule::Allowed {
        required,
        normalized,
        shared,
    }
}
