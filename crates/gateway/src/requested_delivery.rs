//! How a client wants its stream scheduled and delivered: priority, deadline, resumption.

use admission::Priority;
use generate::request::StreamOptions;
use std::time::Instant;

/// When the stream of a request is resumable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumable {
    /// Always.
    Yes,
    /// Never.
    No,
    /// If the response is streamed.
    IfStreamed,
}

impl Resumable {
    /// `Yes` or `No`, as the client chose.
    pub fn from_choice(resumable: bool) -> Self {
        if resumable { Self::Yes } else { Self::No }
    }
}

/// How a client wants its stream scheduled and delivered: what its header fields say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedDelivery {
    /// Overrides the body's priority.
    pub priority: Option<Priority>,
    /// The earlier one of this deadline and the body's holds.
    pub deadline: Option<Instant>,
    /// When the stream continues without a client; `None`: the client has not chosen, which means never.
    pub resumable: Option<Resumable>,
    /// Whether a resumable stream is recorded in the journal.
    pub durable: bool,
    /// Whether the client sends acknowledgements.
    pub explicit_acks: bool,
}

impl RequestedDelivery {
    /// Whether the stream of a request with these options is resumable.
    pub(crate) fn is_resumable(&self, options: &StreamOptions) -> bool {
        let is_chosen = match self.resumable {
            Some(Resumable::Yes) => true,
            Some(Resumable::No) | None => false,
            Some(Resumable::IfStreamed) => options.stream,
        };
        is_chosen || options.background
    }
}
