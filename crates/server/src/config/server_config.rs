//! Limits and timeouts of the server.

use crate::access::origins::Origins;
use crate::realtime::RealtimeLimits;
use admission::{AdaptiveLimits, QueueLimits, Reservation};
use cluster::forecast::ScaleTarget;
use gateway::keys::PrefixSharing;
use gateway::limits::{GatewayLimits, ModelLimits, ResponseLimits, StreamClocks};
use gateway::streams::StreamLimits;
use gateway::webhooks::WebhookSettings;
use generate::sampling::SamplingDefaults;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use wire::openai::chat_encoder::ReasoningField;

/// Every limit and timeout of the server. The defaults suit a server that is reached directly, without a reverse
/// proxy; tests use smaller values.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Address to listen on. The caller checks whether this address is allowed without API keys.
    pub bind: SocketAddr,
    /// Host names that are accepted, in addition to the names of this machine; `"*"` accepts all. If the list is
    /// empty, a server that listens on loopback accepts the names of this machine, and any other server accepts all
    /// names.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use this server, in addition to pages of this machine.
    pub origins: Origins,
    /// Whether the web page is served.
    pub page: bool,
    /// Prefix of all paths: empty, or a path without a slash at the end.
    pub api_prefix: String,
    /// Open connections; one more is rejected with 503 and closed.
    pub connections_max: usize,
    /// Open connections of one address; one more is rejected with 429 and closed.
    pub connections_per_ip_max: usize,
    /// Requests from parsing to the last byte of the response, including requests that wait for admission; one more
    /// is rejected with 503.
    pub open_requests_max: usize,
    /// Time that a request's head may take, and that a kept-alive connection may be idle.
    pub header_timeout: Duration,
    /// Bytes of a request's head.
    pub header_bytes_max: usize,
    /// Header fields of a request.
    pub headers_max: usize,
    /// Time that a request's body may take.
    pub body_timeout: Duration,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of the body of a request for an answer, which may have images; at least `body_bytes_max`.
    pub media_body_bytes_max: usize,
    /// Bytes of all bodies longer than `body_bytes_max` together.
    pub media_bodies_bytes_max: u64,
    /// Bytes of files and pixels of images that requests have together.
    pub pixels_bytes_max: u64,
    /// Bytes that decoding images may hold.
    pub decode_bytes_max: u64,
    /// Longer bodies are rendered and tokenized as offloaded work, outside the I/O threads.
    pub inline_prompt_bytes_max: usize,
    /// Bytes that this process may buffer for a connection, in each direction.
    pub connection_buffer_bytes: usize,
    /// The kernel's send buffer of a connection (`SO_SNDBUF`; the kernel doubles it).
    pub send_buffer_bytes: usize,
    /// Bytes of the send buffer during a response of known length that is longer than `send_buffer_bytes`.
    pub answer_buffer_bytes: usize,
    /// Bytes that the kernel may hold of such responses, on all connections together; further responses are sent with
    /// `send_buffer_bytes`.
    pub answer_buffers_bytes_max: usize,
    /// Unsent bytes after which the kernel accepts no more (`TCP_NOTSENT_LOWAT`).
    pub unsent_bytes_max: u32,
    /// Connections that the kernel may hold before they are accepted.
    pub backlog: u32,
    /// Time without an event after which a stream writes a keep-alive (`: ping`).
    pub keep_alive: Duration,
    /// The credit window: tokens that a sequence may be ahead of the socket; 0 = no limit.
    pub credit_window: u64,
    /// The concurrency limit.
    pub adaptive_limits: AdaptiveLimits,
    /// The admission queue.
    pub queue: QueueLimits,
    /// KV cache memory that is reserved for a running stream.
    pub reservation: Reservation,
    /// Timeouts of requests.
    pub clocks: StreamClocks,
    /// Retention of streams, and their limits while detached.
    pub streams: StreamLimits,
    /// Stored responses: how many, and how many bytes.
    pub responses: ResponseLimits,
    /// Models that are loaded on demand: how many, and for how long.
    pub models: ModelLimits,
    /// Time between two snapshots of the metrics in `/v1/streams/feed`, and between two exports to a collector.
    pub metrics_export_interval: Duration,
    /// Aims for which the number of engines in the metrics is computed.
    pub scale: ScaleTarget,
    /// Time between two readings of the counters for the forecast of demand.
    pub demand_interval: Duration,
    /// Directory with workflows, if any.
    pub workflows: Option<PathBuf>,
    /// The field of a chat message that holds the reasoning.
    pub reasoning_field: ReasoningField,
    /// Whether objects of structured output have only the members in `properties` of their schema, where neither
    /// schema nor request specifies otherwise.
    pub closed_objects: bool,
    /// Sampling parameters of requests that set none, before those that a model recommends.
    pub sampling: SamplingDefaults,
    /// Which API keys share the prefix cache.
    pub prefix_sharing: PrefixSharing,
    /// Webhooks: allowed hosts, and limits.
    pub webhooks: WebhookSettings,
    /// Limits of WebSockets.
    pub realtime: RealtimeLimits,
    /// `Retry-After` of a rejected request, as long as nothing was measured.
    pub retry_after: Duration,
    /// The drain time: how long running requests may continue after the shutdown has begun.
    pub drain: Duration,
    /// Time after the drain time in which connections may send their last bytes.
    pub drain_flush: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            hosts: Vec::new(),
            origins: Origins::default(),
            page: true,
            api_prefix: String::new(),
            connections_max: 4096,
            connections_per_ip_max: 1024,
            open_requests_max: 512,
            header_timeout: Duration::from_secs(15),
            header_bytes_max: 16 << 10,
            headers_max: 64,
            body_timeout: Duration::from_secs(30),
            body_bytes_max: 4 << 20,
            media_body_bytes_max: 32 << 20,
            media_bodies_bytes_max: 256 << 20,
            pixels_bytes_max: 512 << 20,
            decode_bytes_max: 384 << 20,
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
            scale: ScaleTarget::default(),
            demand_interval: Duration::from_secs(15),
            reasoning_field: ReasoningField::default(),
            closed_objects: true,
            sampling: SamplingDefaults::default(),
            prefix_sharing: PrefixSharing::default(),
            webhooks: WebhookSettings::default(),
            realtime: RealtimeLimits::default(),
            retry_after: Duration::from_secs(1),
            drain: Duration::from_secs(20),
            drain_flush: Duration::from_secs(2),
        }
    }
}

impl ServerConfig {
    /// The limits of the gateway.
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
            sampling: self.sampling,
            prefix_sharing: self.prefix_sharing,
            pixels_bytes_max: self.pixels_bytes_max,
            decode_bytes_max: self.decode_bytes_max,
            retry_after: self.retry_after,
            drain: self.drain,
        }
    }
}
