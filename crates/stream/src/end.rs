//! Ends of streams. Each stream has exactly one end; each wire protocol represents all of them.

/// Why a token log was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The model or the caller's stop condition ended the stream.
    Stop(Stop),
    /// `max_tokens` or the context length was reached.
    Length,
    /// Cancelled by a client, or abandoned by the last reader.
    Cancelled,
    /// The caller's own deadline passed.
    Deadline,
    /// One of the server's clocks fired.
    TimedOut(Clock),
    /// The generation failed; the engine continues.
    Failed(FailCode),
    /// The writer was dropped without an end: a bug, reported as such.
    Lost,
}

/// Cause of a regular stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// An end-of-sequence token.
    Eos,
    /// The stop string with this index in the request's list.
    StopString(u16),
    /// The model called tools and the client has to return their results.
    ToolCalls,
}

/// The server's timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Waiting for admission.
    Queue,
    /// Admitted, but no first token.
    FirstToken,
    /// Running, but no token.
    Idle,
    /// The whole request.
    Total,
    /// The reader did not read for too long.
    Reader,
}

/// Machine-readable failure code; each wire protocol maps the codes to error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailCode {
    /// The forward pass reported an error.
    Inference,
    /// The model's logits or embedding contain NaN or infinity.
    NotFinite,
    /// A panic was caught in this request's work.
    Panic,
    /// The server is shutting down and the drain time has passed.
    Shutdown,
    /// The output constraint allows no token: a limit of the grammar was reached.
    Constraint,
    /// The device that computes the model failed, and could not be opened again.
    Device,
    /// The model was replaced by another one before the stream was complete, while no server ran.
    ModelChanged,
    /// The server crashed repeatedly while it computed this stream.
    CrashedEngines,
    /// No engine of another process, and no upstream, took the request in time.
    NoEngine,
    /// The upstream at this place of the configuration failed on the request, or went away in the middle of the answer.
    Upstream(u8),
}
