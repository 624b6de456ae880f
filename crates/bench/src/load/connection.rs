//! Connection pool of the client.

use super::options::LoadError;
use super::request_trace::Failure;
use super::target::Target;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;

type Sender = SendRequest<Full<Bytes>>;

/// Idle connections to one server, at most as many as requests were in flight.
pub(super) struct Connections {
    target: Target,
    idle: Mutex<Vec<Sender>>,
}

impl Connections {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            idle: Mutex::default(),
        }
    }

    /// Sends a request on an idle connection, or else on a new one. Returns the response head and the
    /// connection; pass the connection to [`Self::return_idle`] after the body was read to the end.
    pub(crate) async fn send(
        &self,
        request: &Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        if let Some(mut sender) = self.take_idle() {
            // The server may have closed the idle connection, which is no failure.
            if let Ok(response) = sender.send_request(request.clone()).await {
                return Ok((response, sender));
            }
        }
        let mut sender = self.connect().await.map_err(|_| Failure::Connect)?;
        let response = sender.send_request(request.clone()).await;
        response
            .map(|response| (response, sender))
            .map_err(|_| Failure::Cut)
    }

    pub(crate) fn return_idle(&self, sender: Sender) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }

    async fn connect(&self) -> Result<Sender, LoadError> {
        let socket = TcpStream::connect(&self.target.authority)
            .await
            .map_err(LoadError::of)?;
        socket.set_nodelay(true).map_err(LoadError::of)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(LoadError::of)?;
        // The connection task ends with the sender or the server.
        tokio::spawn(connection);
        sender.ready().await.map_err(LoadError::of)?;
        Ok(sender)
    }
}
