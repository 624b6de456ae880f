//! Reasons why a run ends early.

use stream::{End, FailCode};

/// The reason why a run ends early.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// The run's end.
    pub end: End,
    /// A message for users, if the end is not enough.
    pub what: Option<String>,
}

impl Trouble {
    /// The end of the engine's request.
    pub(crate) fn ended(end: End) -> Self {
        Self { end, what: None }
    }

    /// An error of the program or of the inputs.
    pub(crate) fn program(what: impl Into<String>) -> Self {
        Self {
            end: End::Failed(FailCode::Inference),
            what: Some(what.into()),
        }
    }

    /// The engine is full.
    pub(crate) fn full() -> Self {
        Self::program("the engine has no room for another request")
    }
}
