//! From sockets to generation requests, and from typed events to bytes: HTTP, WebSockets and metrics.
//!
//! The path of a request through this crate and the crates below:
//!
//! ```text
//! serve            a socket           -> a connection          connection limits
//! connection       bytes              -> an HTTP request       limits of header size and time
//! authentication   an HTTP request    -> a `Caller`            host allow-list, API key, scope
//! extract          an HTTP request    -> header fields, body   rate limit, limits of size and time
//! incoming_request the `model` field  -> a `ModelLease`        once the model is loaded
//! wire             JSON fields        -> a `GenerateRequest`   all invalid fields at once
//! admission        a `GenerateRequest` -> a `Permit`           or a queue position, or an error with `Retry-After`
//! generate         prompt token ids   -> a `Generation`        rendered, constrained, submitted to the engine
//! wire             events             -> bytes                 one encoder per wire protocol
//! ```
//!
//! A [`Generation`](gateway::generation::Generation) is a sequence of events. A streamed response encodes each event
//! as a frame; a non-streaming response collects the events of the same stream. There is no second path.
//!
//! The server runs on few threads named `io-*` (see [`io_runtime`]); their
//! number does not depend on the number of clients or streams.

mod app;
mod authentication;
mod collected_response;
mod config;
mod connection;
mod connection_limiter;
mod cross_origin;
mod deferred_response;
mod embeddings;
mod error_response;
mod extract;
mod health;
mod heartbeats;
mod host_allow_list;
mod incoming_request;
mod keep_alive;
mod live_config;
mod loading_progress;
mod metrics;
mod model_lookup;
mod openapi;
mod origins;
#[cfg(feature = "otlp")]
mod otlp;
mod paths;
mod presented_key;
mod realtime;
mod reconfigure;
mod request_body;
mod request_headers;
mod router;
mod routes;
mod runtime;
mod serve;
mod socket;
mod stream_body;
mod stream_response;
mod unadmitted;
mod upgrade;
mod vocabulary;

pub use config::ServerConfig;
pub use gateway::admission::{AdaptiveLimits, QueueLimits, Reservation};
pub use gateway::keys::{
    KEYS_MAX, Key, KeyHash, KeyLimits, KeyProblem, Keys, PrefixSharing, Scope, Scopes,
};
pub use gateway::metrics::StepMetrics;
pub use gateway::response_limits::ResponseLimits;
pub use gateway::served::{
    DerivedModel, Library, LibraryError, LoadPhase, LoadProgress, LoadedModel, Loading, LocalModel,
    ModelFacts, ModelLimits, PullNews, ServedModel,
};
pub use gateway::stream_clocks::StreamClocks;
pub use gateway::streams::StreamLimits;
pub use generate::model_handle::ModelHandle;
pub use origins::Origins;
#[cfg(feature = "otlp")]
pub use otlp::OtlpTarget;
pub use realtime::RealtimeLimits;
pub use reconfigure::Reconfigure;
pub use runtime::io_runtime;
pub use serve::{Drained, Server};
pub use wire::openai::chat_encoder::ReasoningField;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: testing::heap::CountingAllocator = testing::heap::CountingAllocator;
