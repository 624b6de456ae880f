//! `GET /v1/realtime/streams`: several streams over one WebSocket.
//!
//! ```text
//! handshake            an HTTP request    -> a WebSocket (101)
//! handles              what a WebSocket uses, and its limits
//! message_gate         bytes              -> frames of messages that are within the bounds
//! session              a socket           -> messages in, messages out, timers; streams take turns
//! session_handler      a `Command`        -> an effect and a reply
//! ```
//!
//! The crate `wire` parses commands (`realtime_command`) and encodes events (`realtime_encoder`). Each message is one
//! JSON object with a `type`. Messages of the client:
//!
//! ```text
//! open{body,dialect?,resumable?,acks?}     body as at the HTTP route of the dialect (default native.job)
//! attach{stream,after?|from?,govern?}      after: a cursor, or an SSE id; from: tokens the client has
//! ack{stream,index,choice?}                the client has all tokens before index; or several: ack{acks:[{..},..]}
//! pause{stream} resume{stream} cancel{stream} detach{stream}
//! ```
//!
//! Any message may have a `request` (a short text), which the reply repeats; the last six are replied to (`ok`) only
//! then. A failed command is replied to with an `error` that names the fields; the connection stays open. The server
//! sends `welcome` once, `opened` or `attached`, and then the events of each stream, with the stream id in `stream`:
//!
//! ```text
//! queued{position}*  started{started_at}  (token{i,n?,t,choice?,logprobs?,cursor}
//!    | backpressure | slow_consumer | parked{reason} | resumed | choice_ended{choice,reason,..})*
//! ended{reason,stop_sequence?,error?,usage,cursor}      exactly once
//! ```
//!
//! These are the streams of all other routes: a stream opened here can be listed, resumed, acknowledged and cancelled
//! over HTTP, and a stream opened over HTTP can be attached here. A `cursor` is valid here and as an SSE id.
//!
//! Credit: a stream is polled for the next message when the socket took the previous one (see
//! [`StreamBody`](crate::response::stream_body::StreamBody)); the WebSocket library holds at most that one. So a client that
//! does not read parks only the streams of this WebSocket. When the connection is lost, streams that are not
//! resumable are cancelled; resumable ones (jobs by default) continue.

pub(crate) mod handles;
pub(crate) mod handshake;
mod message_gate;
mod session;
mod session_handler;

use std::time::Duration;

/// Limits of WebSockets (`realtime.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeLimits {
    /// Open WebSockets; one more is rejected with 503.
    pub connections_max: usize,
    /// Streams attached to one WebSocket; one more is an error.
    pub streams_max: usize,
    /// Bytes of a message of the client, images not counted; a longer one is an error.
    pub message_bytes_max: usize,
    /// Time without any message, including pongs, after which the connection is closed.
    pub idle: Duration,
}

impl Default for RealtimeLimits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            streams_max: 64,
            message_bytes_max: 1 << 20,
            idle: Duration::from_secs(60),
        }
    }
}
