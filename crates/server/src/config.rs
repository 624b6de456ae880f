//! The server's bounds and clocks, each with its name.

use crate::gateway::admission::{AdaptiveLimits, QueueLimits, Reservation};
use crate::gateway::keys::PrefixSharing;
use crate::gateway::limits::GatewayLimits;
use crate::gateway::response_limits::ResponseLimits;
use crate::gateway::served::ModelLimits;
use crate::gateway::stream_clocks::StreamClocks;
use crate::gateway::streams::StreamLimits;
use crate::origins::Origins;
use crate::realtime::RealtimeLimits;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use wire::openai::chat_encoder::ReasoningField;

/// Every bound and clock of the server. The defaults suit a machine that serves the open network
/// behind nothing; tests shrink them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where to listen. Whether this address is allowed without keys is the caller's check.
    pub bind: SocketAddr,
    /// Names this server answers to, beside this machine's own; `"*"` = any. Without one, a server
    /// that only this machine can reach answers to this machine's names, any other to every name.
    pub hosts: Vec<String>,
    /// Web pages that may use this server, beside those of this machine.
    pub origins: Origins,
    /// Connections open at one time; one more is told 503 and closed.
    pub connections_max: usize,
    /// Connections open at one time from one address; one more is told 429 and closed.
    pub connections_per_ip_max: usize,
    /// Requests between "parsed" and "last byte handed over", those that wait for a permit included;
    /// one more is told 503.
    pub open_requests_max: usize,
    /// How long a request's head may take, and how long a kept-alive connection may be idle.
    pub header_timeout: Duration,
    /// Bytes of a request's head.
    pub header_bytes_max: usize,
    /// Header fields of a request.
    pub headers_max: usize,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bodies longer than this are rendered and tokenised off the io threads.
    pub inline_prompt_bytes_max: usize,
    /// Bytes a connection may have buffered in this process, in each direction.
    pub connection_buffer_bytes: usize,
    /// The kernel's send buffer of a connection (`SO_SNDBUF`; the kernel doubles it).
    pub send_buffer_bytes: usize,
    /// Bytes of the send buffer while an answer of known length is sent that is longer than `send_buffer_bytes`.
    pub answer_buffer_bytes: usize,
    /// Bytes the kernel may hold of such answers, all connections together; answers beyond are sent with
    /// `send_buffer_bytes`.
    pub answer_buffers_bytes_max: usize,
    /// Bytes the kernel may hold unsent before it stops taking more (`TCP_NOTSENT_LOWAT`).
    pub unsent_bytes_max: u32,
    /// Connections the kernel may hold that were not accepted yet.
    pub backlog: u32,
    /// A stream that said nothing for this long says `: ping`.
    pub keep_alive: Duration,
    /// Tokens a sequence may be ahead of what its reader's socket took; 0 = no limit.
    pub credit_window: u64,
    /// How many streams may run at one time.
    pub adaptive_limits: AdaptiveLimits,
    /// Where others wait for that.
    pub queue: QueueLimits,
    /// How much memory for keys and values a running stream is counted with.
    pub reservation: Reservation,
    /// When a request has taken too long.
    pub clocks: StreamClocks,
    /// Named streams: how many, how long they are kept, what they may do without a client.
    pub streams: StreamLimits,
    /// Responses that are kept: how many, how many bytes.
    pub responses: ResponseLimits,
    /// Models that are loaded on demand: how many, for how long.
    pub models: ModelLimits,
    /// Time between two snapshots of all figures in `/v1/streams/feed`, and between two messages to a collector.
    pub metrics_export_interval: Duration,
    /// The collector that figures are sent to, if any.
    #[cfg(feature = "otlp")]
    pub otlp: Option<crate::otlp::OtlpTarget>,
    /// Folder with workflows, if there is one.
    pub workflows: Option<PathBuf>,
    /// In which field of a chat message its reasoning is told.
    pub reasoning_field: ReasoningField,
    /// Objects have no other members than their schemas' `properties`, where neither schema nor request says
    /// otherwise.
    pub closed_objects: bool,
    /// Which keys share cached prompts.
    pub prefix_sharing: PrefixSharing,
    /// WebSockets: how many, how large, how quiet.
    pub realtime: RealtimeLimits,
    /// What a caller who came over a limit is told to wait, as long as nothing was measured.
    pub retry_after: Duration,
    /// How long running requests may go on after shutdown was asked for.
    pub drain: Duration,
    /// How long, after that, connections may take to hand over their last bytes.
    pub drain_flush: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            hosts: Vec::new(),
            origins: Origins::default(),
            connections_max: 4096,
            connections_per_ip_max: 1024,
            open_requests_max: 512,
            header_timeout: Duration::from_secs(15),
            header_bytes_max: 16 << 10,
            headers_max: 64,
            body_timeout: Duration::from_secs(30),
            body_bytes_max: 4 << 20,
            inline_prompt_bytes_max: 16 << 10,
            connection_buffer_bytes: 16 << 10,
            send_buffer_bytes: 32 << 10,
            answer_buffer_bytes: 512 << 10,
            answer_buffers_bytes_max: 256 << 20,
            unsent_bytes_max: 16 << 10,
            backlog: 1024,
            keep_alive: Duration::from_secs(10),
            credit_window: 100,
            adaptive_limits: AdaptiveLimits::default(),
            queue: QueueLimits::default(),
            reservation: Reservation::default(),
            clocks: StreamClocks::default(),
            streams: StreamLimits::default(),
            responses: ResponseLimits::default(),
            models: ModelLimits::default(),
            workflows: None,
            metrics_export_interval: Duration::from_secs(10),
            #[cfg(feature = "otlp")]
            otlp: None,
            reasoning_field: ReasoningField::default(),
            closed_objects: true,
            prefix_sharing: PrefixSharing::default(),
            realtime: RealtimeLimits::default(),
            retry_after: Duration::from_secs(1),
            drain: Duration::from_secs(20),
            drain_flush: Duration::from_secs(2),
        }
    }
}

impl ServerConfig {
    /// The limits that the gateway works under.
    pub(crate) fn gateway_limits(&self) -> GatewayLimits {
        GatewayLimits {
            open_requests_max: self.open_requests_max,
            inline_prompt_bytes_max: self.inline_prompt_bytes_max,
            credit_window: self.credit_window,
            adaptive_limits: self.adaptive_limits,
            queue: self.queue,
            reservation: self.reservation,
            clocks: self.clocks,
            streams: self.streams,
            responses: self.responses,
            models: self.models,
            reasoning_field: self.reasoning_field,
            closed_objects: self.closed_objects,
            prefix_sharing: self.prefix_sharing,
            retry_after: self.retry_after,
            drain: self.drain,
        }
    }
}
