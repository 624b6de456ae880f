//! Bounds and time limits.

use super::address::UpstreamAddress;
use engine::remote::RemoteInbox;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one event of a response.
pub(crate) const EVENT_BYTES_MAX: usize = 1 << 20;
/// Token ids in one event.
pub(crate) const EVENT_TOKENS_MAX: usize = 4096;
/// Bytes of an error response that are read, for the log.
pub(crate) const ERROR_BYTES_MAX: usize = 4096;
/// Reports of calls that wait for the relay.
pub(crate) const REPORTS_MAX: usize = 256;

/// Upstreams of one model, and how they are used.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// At least one.
    pub addresses: Vec<UpstreamAddress>,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// Time to connect.
    pub connect_max: Duration,
    /// Time to the head of the response, which vLLM sends with the first token.
    pub head_max: Duration,
    /// Time without a byte of the body, after which the upstream counts as dead.
    pub silence_max: Duration,
    /// Time that a choice without an upstream waits for one.
    pub unplaced_max: Duration,
    /// Pause after a failed call; doubled with each further one, up to ten times.
    pub retry: Duration,
    /// Accepted calls without a token in between that may be cut before the choice fails: a request may be the reason.
    pub crashes_max: u32,
}

impl UpstreamConfig {
    /// These upstreams without a key.
    pub fn new(addresses: Vec<UpstreamAddress>) -> Self {
        Self {
            addresses,
            api_key: None,
            connect_max: Duration::from_secs(5),
            head_max: Duration::from_secs(600),
            silence_max: Duration::from_secs(120),
            unplaced_max: Duration::from_secs(60),
            retry: Duration::from_millis(200),
            crashes_max: 3,
        }
    }
}

/// A model whose requests upstreams compute.
pub struct UpstreamModel {
    /// Name of the model in requests to upstreams.
    pub name: String,
    /// Ids that end an answer: the last id of an answer that stopped is left out if it is one of these.
    pub eos: Arc<[u32]>,
    /// Requests of the model's handle.
    pub inbox: RemoteInbox,
}
