//! The typed settings, named as in the file; defaults of the server's own types are taken from these.

use super::listener::Listener;
use super::models::Models;
use super::ranges::{COUNT_MAX, DAY_S, HOUR_MS, PAUSE_MS_MIN, TOKENS_MAX, WEEK_MS};
use super::sampling::Sampling;
use super::webhooks::Webhooks;
use super::{
    Cluster, Engine, Model, Preset, Upstream, Vision, answers::Answers, bind, journal::Journal,
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
    #[schemars(extend("x-reload" = "live", "x-reason" = "the defaults suit one machine and a few dozen clients"))]
    pub(crate) preset: Option<Preset>,
    pub(crate) model: Model,
    pub(crate) models: Models,
    pub(crate) answers: Answers,
    pub(crate) sampling: Sampling,
    pub(crate) vision: Vision,
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
    #[schemars(extend("x-reload" = "restart", "x-reason" = "only this machine can reach the server unless configured otherwise"))]
    pub(crate) bind: SocketAddr,
    /// Allow an address that other hosts can reach without API keys.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "serving without authentication is an explicit decision"))]
    pub(crate) no_auth: bool,
    /// Host names accepted in addition to this machine's own; `"*"` = any. Default: a server on loopback accepts
    /// this machine's names only, any other accepts every name.
    #[schemars(extend("x-reload" = "live", "x-reason" = "protects a local server from web pages (DNS rebinding)"))]
    pub(crate) hosts: Vec<String>,
    /// Origins of web pages allowed by CORS, in addition to this machine's: such as `https://chat.example.com`, with
    /// `*` for a port, a host or subdomains; `"*"` = any, `"none"` = not even this machine's.
    #[schemars(extend("x-reload" = "live", "x-reason" = "pages and applications of this machine belong to its user, as in Ollama; others must be listed"))]
    pub(crate) origins: Vec<String>,
    /// Serve the web page at `/`.
    #[schemars(extend("x-reload" = "live", "x-reason" = "its files need no key and do nothing; its requests need the key that a user types"))]
    pub(crate) page: bool,
    /// The prefix of all paths, such as `/llm`, for a reverse proxy that passes paths on as they are. Not with `cluster.servers`.
    #[schemars(extend("x-reload" = "live", "x-reason" = "most servers have an address of their own, or a proxy that takes the prefix off"))]
    pub(crate) api_prefix: String,
    /// I/O threads.
    #[schemars(
        range(min = 1, max = 256),
        extend("x-reload" = "restart", "x-reason" = "sockets cost little compared with the model; the second reads while the first writes")
    )]
    pub(crate) io_threads: usize,
    /// Maximum number of open requests; more are rejected with 503.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "restart", "x-reason" = "running and waiting requests, and half as many again whose bodies are being read")
    )]
    pub(crate) open_requests_max: usize,
    /// Maximum number of open connections.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "each needs a few KiB; most are idle")
    )]
    pub(crate) connections_max: usize,
    /// Maximum number of open connections of one IP address.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "an office behind one address, and a load generator")
    )]
    pub(crate) connections_per_ip_max: usize,
    /// Maximum size of a request body in bytes.
    #[schemars(
        range(min = 1024, max = 1_u64 << 30),
        extend("x-reload" = "live", "x-reason" = "a prompt of 30,000 tokens has 120 KB; one of a million tokens 4 MB")
    )]
    pub(crate) body_bytes_max: usize,
    /// Maximum size of the body of a request for an answer, which may have images; those longer than `body_bytes_max` share 256 MiB.
    #[schemars(
        range(min = 1024, max = 1_u64 << 28),
        extend("x-reload" = "live", "x-reason" = "an image of 20 MiB has 27 MiB as base64")
    )]
    pub(crate) media_body_bytes_max: usize,
    /// Timeout for receiving a request's body.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "a prompt of 30,000 tokens within it needs 4 KB/s")
    )]
    pub(crate) body_timeout_ms: u64,
    /// Time for running streams to end on graceful shutdown.
    #[schemars(
        range(min = 0, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "within the 30 s after which Kubernetes kills; `docker stop` waits 10 s by default")
    )]
    pub(crate) drain_timeout_ms: u64,
    /// An engine that has sequences to run and ends no step, or has lost its device, for this long is stuck: `/health/liveness` answers 503, so that the process is replaced. 0: never.
    #[schemars(
        range(min = 0, max = DAY_S),
        extend("x-reload" = "restart", "x-reason" = "longer than the longest step, a prompt's on few cores; WatchdogSec of the systemd unit is the same")
    )]
    pub(crate) engine_stall_s: u64,
}

/// The concurrency limit, which adapts between a minimum and a maximum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdaptiveLimits {
    /// Adapt the concurrency limit to latency; if false, the limit is `max_streams`.
    #[schemars(extend("x-reload" = "live", "x-reason" = "a machine's capacity is better measured than guessed"))]
    pub(crate) enabled: bool,
    /// Minimum and initial concurrency limit. At most `max_streams`.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "eight clients are served at once from the first second; the limit grows from there as latency allows")
    )]
    pub(crate) min_streams: usize,
    /// Maximum concurrency limit.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "32 clients and some more; beyond that the KV cache is the bottleneck")
    )]
    pub(crate) max_streams: usize,
    /// Target time that a prompt waits for tokens of other answers, from admission to the first token; the limit shrinks above it.
    #[schemars(
        range(min = 1, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "fewer answers would shorten that wait; the time of prompts is as long at any limit")
    )]
    pub(crate) target_ttft_ms: u64,
    /// Target inter-token latency; the limit shrinks above it.
    #[schemars(
        range(min = 1, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "two tokens a second: slower looks like a fault")
    )]
    pub(crate) target_itl_ms: u64,
}

/// The queue of requests over the concurrency limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    /// Maximum number of queued requests; 0 = no queue.
    #[schemars(
        range(min = 0, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "eight times 32 clients; an entry costs 256 bytes and the body")
    )]
    pub(crate) max_depth: usize,
    /// Maximum time in the queue; a request predicted to wait longer is rejected at once.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "half of the 600 s that official clients wait; the other half is for the answer. 32 clients on two processors are never rejected")
    )]
    pub(crate) timeout_ms: u64,
}

/// Reservation of KV cache pages at admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reservation {
    /// KV cache pages that may be reserved, in percent of all pages.
    #[schemars(
        range(min = 10, max = 10_000),
        extend("x-reload" = "live", "x-reason" = "most answers end long before `max_tokens`; a preempted answer is later, never wrong")
    )]
    pub(crate) overcommit_percent: usize,
    /// Assumed answer length, in tokens, of requests without `max_tokens`.
    #[schemars(
        range(min = 1, max = TOKENS_MAX),
        extend("x-reload" = "live", "x-reason" = "a long chat answer; ten times that would reject streams that fit")
    )]
    pub(crate) assumed_answer_tokens: usize,
}

/// Streams: keep-alive, retention, detached streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Streams {
    /// Interval of keep-alive comments on a stream without output.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "live", "x-reason" = "below the 15 to 60 s of silence after which proxies close a connection")
    )]
    pub(crate) keep_alive_ms: u64,
    /// Maximum number of open streams, including detached ones.
    #[schemars(
        range(min = 1, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "all running and waiting requests, and thousands of detached streams")
    )]
    pub(crate) open_max: usize,
    /// Time for which a resumable stream can be replayed after its end, and for which a detached stream without credit waits for a client.
    #[schemars(
        range(min = 0, max = DAY_S),
        extend("x-reload" = "live", "x-reason" = "clients reconnect within a minute")
    )]
    pub(crate) retention_s: u64,
    /// Maximum number of retained (ended) streams.
    #[schemars(
        range(min = 0, max = COUNT_MAX),
        extend("x-reload" = "live", "x-reason" = "a minute of short answers")
    )]
    pub(crate) retained_max: usize,
    /// Maximum bytes of token logs of retained streams.
    #[schemars(
        range(min = 0, max = 1_u64 << 40),
        extend("x-reload" = "live", "x-reason" = "four million tokens")
    )]
    pub(crate) retention_bytes: usize,
    /// Tokens that a detached stream may generate beyond its credit.
    #[schemars(
        range(min = 0, max = 1_u64 << 24),
        extend("x-reload" = "live", "x-reason" = "an answer of 10,000 tokens is complete when its client returns")
    )]
    pub(crate) detached_tokens: u64,
}

/// Backpressure: how far a stream may run ahead of its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backpressure {
    /// Credit window: tokens that a sequence may be ahead of its reader; 0 = no limit.
    #[schemars(
        range(min = 0, max = 1_u64 << 40),
        extend("x-reload" = "live", "x-reason" = "some seconds of reading; more would be computed for clients that have disconnected")
    )]
    pub(crate) max_unacked_tokens: u64,
    /// Time parked on backpressure after which `policy` applies; 0 = never.
    #[schemars(
        range(min = 0, max = WEEK_MS),
        extend("x-reload" = "live", "x-reason" = "a client that reads nothing for that long, with full buffers, has stopped")
    )]
    pub(crate) ack_timeout_ms: u64,
    /// What happens to a stream after `ack_timeout_ms`.
    #[schemars(extend("x-reload" = "live", "x-reason" = "a stream that cannot be resumed is of no use without its client"))]
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
    #[schemars(
        range(min = 0, max = WEEK_MS),
        extend("x-reload" = "live", "x-reason" = "a prompt of 30,000 tokens at 17 a second, an 8B model on two processors; a client that disconnects earlier frees its slot")
    )]
    pub(crate) first_token_ms: u64,
    /// Maximum time between two tokens while the sequence is not parked; 0 = no limit.
    #[schemars(
        range(min = 0, max = WEEK_MS),
        extend("x-reload" = "live", "x-reason" = "as above: a preempted sequence computes its tokens again")
    )]
    pub(crate) idle_ms: u64,
    /// Maximum time from a request's arrival to its end; 0 = no limit.
    #[schemars(
        range(min = 0, max = WEEK_MS),
        extend("x-reload" = "live", "x-reason" = "10,000 tokens at one in two seconds; meant for streams that were paused and forgotten")
    )]
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
            media_body_bytes_max: server.media_body_bytes_max,
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
    #[schemars(extend("x-reload" = "live", "x-reason" = "without keys only this machine can reach the server"))]
    pub(crate) file: Option<PathBuf>,
    /// Which API keys share the prefix cache. Without keys all callers do.
    #[schemars(extend("x-reload" = "live", "x-reason" = "a key must not learn what another key sends"))]
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
    #[schemars(extend("x-reload" = "live", "x-reason" = "what an operator can act on"))]
    pub(crate) filter: String,
    /// One JSON object per line instead of text.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "logs are read by people first"))]
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
    /// Maximum size of a client's WebSocket message in bytes, without its images; with them, `server.media_body_bytes_max`.
    #[schemars(
        range(min = 1024, max = 1_u64 << 26),
        extend("x-reload" = "live", "x-reason" = "a prompt of 30,000 tokens eight times over")
    )]
    pub(crate) message_bytes_max: usize,
}

impl Default for Realtime {
    fn default() -> Self {
        let limits = RealtimeLimits::default();
        Self {
            message_bytes_max: limits.message_bytes_max,
        }
    }
}

/// Stored responses (`/v1/responses`), which can be fetched and continued, and chat completions with `store: true`. They
/// survive a restart if there is a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Responses {
    /// Maximum bytes of stored responses and chat completions; beyond it the least recently used one of the owner with the most is evicted. At most 4096 are stored.
    #[schemars(
        range(min = 0, max = 1_u64 << 40),
        extend("x-reload" = "live", "x-reason" = "16 KiB for each")
    )]
    pub(crate) stored_bytes: usize,
}

impl Default for Responses {
    fn default() -> Self {
        let limits = ResponseLimits::default();
        Self {
            stored_bytes: limits.stored_bytes,
        }
    }
}

/// What `millrace_engines_wanted` in the metrics is computed for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scale {
    /// How far ahead demand is predicted: the time until a new engine is ready, and some.
    #[schemars(
        range(min = 10, max = 3600),
        extend("x-reload" = "live", "x-reason" = "three minutes until a new engine has loaded its model, and two to order it")
    )]
    pub(crate) horizon_s: u64,
}

impl Default for Scale {
    fn default() -> Self {
        let target = ServerConfig::default().scale;
        Self {
            horizon_s: target.horizon.as_secs(),
        }
    }
}

impl Scale {
    /// As the server takes these settings.
    pub(crate) fn target(&self) -> ScaleTarget {
        ScaleTarget {
            horizon: Duration::from_secs(self.horizon_s),
            ..ScaleTarget::default()
        }
    }
}

/// Workflows (`/v1/workflows`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workflows {
    /// Directory of workflows: clients may run its `*.json` files by their names without the extension.
    #[schemars(extend("x-reload" = "live", "x-reason" = "the operator chooses what clients may run"))]
    pub(crate) folder: Option<PathBuf>,
}
