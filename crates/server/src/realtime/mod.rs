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
mod handshake;
mod lanes;
mod reply;
mod session;
mod settings;

pub use settings::RealtimeLimits;

use crate::app::App;
use crate::gateway::lifecycle::Lifecycle;
use crate::gateway::lives::Lives;
use crate::live_config::LiveConfig;
use crate::stream_response::StreamResponder;
use crate::wire::clock;
use axum::Router;
use axum::routing::get;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The routes.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/v1/realtime/streams", get(handshake::enter))
}

/// Handles that a WebSocket uses.
#[derive(Clone)]
pub(crate) struct RealtimeHandles {
    pub(crate) responder: StreamResponder,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) config: Arc<LiveConfig>,
    pub(crate) sockets: Sockets,
}

/// The WebSockets that are open.
#[derive(Clone)]
pub(crate) struct Sockets(Arc<Mutex<Lives>>);

/// The right to have one, given back by its drop.
struct Place(Arc<Mutex<Lives>>);

impl Sockets {
    /// One more, if that is not more than `max`.
    ///
    /// # Errors
    /// When there may be room for it.
    fn enter(&self, max: usize) -> Result<Place, Duration> {
        locked(&self.0).begin(1, max, clock::now())?;
        Ok(Place(Arc::clone(&self.0)))
    }
}

impl Default for Sockets {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Lives::new(clock::now()))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.0).end(1, clock::now());
    }
}

fn locked(lives: &Mutex<Lives>) -> MutexGuard<'_, Lives> {
    lives.lock().unwrap_or_else(PoisonError::into_inner)
}
