//! From sockets to generation requests, and from typed events to bytes: HTTP, WebSockets and metrics.
//!
//! The path of a request through this crate and the crates below:
//!
//! ```text
//! accept_loop      a socket           -> a connection          connection limits
//! connection       bytes              -> an HTTP request       limits of header size and time
//! authentication   an HTTP request    -> a `Caller`            host allow-list, API key, scope
//! extract          an HTTP request    -> header fields, body   rate limit, limits of size and time
//! model_lookup     the `model` field  -> a `ModelLease`        once the model is loaded
//! wire             JSON fields        -> a `GenerateRequest`   all invalid fields at once
//! admission        a `GenerateRequest` -> a `Permit`           or a queue position, or an error with `Retry-After`
//! generate         prompt token ids   -> a `Generation`        rendered, constrained, submitted to the engine
//! wire             events             -> bytes                 one encoder per wire protocol
//! ```
//!
//! A [`Generation`](gateway::generation::Generation) is a sequence of events. A streamed response encodes each event
//! as a frame; a non-streaming response collects the events of the same stream. There is no second path.
//!
//! The server runs on few threads named `io-*` (see [`io_runtime`]); their number does not depend on the number of
//! clients or streams.
//!
//! | folder | content |
//! |---|---|
//! | `access` | API keys, host allow-list, origins of web pages |
//! | `config` | limits and timeouts, and their changes at run time |
//! | `connection` | sockets: limits, options, chunked responses, upgrades |
//! | `request` | paths, header fields, bodies, the model that a request names |
//! | `response` | streaming, non-streaming and deferred responses, errors |
//! | `routes` | handlers by API |
//! | `peers` | other instances of the cluster, asked over HTTP |
//! | `embeddings`, `health`, `realtime` | embeddings, health probes, WebSockets |
//! | `metrics` | Prometheus text |
//! | `openapi` | the API description |

mod accept_loop;
mod access;
mod app;
mod config;
mod connection;
mod embeddings;
mod health;
mod metrics;
mod openapi;
mod peers;
mod realtime;
mod request;
mod request_line;
mod response;
mod router;
mod routes;
mod serve;

pub use accept_loop::Drained;
pub use access::origins::Origins;
pub use admission::{AdaptiveLimits, QueueLimits, Reservation};
pub use cluster::forecast::ScaleTarget;
pub use config::reconfigure::Reconfigure;
pub use config::server_config::ServerConfig;
#[cfg(fuzzing)]
pub use connection::in_memory::InMemoryServer;
pub use connection::tls::TlsCertificate;
pub use gateway::keys::{
    KEYS_MAX, Key, KeyHash, KeyLimits, KeyProblem, Keys, PrefixSharing, Scope, Scopes,
};
pub use gateway::limits::{ModelLimits, ResponseLimits, StreamClocks};
pub use gateway::media::{
    DescriptionCache, DescriptionRequest, OnFailure, VisionProxy, VisionServer,
    bounded as bounded_description,
};
pub use gateway::metrics::StepMetrics;
pub use gateway::models::{
    DerivedModel, DeviceName, EngineAbsence, EngineArithmetic, EngineSight, Library, LibraryError,
    LoadError, LoadPhase, LoadProgress, LoadedModel, Loading, LocalModel, ModelFacts,
    ModelIdentity, ModelTask, PullNews, ServedModel, TowerFacts,
};
pub use gateway::owners_slot::OwnerState;
pub use gateway::records::{
    DescriptionError, DescriptionKind, RecordedPrompts, StreamDescription, end_words,
    files_of_description, is_rejection, key_of_description,
};
pub use gateway::recovery::StartingJournal;
pub use gateway::remote_images::{RemoteHost, RemoteImages};
pub use gateway::stored::{StoredSummary, is_stored_answer};
pub use gateway::stream_owners::RecordsSetup;
pub use gateway::streams::StreamLimits;
pub use gateway::webhooks::{
    HostPattern, SECRETS_MAX, WebhookSecret, WebhookSecrets, WebhookSettings,
};
pub use generate::model_handle::ModelHandle;
pub use generate::sampling::{SamplingDefaults, SamplingParameter};
pub use openapi::text as openapi_document;
pub use realtime::RealtimeLimits;
pub use serve::{Server, io_runtime};
pub use wire::openai::chat_encoder::ReasoningField;

use std::sync::{Arc, OnceLock};

/// This process in a cluster; empty in a process of its own.
type ClusterSlot = Arc<OnceLock<Arc<cluster::node::ClusterNode>>>;

/// The upstreams of this process; empty where an engine computes.
type UpstreamSlot = Arc<OnceLock<Arc<upstream::UpstreamStatus>>>;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: testing::heap::CountingAllocator = testing::heap::CountingAllocator;
