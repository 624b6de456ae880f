//! From sockets to engine requests, and from token logs to bytes.
//!
//! A request becomes plainer on each floor of this crate:
//!
//! ```text
//! serve     a socket            -> an HTTP request        limits on connections, headers, time
//! door      an HTTP request     -> a `Caller`             host, key, scope
//! intake    a body              -> bytes                  limits on size and time
//! arrival   its model's name    -> a `Held`              the model, when it is loaded
//! submit    bytes               -> an `Opened`            the next three floors, for every format
//! wire      JSON fields         -> a `GenerateRequest`   all bad fields at once
//! admission a `GenerateRequest` -> a `Permit`             or a position in the queue, or when to come back
//! open      a `GenerateRequest` -> an `Opened`           registered under an id of its own
//! launch    prompt ids          -> a `Generation`         by crate `generate`: rendered, constrained, submitted
//! wire      events              -> bytes                  one encoder per wire protocol
//! ```
//!
//! A [`Generation`](gateway::generation::Generation) tells what happened as a sequence of events. A stream
//! frames them as they come; a whole answer collects the very same events and is written at the
//! end. There is no second path.
//!
//! Everything async of Millrace is in here. Threads: few named `io-*` (see [`io_runtime`]); their
//! number does not depend on how many clients or streams there are.

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
mod gateway;
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
