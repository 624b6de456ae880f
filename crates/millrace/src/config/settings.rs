//! The settings themselves, with their defaults. The names here are the keys of the file.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Every setting there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) model: Model,
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) keys: Keys,
    pub(crate) streams: Streams,
    pub(crate) backpressure: Backpressure,
    pub(crate) log: Log,
}

/// Which model, and how much of the machine it may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// A GGUF file, the first part of a split one, or a directory that holds exactly one model.
    pub(crate) path: Option<PathBuf>,
    /// The name clients use; default: the file's name without its ending.
    pub(crate) name: Option<String>,
    /// Positions a sequence may have; default: what the model was trained for, as far as the KV memory goes.
    pub(crate) context: Option<usize>,
    /// Threads that compute, the engine's own included; default: as many as there are processors.
    pub(crate) threads: Option<usize>,
    /// Memory for keys and values; touched only as it is used.
    pub(crate) kv_mib: usize,
}

/// How steps are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Engine {
    /// Sequences that may run at one time.
    pub(crate) sequences_max: usize,
    /// Rows one step may compute: decodes first, the rest goes to prompts.
    pub(crate) step_tokens: usize,
    /// Requests that may wait to be taken by the engine.
    pub(crate) inbox_max: usize,
}

/// Sockets and their limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    /// Where to listen.
    pub(crate) bind: SocketAddr,
    /// Says that an address other hosts can reach may be served without keys.
    pub(crate) no_auth: bool,
    /// Names this server answers to, beside this machine's own; `"*"` = any. Without one, a server that
    /// only this machine can reach answers to this machine's names, any other to every name.
    pub(crate) hosts: Vec<String>,
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

/// Who may come in. Keys can also come from the variable `MILLRACE_API_KEYS`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keys {
    /// A file that `millrace keys` keeps; read again on SIGHUP.
    pub(crate) file: Option<PathBuf>,
}

/// What holds for every stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Streams {
    /// Pause after which a silent stream says that it is alive.
    pub(crate) keep_alive_ms: u64,
}

/// How far a stream may run ahead of its reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backpressure {
    /// Tokens; 0 = no limit.
    pub(crate) max_unacked_tokens: u64,
}

/// What is logged, to standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// A `tracing` filter, such as `info` or `server=debug`.
    pub(crate) filter: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            path: None,
            name: None,
            context: None,
            threads: None,
            kv_mib: 1024,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            sequences_max: 256,
            step_tokens: 512,
            inbox_max: 1024,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8420)),
            no_auth: false,
            hosts: Vec::new(),
            io_threads: 2,
            open_requests_max: 1024,
            connections_max: 4096,
            connections_per_ip_max: 1024,
            body_bytes_max: 8 << 20,
            header_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            drain_timeout_ms: 30_000,
        }
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            keep_alive_ms: 10_000,
        }
    }
}

impl Default for Backpressure {
    fn default() -> Self {
        Self {
            max_unacked_tokens: 100,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            json: false,
        }
    }
}
