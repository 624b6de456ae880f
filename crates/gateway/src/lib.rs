//! API keys, streams and models: which owner a stream has, where its tokens come from, and how it is resumed.
//!
//! A request arrives parsed by crate `wire` and leaves as a [`Generation`](generation::Generation), which yields the
//! events of one reader:
//!
//! ```text
//! open        a body -> an `OpenedStream`: parsed, admitted, registered by id     keys       callers, scopes, rate limits
//! pending_generation   a permit -> a started generation                          limits     limits that can change while the server runs
//! launch      prompt ids -> engine requests, by crate `generate`                 streams    the registry of streams, and the journal
//! generation  one reader's events, with credit and metrics                       models     models: loaded, resolved, evicted
//! records     records of streams as bytes of the journal                         recovery   streams of an earlier process
//! workflows   runs of programs, as streams                                       metrics    counters of generations
//! media       threads that decode images, and bounds of bytes                  requested_images   images of one request
//! described_images   images that another model describes for a model that sees none
//! read_request   a request whose fields were parsed                         remote_images   images on other servers
//! requested_delivery   priority, deadline and resumption of a stream
//! stored      answers that are stored
//! stream_owners   streams of other gateways
//! takeover    streams of gateways that stop, or are gone
//! ended       reports of ends, for clients that left                             webhooks   events, and their deliveries
//! ```
//!
//! No HTTP: crate `server` maps requests, connections and responses to this crate. Time is read through `wire::clock`
//! and tokio's timers.

pub(crate) mod described_images;
pub mod ended;
pub mod generation;
pub mod handles;
pub mod id_generator;
pub mod job_names;
pub mod keys;
pub mod lifecycle;
pub mod lifetime_stats;
pub mod limits;
mod locks;
pub mod media;
pub mod metrics;
pub mod models;
pub mod open;
pub mod owners_slot;
pub(crate) mod pending_generation;
pub(crate) mod read_request;
pub mod records;
pub mod recovery;
pub mod remote_images;
pub(crate) mod requested_delivery;
pub mod requested_images;
pub mod stored;
pub mod stream_owners;
pub mod streams;
pub mod takeover;
pub mod webhooks;
pub mod workflows;
