//! The typed settings, named as in the file; defaults of the server's own types are taken from these.

use super::keys::Keys;
use super::listener::Listener;
use super::models::Models;
use super::sampling::Sampling;
use super::scale::Scale;
use super::speculation::Speculation;
use super::webhooks::Webhooks;
use super::workflows::Workflows;
use super::{
    Cluster, KvType, Preset, Quantize, Upstream, answers::Answers, bind, journal::Journal,
    log::Log, prompt_cache::PromptCache, realtime::Realtime, responses::Responses,
};
use engine::EngineConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{ServerConfig, StreamClocks};
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
    pub(crate) metrics: Metrics,
    pub(crate) scale: Scale,
    pub(crate) log: Log,
    pub(crate) upstream: Upstream,
}

/// The model, and the resources that it may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Model {
    /// A GGUF file, the first part of a split one, a directory that holds exactly one model (a GGUF, or safetensors with their `config.json`), or a local model's name. Without it, the built-in model.
    pub(crate) path: Option<PathBuf>,
    /// Model id for clients; default: the file name without its extension.
    pub(crate) name: Option<String>,
    /// Maximum context of a sequence in tokens; default: the model's training context, as far as the KV cache allows.
    pub(crate) context: Option<usize>,
    /// Adapters (LoRA): each `[NAME=]PATH[:SCALE]`, a GGUF or a folder of PEFT. Requests that say nothing about adapters use those with a scale other than 0 (default: 1).
    pub(crate) adapters: Vec<String>,
    /// Jinja file with a chat template, in place of the model's own.
    pub(crate) chat_template: Option<PathBuf>,
    /// Quantization of safetensors weights at load; default: as stored. GGUF files are loaded as they are.
    pub(crate) quantize: Option<Quantize>,
    /// Compute threads, including the engine thread; default: the number of processors, at most one for each MiB of the model's files.
    pub(crate) threads: Option<usize>,
    /// Size of the KV cache; memory is touched only as it is used. With recurrent layers, half of it at most is for states. Default: 65,536 tokens, within a quarter of the machine's memory, and at least 1024.
    pub(crate) kv_mib: Option<usize>,
    /// Data type of the KV cache, also of the draft model's: `q8_0` needs 53 % of the memory of `f16`, `q4_0` 28 %.
    pub(crate) kv_type: KvType,
    /// Batch-invariant results: tokens do not depend on other requests in the batch. Turns AMX off; costs nothing on processors without AMX.
    pub(crate) deterministic: bool,
}

/// The engine's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Engine {
    /// Maximum number of sequences in the engine, including parked and paused ones.
    pub(crate) sequences_max: usize,
    /// Maximum number of tokens computed in one step: decode first, the rest for prefill. At least `sequences_max`.
    pub(crate) step_tokens: usize,
    /// Capacity of the engine's inbox, in requests.
    pub(crate) inbox_max: usize,
    /// Target duration of a step while sequences are decoding: prefill is chunked to fit, but for one token in 150; 0 = no limit.
    pub(crate) step_target_ms: u64,
    /// Time without service after which a request is scheduled one priority class higher.
    pub(crate) ageing_ms: u64,
    /// Speculative decoding: source of draft tokens. Changes the speed, never the tokens; with recurrent layers no draft model,
    /// and 3 tokens at most.
    pub(crate) speculation: Speculation,
    /// Maximum number of draft tokens per sequence and step.
    pub(crate) draft_tokens: usize,
    /// Draft model for `speculation: draft`, with the same vocabulary: a GGUF file or a directory with one.
    pub(crate) draft_model: Option<PathBuf>,
    /// Size of the draft model's KV cache; memory is touched only as it is used. Default: as for `model.kv_mib`.
    pub(crate) draft_kv_mib: Option<usize>,
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
    /// Interval between two adjustments of the limit.
    pub(crate) adjustment_interval_ms: u64,
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

/// Export of metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    /// Interval between two snapshots of all metrics in `/v1/streams/feed`.
    pub(crate) export_interval_ms: u64,
}

/// Backpressure: how far a stream may run ahead of its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backpressure {
    /// Credit window: tokens that a sequence may be ahead of its reader; 0 = no limit.
    pub(crate) max_unacked_tokens: u64,
    /// Time parked on backpressure after which a client is reported as a slow consumer.
    pub(crate) slow_consumer_threshold_ms: u64,
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

impl Default for Model {
    fn default() -> Self {
        Self {
            path: None,
            name: None,
            context: None,
            adapters: Vec::new(),
            chat_template: None,
            quantize: None,
            threads: None,
            kv_mib: None,
            kv_type: KvType::F16,
            deterministic: false,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            sequences_max: 256,
            step_tokens: engine.step_tokens,
            inbox_max: engine.inbox_max,
            step_target_ms: engine.step_target.map_or(0, ms),
            ageing_ms: ms(engine.ageing),
            speculation: Speculation::Off,
            draft_tokens: engine.draft_tokens,
            draft_model: None,
            draft_kv_mib: None,
        }
    }
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
            adjustment_interval_ms: ms(limits.adjustment_interval),
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

impl Default for Metrics {
    fn default() -> Self {
        Self {
            export_interval_ms: ms(ServerConfig::default().metrics_export_interval),
        }
    }
}

impl Default for Backpressure {
    fn default() -> Self {
        Self {
            max_unacked_tokens: ServerConfig::default().credit_window,
            slow_consumer_threshold_ms: ms(EngineConfig::default().slow_consumer),
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
