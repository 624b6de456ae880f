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
//! openai    JSON fields         -> an `Ask`               all bad fields at once
//! admission an `Ask`            -> a `Permit`             or a place in the queue, or when to come back
//! open      an `Ask`            -> an `Opened`           registered under a name of its own
//! prepare   an `Ask`            -> prompt ids             rendered, tokenised, measured
//! launch    prompt ids          -> a `Generation`         logs opened, submitted to the engine
//! fold      token ids           -> text, reasoning, calls, log-probabilities
//! dialect   events              -> bytes                  one per wire format
//! ```
//!
//! A [`Generation`](generation::Generation) tells what happened as a sequence of events. A stream
//! frames them as they come; a whole answer collects the very same events and is written at the
//! end. There is no second path.
//!
//! Everything async of Millrace is in here. Threads: few named `io-*` (see [`io_runtime`]); their
//! number does not depend on how many clients or streams there are.

mod admission;
mod allowed;
mod anthropic;
mod apart;
mod arrival;
mod ask;
mod begin;
mod channels;
mod choice_reader;
mod clock;
mod codings;
mod config;
mod connection;
mod cross_origin;
mod dialect;
mod door;
mod edit_distance;
mod embeddings;
mod error;
mod event;
mod feed;
mod field_table;
mod fields;
mod fold;
mod following;
mod form;
mod format;
mod frame_buffer;
mod framing;
mod generation;
mod health;
mod heartbeats;
mod host;
mod ident;
mod intake;
mod json;
mod keep_alive;
mod keys;
mod later;
mod launch;
mod live_config;
mod lives;
mod load_watch;
mod masks;
mod metrics;
mod native;
mod ollama;
mod open;
mod openai;
mod openapi;
mod origins;
#[cfg(feature = "otlp")]
mod otlp;
mod pace;
mod paths;
mod peers;
mod permitless;
mod prepare;
mod prompt_room;
mod readiness;
mod reading;
mod realtime;
mod reconfigure;
mod refold;
mod refusal;
mod responses;
mod router;
mod runtime;
mod scored;
mod serve;
mod served;
mod socket;
mod spelled;
mod stream_body;
mod stream_clocks;
mod streams;
mod strict;
mod submit;
mod terminator;
#[cfg(test)]
#[path = "../tests/support/counting.rs"]
mod test_allocator;
#[cfg(test)]
#[path = "../tests/support/vocab.rs"]
mod test_vocab;
mod thinking;
mod thinking_request;
mod tools;
mod upgrade;
mod vocabulary;
mod whole;
mod workflows;

pub use admission::{AdaptiveLimits, QueueLimits, Reservation};
pub use config::ServerConfig;
pub use keys::{KEYS_MAX, Key, KeyHash, KeyLimits, KeyProblem, Keys, PrefixSharing, Scope, Scopes};
pub use metrics::StepMetrics;
pub use openai::chat_frames::ReasoningField;
pub use origins::Origins;
#[cfg(feature = "otlp")]
pub use otlp::OtlpTarget;
pub use realtime::RealtimeLimits;
pub use reconfigure::Reconfigure;
pub use responses::ResponseLimits;
pub use runtime::io_runtime;
pub use serve::{Drained, Server};
pub use served::{
    Library, LibraryError, LoadPhase, LoadProgress, LoadedModel, Loading, LocalModel, Made,
    ModelFacts, ModelLimits, PullNews, ServedModel,
};
pub use stream_clocks::StreamClocks;
pub use streams::StreamLimits;
