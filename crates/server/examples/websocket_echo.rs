//! A WebSocket that sends each text message back, for test suites that need one (`cargo xtask conformance autobahn`).
//!
//! The session is the server's own, `realtime/session.rs`: its library, its limits, its order of reading and writing, its close
//! codes. Only the handler of messages differs. The opening handshake is short: `test_websocket_frames.py` tests the server's.

#[path = "../src/realtime/message_gate.rs"]
mod message_gate;
#[path = "../src/realtime/session.rs"]
mod session;

use gateway::keys::Keys;
use handles::RealtimeHandles;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use session::Session;
use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The handles of a session: limits, and a shutdown that never comes.
mod handles {
    use super::message_gate::GateLimits;
    use server::RealtimeLimits;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    #[derive(Default)]
    pub(crate) struct RealtimeHandles {
        pub(crate) lifecycle: Lifecycle,
        pub(crate) config: Config,
    }

    pub(crate) struct Lifecycle(watch::Sender<bool>);

    pub(crate) struct Config {
        pub(crate) realtime: RealtimeLimits,
        pub(crate) keep_alive: Duration,
        pub(crate) body_timeout: Duration,
    }

    impl RealtimeHandles {
        /// No message has images.
        pub(crate) fn message_limits(&self) -> GateLimits {
            let max = self.config.realtime.message_bytes_max;
            GateLimits {
                plain_max: max,
                long_max: max,
                bodies: Arc::default(),
                bodies_max: 0,
                retry_after: Duration::ZERO,
            }
        }
    }

    impl Default for Lifecycle {
        fn default() -> Self {
            Self(watch::Sender::new(false))
        }
    }

    impl Lifecycle {
        pub(crate) fn drain_watch(&self) -> watch::Receiver<bool> {
            self.0.subscribe()
        }
    }

    impl Default for Config {
        fn default() -> Self {
            let realtime = RealtimeLimits::default();
            // No ping of the server's within a test: suites expect none.
            let keep_alive = realtime.idle;
            Self {
                realtime,
                keep_alive,
                body_timeout: realtime.idle,
            }
        }
    }

    impl Config {
        pub(crate) fn now(&self) -> &Self {
            self
        }
    }
}

/// The handler of messages: each is a reply.
mod session_handler {
    use super::handles::RealtimeHandles;
    use super::message_gate::LongMessage;
    use gateway::keys::Caller;
    use hyper::body::Bytes;
    use std::collections::VecDeque;
    use std::task::{Context, Poll};
    use tokio_tungstenite::tungstenite::Utf8Bytes;

    /// The server's limit of waiting replies.
    const REPLIES_MAX: usize = 32;

    pub(super) struct SessionHandler {
        pub(super) streams: NoStreams,
        pub(super) replies: VecDeque<Utf8Bytes>,
        /// Keeps the shutdown from coming.
        _handles: RealtimeHandles,
    }

    pub(super) struct NoStreams;

    impl SessionHandler {
        pub(super) fn new(handles: RealtimeHandles, _: Caller) -> Self {
            Self {
                streams: NoStreams,
                replies: VecDeque::new(),
                _handles: handles,
            }
        }

        pub(super) fn has_capacity(&self) -> bool {
            self.replies.len() < REPLIES_MAX
        }

        pub(super) fn handle_message(&mut self, text: &str, long: Option<LongMessage>) {
            let reply = match long {
                Some(Err(error)) => error.message,
                _ => text.to_owned(),
            };
            self.replies.push_back(reply.into());
        }
    }

    impl NoStreams {
        pub(super) fn len(&self) -> usize {
            0
        }

        pub(super) fn clear(&mut self) {}

        pub(super) fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Bytes> {
            Poll::Pending
        }
    }
}

/// Listens on a free port of 127.0.0.1, prints the URL, and runs until it is killed.
fn main() -> Result<(), Box<dyn Error>> {
    server::io_runtime(2)?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut out = std::io::stdout();
        writeln!(out, "ws://{}", listener.local_addr()?)?;
        out.flush()?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            tokio::spawn(serve(socket));
        }
    })
}

async fn serve(socket: TcpStream) {
    let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(open));
    // A connection that breaks is a case of the suites.
    let _ = connection.with_upgrades().await;
}

/// Answers the opening handshake, and runs the session.
async fn open(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let accept = key.map(|key| derive_accept_key(key.as_bytes()));
    let accept = accept.and_then(|accept| accept.parse().ok());
    let (Some(accept), Some(caller)) = (accept, Keys::anonymous().identify(None)) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(socket) = upgraded.await {
            let handles = RealtimeHandles::default();
            Session::start(handles, caller, socket).await.run().await;
        }
    });
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = [
        (CONNECTION, "upgrade".parse().ok()),
        (UPGRADE, "websocket".parse().ok()),
        (SEC_WEBSOCKET_ACCEPT, Some(accept)),
    ];
    for (name, value) in fields {
        response
            .headers_mut()
            .extend(value.map(|value| (name, value)));
    }
    Ok(response)
}
