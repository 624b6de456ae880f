//! Stop strings with hold-back. (Stub: signatures only.)

/// A stop string was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopHit {
    /// Its index in the list given to [`StopMatcher::new`].
    pub index: u16,
}

/// Finds the first stop string in a text that comes in pieces; a text that may turn out to be the
/// beginning of one is held back, never leaked, and given when it does not complete.
pub struct StopMatcher {}

impl StopMatcher {
    /// Empty stop strings are ignored.
    pub fn new<S: AsRef<str>>(_stops: &[S]) -> Self {
        todo!()
    }
    /// Takes the next piece; appends to `out` what is certainly not part of a stop string. After a
    /// hit nothing more is given. The earliest-ending match wins; of those that end together, the
    /// longest; the text before the match is given, the match itself never.
    pub fn push(&mut self, _piece: &str, _out: &mut String) -> Option<StopHit> {
        todo!()
    }
    /// The text is over without a hit: gives what was held back.
    pub fn finish(&mut self, _out: &mut String) {
        todo!()
    }
}
