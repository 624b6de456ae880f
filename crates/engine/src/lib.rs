//! Who runs next and which token.

mod handle;
mod progress;
mod request;

pub use handle::{Handle, Rejected, RequestId};
pub use progress::{Phase, Progress};
pub use request::{Choice, Constraint, Request, Sampling, Terminator, Token, TopLogprob};
