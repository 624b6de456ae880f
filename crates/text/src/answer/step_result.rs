//! Result of one step of a call parser.

/// Whether a parser accepts further characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// The parser consumed the character and expects more.
    More,
    /// The parser consumed the character and is finished.
    Done,
    /// The parser was finished before the character, which is left for the caller.
    DoneBefore,
    /// The character is invalid here and was not consumed.
    Fail,
}
