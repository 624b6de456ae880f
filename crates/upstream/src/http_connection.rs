//! One exchange of HTTP with an upstream, over a connection of its own.

use super::address::UpstreamAddress;
use super::config::{DESCRIPTION_BYTES_MAX, ERROR_BYTES_MAX, UpstreamConfig};
use bytes::Bytes;
use http::request::Builder;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An upstream and how it is used.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) config: &'a UpstreamConfig,
    pub(crate) address: &'a UpstreamAddress,
}

impl Target<'_> {
    /// Posts JSON; returns the head of the response, for which there is `head_max`.
    ///
    /// # Errors
    /// There is no response; why.
    pub(crate) async fn post(self, route: &str, body: &[u8]) -> Result<Response<Incoming>, String> {
        let request = Request::post(self.address.path_of(route))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        let body = Bytes::copy_from_slice(body);
        self.exchange(request, body, self.config.head_max).await
    }

    /// The JSON of a route about the upstream itself.
    ///
    /// # Errors
    /// There is no such response in time; why.
    pub(crate) async fn get_json(self, route: &str) -> Result<Value, String> {
        let request = Request::get(self.address.path_of(route));
        let time = self.config.connect_max;
        let response = self.exchange(request, Bytes::new(), time).await?;
        if response.status() != StatusCode::OK {
            return Err(self.status_error(response).await);
        }
        let body = Limited::new(response.into_body(), DESCRIPTION_BYTES_MAX).collect();
        let body = timeout(time, body).await;
        let body = body.map_err(|_| format!("{route}: the response takes too long"))?;
        let body = body.map_err(|why| format!("{route}: {why}"))?.to_bytes();
        serde_json::from_slice(&body).map_err(|why| format!("{route}: {why}"))
    }

    /// Status and beginning of the body of an error response.
    pub(crate) async fn status_error(self, response: Response<Incoming>) -> String {
        let status = response.status();
        let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect();
        let body = timeout(self.config.connect_max, body).await;
        let body = body.ok().and_then(Result::ok);
        let body = body.map(http_body_util::Collected::to_bytes);
        let text = String::from_utf8_lossy(body.as_deref().unwrap_or_default()).into_owned();
        format!("status {status}: {text:.300}")
    }

    async fn exchange(
        self,
        request: Builder,
        body: Bytes,
        head_max: Duration,
    ) -> Result<Response<Incoming>, String> {
        let authority = &self.address.authority;
        let socket = timeout(self.config.connect_max, TcpStream::connect(authority)).await;
        let socket = socket.map_err(|_| "connecting takes too long".to_owned())?;
        let io = TokioIo::new(socket.map_err(|why| why.to_string())?);
        let (mut sender, connection) = http1::handshake(io).await.map_err(|why| why.to_string())?;
        // The connection ends when the response is dropped or complete.
        tokio::spawn(connection);
        let mut request = request.header(header::HOST, authority);
        if let Some(key) = &self.config.api_key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request
            .body(Full::new(body))
            .map_err(|why| why.to_string())?;
        let response = timeout(head_max, sender.send_request(request)).await;
        let response = response.map_err(|_| "no response for too long".to_owned())?;
        response.map_err(|why| why.to_string())
    }
}
