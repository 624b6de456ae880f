//! What to send, and why nothing was measured.

use super::target::Target;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// Bounds of what may be asked for; together they bound the client's own memory.
pub const REQUESTS_MAX: usize = 1_000_000;
/// Clients of a closed loop, and requests in flight of an open one.
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Words of a prompt.
pub const PROMPT_MAX: usize = 1 << 20;

/// Which of OpenAI's two streaming endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// When requests begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Open loop: so many per second on average, memoryless.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Closed loop: each client asks again when it was answered.
    Clients(usize),
}

/// What a good answer is: every part that is given must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objective {
    /// The first token, after the request was due.
    pub first_token: Option<Duration>,
    /// The mean wait between an answer's tokens.
    pub between_tokens: Option<Duration>,
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where.
    pub target: Target,
    /// Which endpoint.
    pub endpoint: Endpoint,
    /// The model's name; without one, the first that the server lists.
    pub model: Option<String>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// Tokens of each prompt, about: two probes say how many words that is.
    pub prompt_tokens: usize,
    /// Tokens of each answer at most.
    pub max_tokens: NonZeroU32,
    /// Asks for answers that go on to `max_tokens` (llama.cpp, vLLM and Millrace know the field).
    pub ignore_eos: bool,
    /// 0: always the likeliest token.
    pub temperature: f64,
    /// When.
    pub arrivals: Arrivals,
    /// How many are measured.
    pub requests: usize,
    /// How many are sent before, and not measured.
    pub warmup: usize,
    /// Same seed, same prompts and same arrivals.
    pub seed: u64,
    /// From when a request was due to its last byte.
    pub timeout: Duration,
    /// What counts as good.
    pub objective: Objective,
    /// The server's process, for its processor time and memory; must be on this machine.
    pub pid: Option<u32>,
}

/// Why nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(pub String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    pub(super) fn of(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}
