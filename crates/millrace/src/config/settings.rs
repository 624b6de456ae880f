//! The settings themselves, named as in the file; defaults that are the server's own are taken from there.

use super::keys::Keys;
use super::models::Models;
use super::workflows::Workflows;
use super::{
    KvType, Preset, Quantize, answers::Answers, bind, log::Log, realtime::Realtime,
    responses::Responses,
};
use engine::EngineConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{ServerConfig, StreamClocks};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Every setting there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// What the server is for: values for many settings as one word, below everything that is set itself.
    pub(crate) preset: Option<Preset>,
    pub(crate) model: Model,
    pub(crate) models: Models,
    pub(crate) answers: Answers,
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) keys: Keys,
    pub(crate) adaptive_limits: AdaptiveLimits,
    pub(crate) queue: Queue,
    pub(crate) reservation: Reservation,
    pub(crate) streams: Streams,
    pub(crate) responses: Responses,
    pub(crate) backpressure: Backpressure,
    pub(crate) clocks: Clocks,
    pub(crate) realtime: Realtime,
    pub(crate) workflows: Workflows,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
}

/// Which model, and how much of the machine it may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Model {
    /// A GGUF file, the first part of a split one, a directory that holds exactly one model (a GGUF, or safetensors with their `config.json`), or a local model's name. Without it, the built-in model.
    pub(crate) path: Option<PathBuf>,
    /// The name clients use; default: the file's name without its ending.
    pub(crate) name: Option<String>,
    /// Positions a sequence may have; default: what the model was trained for, as far as the KV memory goes.
    pub(crate) context: Option<usize>,
    /// What the matrices of safetensors are quantised to as they are loaded; default: as they are stored. GGUF files are loaded as they are.
    pub(crate) quantize: Option<Quantize>,
    /// Threads that compute, the engine's own included; default: as many as there are processors.
    pub(crate) threads: Option<usize>,
    /// Memory for keys and values; touched only as it is used. Default: room for 65,536 positions, within a quarter of the machine's memory, and at least 1024.
    pub(crate) kv_mib: Option<usize>,
    /// How keys and values are kept, also those of a draft model: `q8_0` takes 53 % of `f16`'s memory.
    pub(crate) kv_type: KvType,
    /// Whether tokens depend on nothing but the request, whatever shares its steps. It costs what AMX would gain, and nothing where there is none.
    pub(crate) deterministic: bool,
}

/// How steps are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Engine {
    /// Sequences that may be started and not ended, those that stand still included.
    pub(crate) sequences_max: usize,
    /// Rows one step may compute: decodes first, the rest goes to prompts. No fewer than `sequences_max`.
    pub(crate) step_tokens: usize,
    /// Requests that may wait to be taken by the engine.
    pub(crate) inbox_max: usize,
    /// How long a step may take while others wait for their next token: prompts are cut to fit; 0 = no limit.
    pub(crate) step_target_ms: u64,
    /// A request that was not served for this long counts as one priority class more urgent.
    pub(crate) ageing_ms: u64,
    /// Where guesses at the tokens to come are taken from: they change how fast tokens come, never which.
    pub(crate) speculation: Speculation,
    /// Tokens guessed per sequence and step, at most.
    pub(crate) draft_tokens: usize,
    /// For `speculation: draft`, a smaller model with the same vocabulary: a GGUF file or a directory with one.
    pub(crate) draft_model: Option<PathBuf>,
    /// Memory for the keys and values of that model; touched only as it is used. Default: as `model.kv_mib` has it.
    pub(crate) draft_kv_mib: Option<usize>,
}

/// Where guesses come from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Speculation {
    /// There are none.
    Off,
    /// From what was said before in the same conversation.
    PromptLookup,
    /// From `draft_model`.
    Draft,
}

/// Sockets and their limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    /// Where to listen: an address and a port, or one of them. An address that other hosts can reach needs keys, or `no_auth`.
    #[serde(deserialize_with = "bind::deserialize")]
    #[schemars(schema_with = "bind::schema")]
    pub(crate) bind: SocketAddr,
    /// Says that an address other hosts can reach may be served without keys.
    pub(crate) no_auth: bool,
    /// Names this server answers to, beside this machine's own; `"*"` = any. Without one, a server that
    /// only this machine can reach answers to this machine's names, any other to every name.
    pub(crate) hosts: Vec<String>,
    /// Web pages that may use this server, beside those of this machine: origins such as
    /// `https://chat.example.com`, with `*` for a port, a host or a host's first names; `"*"` = any, `"none"` =
    /// not even this machine's.
    pub(crate) origins: Vec<String>,
    /// Threads for sockets.
    pub(crate) io_threads: usize,
    /// Requests that may be open at one time; more are answered 503.
    pub(crate) open_requests_max: usize,
    /// Connections that may be open at one time.
    pub(crate) connections_max: usize,
    /// The same for one address.
    pub(crate) connections_per_ip_max: usize,
    /// Bytes a request's body may have.
    pub(crate) body_bytes_max: usize,
    /// Time to send a request's head.
    pub(crate) header_timeout_ms: u64,
    /// Time to send a request's body.
    pub(crate) body_timeout_ms: u64,
    /// Time that running streams get when the server is told to stop.
    pub(crate) drain_timeout_ms: u64,
}

/// How many streams may run at one time. The limit moves between its floor and its ceiling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdaptiveLimits {
    /// Whether the limit moves; if not, it is `max_streams`.
    pub(crate) enabled: bool,
    /// The floor, where it starts. No more than `max_streams`.
    pub(crate) min_streams: usize,
    /// The ceiling.
    pub(crate) max_streams: usize,
    /// Time between two looks at use and latency.
    pub(crate) adjustment_interval_ms: u64,
    /// From the permit to the first token; above it the limit shrinks.
    pub(crate) target_ttft_ms: u64,
    /// Between two tokens of one stream; above it the limit shrinks.
    pub(crate) target_itl_ms: u64,
}

/// Where requests over the limit wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    /// Requests that may wait; 0 = nobody waits.
    pub(crate) max_depth: usize,
    /// How long one may wait; who would have to wait longer is refused at once.
    pub(crate) timeout_ms: u64,
    /// Waiting this long makes up for one priority class.
    pub(crate) ageing_ms: u64,
}

/// How much memory for keys and values a running stream is counted with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reservation {
    /// Pages that may be promised, in percent of those there are.
    pub(crate) overcommit_percent: usize,
    /// The length counted for an answer whose request names none.
    pub(crate) assumed_answer_tokens: usize,
}

/// What holds for every stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Streams {
    /// Pause after which a silent stream says that it is alive.
    pub(crate) keep_alive_ms: u64,
    /// Streams open at one time, those whose client is gone included.
    pub(crate) open_max: usize,
    /// How long a resumable stream can be read again after its end.
    pub(crate) retention_s: u64,
    /// Ended streams kept at one time.
    pub(crate) retained_max: usize,
    /// Bytes of token logs that ended streams may hold.
    pub(crate) retention_bytes: usize,
    /// Tokens a resumable stream whose client is gone may make beyond its credit.
    pub(crate) detached_tokens: u64,
    /// How long such a stream may then wait for somebody to come back.
    pub(crate) detached_wait_s: u64,
}

/// What is told of figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    /// Time between two snapshots of all figures in `/v1/streams/feed`, and between two messages to a collector.
    pub(crate) export_interval_ms: u64,
    /// Base address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`, that takes OTLP over HTTP; only in a millrace built with the feature `otlp`. Header fields come from the variable `MILLRACE_OTLP_HEADERS`.
    #[schemars(regex(pattern = r"^http://[^@?]+$"))]
    pub(crate) otlp_endpoint: Option<String>,
}

/// How far a stream may run ahead of its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backpressure {
    /// Tokens; 0 = no limit.
    pub(crate) max_unacked_tokens: u64,
    /// Parked for want of credit longer than this, a reader is called slow.
    pub(crate) slow_consumer_threshold_ms: u64,
    /// How long a stream may be parked so before `policy` decides; 0 = for ever.
    pub(crate) ack_timeout_ms: u64,
    /// What happens then.
    pub(crate) policy: SlowReader,
}

/// What is done with a stream whose reader takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlowReader {
    /// It ends, and says why. A resumable stream is detached instead.
    Cancel,
    /// It goes on without its reader and is kept: whoever comes with its name reads on where that was.
    Detach,
    /// It waits on.
    Keep,
}

/// When a request has taken too long; 0 = never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Clocks {
    /// From its start to its first token.
    pub(crate) first_token_ms: u64,
    /// From one token to the next, while it could have had one.
    pub(crate) idle_ms: u64,
    /// From its arrival to its end.
    pub(crate) total_ms: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            path: None,
            name: None,
            context: None,
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
            io_threads: 2,
            open_requests_max: server.open_requests_max,
            connections_max: server.connections_max,
            connections_per_ip_max: server.connections_per_ip_max,
            body_bytes_max: server.body_bytes_max,
            header_timeout_ms: ms(server.header_timeout),
            body_timeout_ms: ms(server.body_timeout),
            drain_timeout_ms: ms(server.drain),
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
            otlp_endpoint: None,
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

/// Settings count time in whole milliseconds.
fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}
