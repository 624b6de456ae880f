//! One request to another instance, on a connection of its own.

use super::{PassedRequest, Peer, Peers};
use axum::body::Body;
use http::Request;
use http::Response;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time for a connection to another instance.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Sends a caller's request to an instance, and returns the response when its head has arrived. The connection is closed
/// when the body is dropped.
///
/// # Errors
/// The instance has no address that is trusted, is not reachable, breaks off, or is a gateway without the secret.
pub(crate) async fn ask(
    peers: &Peers,
    peer: &Peer,
    request: &PassedRequest,
) -> Result<Response<Incoming>, String> {
    let address = peer.address.as_deref().map_err(|why| (*why).to_owned())?;
    let secret = peers.trust().map(|trust| &trust.secret);
    let (request, expected) = request.build(peer, address, secret)?;
    let mut response = send(address, request).await?;
    if let Some(expected) = expected {
        expected.check(&mut response)?;
    }
    Ok(response)
}

async fn send(address: &str, request: Request<Body>) -> Result<Response<Incoming>, String> {
    let connected = timeout(CONNECT_WAIT, TcpStream::connect(address)).await;
    let socket = connected
        .map_err(|_| "no connection in time".to_owned())?
        .map_err(|why| why.to_string())?;
    socket.set_nodelay(true).map_err(|why| why.to_string())?;
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut peer, connection) = connection.map_err(|why| why.to_string())?;
    tokio::spawn(connection);
    let response = peer.send_request(request).await;
    let mut response = response.map_err(|why| why.to_string())?;
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    Ok(response)
}
