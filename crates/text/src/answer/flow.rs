//! What a machine that reads a call says of a character.

/// Whether a machine wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It took the character and wants another.
    More,
    /// It took the character, and is done.
    Done,
    /// It was done before this character, which is the next reader's.
    DoneBefore,
    /// This character cannot stand here, and was not taken.
    Fail,
}
