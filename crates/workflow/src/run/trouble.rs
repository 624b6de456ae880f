//! Why a run ends early.

use stream::{End, FailCode};

/// Why a run ends early.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// How it ends.
    pub end: End,
    /// Words for people, where the ending does not say it all.
    pub what: Option<String>,
}

impl Trouble {
    /// The engine's request ended so.
    pub(crate) fn ended(end: End) -> Self {
        Self { end, what: None }
    }

    /// The program, or what it was given, makes no sense here.
    pub(crate) fn program(what: impl Into<String>) -> Self {
        Self {
            end: End::Failed(FailCode::Inference),
            what: Some(what.into()),
        }
    }

    /// There is no room for another request.
    pub(crate) fn full() -> Self {
        Self::program("the engine has no room for another request")
    }
}
