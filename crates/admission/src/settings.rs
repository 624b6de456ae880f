//! Settings of admission.

use std::time::Duration;

/// How many streams may run at one time (section `adaptive_limits`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveLimits {
    /// Whether the limit adapts; if not, the limit is `max_streams`.
    pub enabled: bool,
    /// Least limit, and the limit at the start: what the hardware can run in any case.
    pub min_streams: usize,
    /// The limit's ceiling.
    pub max_streams: usize,
    /// Time between two looks at use and latency.
    pub adjustment_interval: Duration,
    /// Target of a prompt's wait between the permit and the first token, prompts' own time left out: a wait above lowers the
    /// limit (`target_ttft_ms`).
    pub target_ttft: Duration,
    /// Target between two tokens of one stream: a latency above lowers the limit (`target_itl_ms`).
    pub target_itl: Duration,
}

impl Default for AdaptiveLimits {
    fn default() -> Self {
        Self {
            enabled: true,
            min_streams: 8,
            max_streams: 50,
            adjustment_interval: Duration::from_secs(5),
            target_ttft: Duration::from_secs(1),
            target_itl: Duration::from_millis(500),
        }
    }
}

/// Where requests over the limit wait (section `queue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that may wait, 320 bytes each; 0: no request waits. In a full queue each priority class has a
    /// sixteenth more.
    pub max_depth: usize,
    /// Longest queue time (`timeout_ms`). A request that would wait longer is rejected at once.
    pub timeout: Duration,
    /// Waiting this long makes up for one priority class (`ageing_ms`).
    pub ageing: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            max_depth: 256,
            timeout: Duration::from_secs(300),
            ageing: Duration::from_secs(5),
        }
    }
}

/// How many pages a permit reserves (section `reservation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Pages that may be reserved, in percent of the KV cache. More than 100 counts on answers that end before
    /// `max_tokens` and on prompts with a common beginning. If pages run short, the engine preempts the youngest
    /// sequences and recomputes them later: slower, never wrong.
    pub overcommit_percent: usize,
    /// Length reserved for an answer without a limit in the request. (The answer may become longer.)
    pub assumed_answer_tokens: usize,
}

impl Default for Reservation {
    fn default() -> Self {
        Self {
            overcommit_percent: 200,
            assumed_answer_tokens: 1024,
        }
    }
}
