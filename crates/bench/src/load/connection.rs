//! Connections to the server, kept for the next request.

use super::options::LoadError;
use super::story::Failure;
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

/// Idle connections to one server; never more than requests were in flight.
pub(crate) struct Connections {
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

    /// Sends a request, on a connection that is open if there is one. The connection comes back
    /// with the answer's head; give it to [`Self::keep`] when the body was read to its end.
    pub(crate) async fn send(
        &self,
        request: &Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        if let Some(mut sender) = self.take() {
            // The server may have closed it meanwhile: that is no failure of the server's.
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

    pub(crate) fn keep(&self, sender: Sender) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
    }

    fn take(&self) -> Option<Sender> {
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
        // It ends with its sender, or with the server.
        tokio::spawn(connection);
        sender.ready().await.map_err(LoadError::of)?;
        Ok(sender)
    }
}
