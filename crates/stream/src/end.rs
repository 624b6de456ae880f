//! Why writing stopped. Every stream has exactly one of these; every dialect spells all of them.

/// Why a stream's writing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The model or the caller's stop condition was met.
    Stop(Stop),
    /// `max_tokens` or the context length was reached.
    Length,
    /// Somebody asked for it to stop, or the last reader left.
    Cancelled,
    /// The caller's own deadline passed.
    Deadline,
    /// One of the server's clocks fired.
    TimedOut(Clock),
    /// The work itself failed; the engine goes on.
    Failed(FailCode),
    /// The writer vanished without a word: a bug, never silent.
    Lost,
}

/// What made a stream stop of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// An end-of-sequence token.
    Eos,
    /// The stop string with this index in the request's list.
    StopString(u16),
    /// The model called tools and waits for their results.
    ToolCalls,
}

/// Which of the server's clocks fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Waiting for a permit.
    Queue,
    /// Admitted, but no first token.
    FirstToken,
    /// Running, but no token.
    Idle,
    /// The whole request.
    Total,
    /// The reader did not take what it was given.
    Reader,
}

/// What failed, for programs; the words for people are the dialect's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailCode {
    /// The forward pass reported an error.
    Inference,
    /// The model's logits, or an embedding of it, are NaN or infinite.
    NotFinite,
    /// A panic was caught inside this request's work.
    Panic,
    /// The server is shutting down and the drain deadline passed.
    Shutdown,
    /// The answer's constraint allows no token: a grammar reached one of its limits.
    Constraint,
}
