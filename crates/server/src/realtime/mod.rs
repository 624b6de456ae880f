//! `GET /v1/realtime/streams`: several streams over one WebSocket.
//!
//! ```text
//! handshake  a request        -> 101, for who may          settings  bounds
//! session    a socket         -> messages in, messages out, clocks
//! command    a text message   -> a `Command`               all bad fields at once
//! desk       a `Command`      -> what is done about it
//! lanes      streams          -> their messages, in turns
//! frames     events           -> messages                  the dialect
//! reply      answers and errors that are not a stream's
//! control_rate  how many pings a client may send
//! ```
//!
//! Each message is one JSON object with a `type`. The client says:
//!
//! ```text
//! open{body,dialect?,resumable?,acks?}     body as at the HTTP route of the dialect (native.job if none is named)
//! attach{stream,after?|from?,govern?}      after: a cursor, or an SSE id; from: tokens the client has
//! ack{stream,index,choice?}                the client has all tokens before index; or several: ack{acks:[{..},..]}
//! pause{stream} resume{stream} cancel{stream} detach{stream}
//! ```
//!
//! A `request` in any of them (a short text) comes back in what answers it; the last six are answered
//! (`ok`) only then. What cannot be done is an `error` that names the fields; the connection goes on. The
//! server says `welcome` once, `opened` or `attached`, and then of each stream, with its id in `stream`:
//!
//! ```text
//! queued{position}*  started{started_at}  (token{i,n?,t,choice?,logprobs?,cursor}
//!    | backpressure | slow_consumer | parked{reason} | resumed | choice_ended{choice,reason,..})*
//! ended{reason,stop_sequence?,error?,usage,cursor}      exactly once
//! ```
//!
//! These are the streams of every other route: listed, resumed, acknowledged and stopped there too, and
//! what is opened there can be attached to here. A `cursor` is a place to come back to, here or as SSE.
//!
//! Credit: a stream is asked for its next message when the socket took the one before (see
//! [`StreamBody`](crate::stream_body::StreamBody)); the library below holds at most that one. So a client
//! that does not read parks its own streams, and they alone. When the connection is lost, plain streams
//! are cancelled and resumable ones (jobs, unless they say otherwise) go on.

mod control_rate;
mod desk;
pub(crate) mod handles;
pub(crate) mod handshake;
mod lanes;
mod reply;
mod session;
mod settings;

pub use settings::RealtimeLimits;
