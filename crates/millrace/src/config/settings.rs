//! The typed settings, named as in the file; defaults of the server's own types are taken from these.

use super::listener::Listener;
use super::models::Models;
use super::sampling::Sampling;
use super::webhooks::Webhooks;
use super::{
    Cluster, Engine, Model, Preset, Upstream, answers::Answers, bind, journal::Journal,
    prompt_cache::PromptCache,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{
    PrefixSharing, RealtimeLimits, ResponseLimits, ScaleTarget, ServerConfig, StreamClocks,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// As long as `WatchdogSec` of deploy/systemd/millrace.service.
const ENGINE_STALL_S: u64 = 300;

/// Every setting there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Defaults for a kind of use. Every setting that is given explicitly takes precedence.
    pub(crate) preset: Option<Preset>,
    pub(crate) model: Model,
    pub(crate) models: Models,
    pub(crate) answers: Answers,
    pub(crate) sampling: Sampling,
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) listener: Listener,
    pub(crate) keys: Keys,
    pub(crate) adaptive_limits: AdaptiveLimits,
    pub(crate) queue: Queue,
    pub(crate) reservation: Reservation,
    pub(crate) streams: Streams,
    pub(crate) responses: Responses,
    pub(crate) journal: Journal,
    pub(crate) cache: PromptCache,
    pub(crate) cluster: Cluster,
    pub(crate) backpressure: Backpressure,
    pub(crate) clocks: Clocks,
    pub(crate) realtime: Realtime,
    pub(crate) webhooks: Webhooks,
    pub(crate) workflows: Workflows,
    pub(crate) scale: Scale,
    pub(crate) log: Log,
    pub(crate) upstream: Upstream,
}

/// The HTTP server and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    /// Address and port to listen on, or one of them. An address that other hosts can reach requires API keys, or `no_auth`.
    #[serde(deserialize_with = "bind::deserialize")]
    #[schemars(schema_with = "bind::schema")]
    pub(crate) bind: SocketAddr,
    /// Allow an address that other hosts can reach without API keys.
    pub(crate) no_auth: bool,
    /// Host names accepted in addition to this machine's own; `"*"` = any. Default: a server on loopback accepts
    /// this machine's names only, any other accepts every name.
    pub(crate) hosts: Vec<String>,
    /// Origins of web pages allowed by CORS, in addition to this machine's: such as `https://chat.example.com`, with
    /// `*` for a port, a host or subdomains; `"*"` = any, `"none"` = not even this machine's.
    pub(crate) origins: Vec<String>,
    /// Serve the web page at `/`.
    pub(crate) page: bool,
    /// The prefix of all paths, such as `/llm`, for a reverse proxy that passes paths on as they are. Not with `cluster.servers`.
    pub(crate) api_prefix: String,
    /// I/O threads.
    pub(crate) io_threads: usize,
    /// Maximum number of open requests; more are rejected with 503.
    pub(crate) open_requests_max: usize,
    /// Maximum number of open connections.
    pub(crate) connections_max: usize,
    /// Maximum number of open connections of one IP address.
    pub(crate) connections_per_ip_max: usize,
    /// Maximum size of a request body in bytes.
    pub(crate) body_bytes_max: usize,
    /// Timeout for receiving a request's headers.
    pub(crate) header_timeout_ms: u64,
    /// Timeout for receiving a request's body.
    pub(crate) body_timeout_ms: u64,
    /// Time for running streams to end on graceful shutdown.
    pub(crate) drain_timeout_ms: u64,
    /// An engine that has sequences to run and ends no step for this long is stuck: `/health/liveness` answers 503, so that the process is replaced. 0: never.
    pub(crate) engine_stall_s: u64,
}

/// The concurrency limit, which adapts between a minimum and a maximum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdaptiveLimits {
    /// Adapt the concurrency limit to latency; if false, the limit is `max_streams`.
    pub(crate) enabled: bool,
    /// Minimum and initial concurrency limit. At most `max_streams`.
    pub(crate) min_streams: usize,
    /// Maximum concurrency limit.
    pub(crate) max_streams: usize,
    /// Target time that a prompt waits for tokens of other answers, from admission to the first token; the limit shrinks above it.
    pub(crate) target_ttft_ms: u64,
    /// Target inter-token latency; the limit shrinks above it.
    pub(crate) target_itl_ms: u64,
}

/// The queue of requests over the concurrency limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    /// Maximum number of queued requests; 0 = no queue.
    pub(crate) max_depth: usize,
    /// Maximum time in the queue; a request predicted to wait longer is rejected at once.
    pub(crate) timeout_ms: u64,
    /// Time in the queue that raises a request by one priority class.
    pub(crate) ageing_ms: u64,
}

/// Reservation of KV cache pages at admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reservation {
    /// KV cache pages that may be reserved, in percent of all pages.
    pub(crate) overcommit_percent: usize,
    /// Assumed answer length, in tokens, of requests without `max_tokens`.
    pub(crate) assumed_answer_tokens: usize,
}

/// Streams: keep-alive, retention, detached streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Streams {
    /// Interval of keep-alive comments on a stream without output.
    pub(crate) keep_alive_ms: u64,
    /// Maximum number of open streams, including detached ones.
    pub(crate) open_max: usize,
    /// Time for which a resumable stream can be replayed after its end.
    pub(crate) retention_s: u64,
    /// Maximum number of retained (ended) streams.
    pub(crate) retained_max: usize,
    /// Maximum bytes of token logs of retained streams.
    pub(crate) retention_bytes: usize,
    /// Tokens that a detached stream may generate beyond its credit.
    pub(crate) detached_tokens: u64,
    /// Time for which a detached stream without credit waits for a client.
    pub(crate) detached_wait_s: u64,
}

/// Backpressure: how far a stream may run ahead of its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backpressure {
    /// Credit window: tokens that a sequence may be ahead of its reader; 0 = no limit.
    pub(crate) max_unacked_tokens: u64,
    /// Time parked on backpressure after which `policy` applies; 0 = never.
    pub(crate) ack_timeout_ms: u64,
    /// What happens to a stream after `ack_timeout_ms`.
    pub(crate) policy: SlowReader,
}

/// What is done with a stream whose reader takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlowReader {
    /// The stream ends with an error. A resumable stream is detached instead.
    Cancel,
    /// The stream is detached: it goes on without its client and can be resumed by its id.
    Detach,
    /// The stream stays parked.
    Keep,
}

/// Timeouts of a request; 0 = no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Clocks {
    /// Maximum time from a request's start to its first token; 0 = no limit.
    pub(crate) first_token_ms: u64,
    /// Maximum time between two tokens while the sequence is not parked; 0 = no limit.
    pub(crate) idle_ms: u64,
    /// Maximum time from a request's arrival to its end; 0 = no limit.
    pub(crate) total_ms: u64,
}

impl Default for Server {
    fn default() -> Self {
        let server = ServerConfig::default();
        Self {
            bind: bind::default(),
            no_auth: false,
            hosts: server.hosts,
            origins: Vec::new(),
            page: server.page,
            api_prefix: server.api_prefix,
            io_threads: 2,
            open_requests_max: server.open_requests_max,
            connections_max: server.connections_max,
            connections_per_ip_max: server.connections_per_ip_max,
            body_bytes_max: server.body_bytes_max,
            header_timeout_ms: ms(server.header_timeout),
            body_timeout_ms: ms(server.body_timeout),
            drain_timeout_ms: ms(server.drain),
            engine_stall_s: ENGINE_STALL_S,
        }
    }
}

impl Default for AdaptiveLimits {
    fn default() -> Self {
        let limits = ServerConfig::default().adaptive_limits;
        Self {
            enabled: limits.enabled,
            min_streams: limits.min_streams,
            max_streams: limits.max_streams,
            target_ttft_ms: ms(limits.target_ttft),
            target_itl_ms: ms(limits.target_itl),
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        let queue = ServerConfig::default().queue;
        Self {
            max_depth: queue.max_depth,
            timeout_ms: ms(queue.timeout),
            ageing_ms: ms(queue.ageing),
        }
    }
}

impl Default for Reservation {
    fn default() -> Self {
        let reservation = ServerConfig::default().reservation;
        Self {
            overcommit_percent: reservation.overcommit_percent,
            assumed_answer_tokens: reservation.assumed_answer_tokens,
        }
    }
}

impl Default for Streams {
    fn default() -> Self {
        let server = ServerConfig::default();
        let streams = server.streams;
        Self {
            keep_alive_ms: ms(server.keep_alive),
            open_max: streams.open_max,
            retention_s: streams.retention.as_secs(),
            retained_max: streams.retained_max,
            retention_bytes: streams.retention_bytes,
            detached_tokens: streams.detached_tokens,
            detached_wait_s: streams.detached_wait.as_secs(),
        }
    }
}

impl Default for Backpressure {
    fn default() -> Self {
        Self {
            max_unacked_tokens: ServerConfig::default().credit_window,
            ack_timeout_ms: StreamClocks::default().reader.map_or(0, ms),
            policy: SlowReader::Cancel,
        }
    }
}

impl Default for Clocks {
    fn default() -> Self {
        let clocks = StreamClocks::default();
        Self {
            first_token_ms: clocks.first_token.map_or(0, ms),
            idle_ms: clocks.idle.map_or(0, ms),
            total_ms: clocks.total.map_or(0, ms),
        }
    }
}

/// A time in whole milliseconds, the unit of the settings.
fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// API keys. They can also come from the variable `MILLRACE_API_KEYS`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Keys {
    /// API key file, managed by `millrace keys`; reloaded on SIGHUP.
    pub(crate) file: Option<PathBuf>,
    /// Which API keys share the prefix cache. Without keys all callers do.
    pub(crate) prefix_cache: PrefixCache,
}

/// Which keys share cached prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PrefixCache {
    /// Each key has its own: `cached_tokens` and latency reveal nothing about other keys' prompts.
    #[default]
    PerKey,
    /// All keys share them: a common system prompt is computed once.
    Shared,
}

impl PrefixCache {
    /// The server's type for this value.
    pub(crate) fn sharing(self) -> PrefixSharing {
        match self {
            Self::PerKey => PrefixSharing::PerKey,
            Self::Shared => PrefixSharing::Shared,
        }
    }
}

/// Logging to standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// A `tracing` filter, such as `info` or `server=debug`; `info,requests=off` leaves out the line for each request.
    pub(crate) filter: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            json: false,
        }
    }
}

/// WebSockets and their limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Realtime {
    /// Maximum number of open WebSockets; more are rejected with 503.
    pub(crate) connections_max: usize,
    /// Maximum size of a client's WebSocket message in bytes.
    pub(crate) message_bytes_max: usize,
}

impl Default for Realtime {
    fn default() -> Self {
        let limits = RealtimeLimits::default();
        Self {
            connections_max: limits.connections_max,
            message_bytes_max: limits.message_bytes_max,
        }
    }
}

/// Stored responses (`/v1/responses`), which can be fetched and continued, and chat completions with `store: true`. They
/// survive a restart if there is a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Responses {
    /// Maximum number of stored responses and chat completions; beyond it the least recently used one of the owner with
    /// the most is evicted.
    pub(crate) stored_max: usize,
    /// Maximum bytes of stored responses and chat completions; evicted likewise.
    pub(crate) stored_bytes: usize,
}

impl Default for Responses {
    fn default() -> Self {
        let limits = ResponseLimits::default();
        Self {
            stored_max: limits.stored_max,
            stored_bytes: limits.stored_bytes,
        }
    }
}

/// What `millrace_engines_wanted` in the metrics is computed for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scale {
    /// How far ahead demand is predicted: the time until a new engine is ready, and some.
    pub(crate) horizon_s: u64,
    /// Share of an engine's tokens per second that is planned with.
    pub(crate) utilization_percent: u32,
}

impl Default for Scale {
    fn default() -> Self {
        let target = ServerConfig::default().scale;
        Self {
            horizon_s: target.horizon.as_secs(),
            utilization_percent: target.utilization_percent,
        }
    }
}

impl Scale {
    /// As the server takes these settings.
    pub(crate) fn target(&self) -> ScaleTarget {
        ScaleTarget {
            horizon: Duration::from_secs(self.horizon_s),
            utilization_percent: self.utilization_percent,
        }
    }
}

/// Workflows (`/v1/workflows`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workflows {
    /// Directory of workflows: clients may run its `*.json` files by their names without the extension.
    pub(crate) folder: Option<PathBuf>,
}
