//! One export to the collector over HTTP.

use super::OtlpTarget;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use std::{fmt, io};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Bytes of a response; a longer response is an error.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

const USER_AGENT_VALUE: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));

/// Why an export failed.
#[derive(Debug)]
pub(super) enum ExportError {
    /// The collector did not answer in time.
    Slow,
    /// The connection could not be established.
    Unreachable(io::Error),
    /// The connection broke, or the collector does not speak HTTP.
    Broken(String),
    /// The collector rejected the message.
    Status(StatusCode),
    /// The collector rejected this many data points.
    Rejected(i64),
}

/// Sends the message over a new connection: the interval is longer than most collectors keep a connection open.
pub(super) async fn send_export(target: &OtlpTarget, message: Vec<u8>) -> Result<(), ExportError> {
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(ExportError::Unreachable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Dropping the set closes the connection on every return.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let response = sender
        .send_request(export_request(target, message)?)
        .await?;
    let status = response.status();
    if !status.is_success() {
        return Err(ExportError::Status(status));
    }
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(|why| {
        let long = why.is::<LengthLimitError>();
        ExportError::Broken(if long {
            "a long response".to_owned()
        } else {
            why.to_string()
        })
    })?;
    check_rejected(&body.to_bytes())
}

fn export_request(
    target: &OtlpTarget,
    message: Vec<u8>,
) -> Result<Request<Full<Bytes>>, ExportError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&target.path)
        .body(Full::new(Bytes::from(message)))
        .map_err(|why| ExportError::Broken(why.to_string()))?;
    let ours = [
        (HOST, target.authority.clone()),
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        ),
        (USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE)),
        (CONNECTION, HeaderValue::from_static("close")),
    ];
    // Header fields of this server override configured ones.
    *request.headers_mut() = target.headers.clone();
    request.headers_mut().extend(ours);
    Ok(request)
}

/// Rejected data points in the response. A response that is not protobuf counts as success.
fn check_rejected(body: &[u8]) -> Result<(), ExportError> {
    let response = ExportMetricsServiceResponse::decode(body).unwrap_or_default();
    match response.partial_success {
        Some(partial) if partial.rejected_data_points > 0 => {
            Err(ExportError::Rejected(partial.rejected_data_points))
        }
        _ => Ok(()),
    }
}

impl From<hyper::Error> for ExportError {
    fn from(why: hyper::Error) -> Self {
        Self::Broken(why.to_string())
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow => f.write_str("the collector does not answer"),
            Self::Unreachable(why) => write!(f, "{why}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Status(status) => write!(f, "the collector answered {status}"),
            Self::Rejected(points) => write!(f, "the collector rejected {points} data points"),
        }
    }
}
