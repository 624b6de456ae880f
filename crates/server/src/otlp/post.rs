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
pub(super) enum Problem {
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
pub(super) async fn post(target: &OtlpTarget, message: Vec<u8>) -> Result<(), Problem> {
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(Problem::Unreachable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Dropping the set closes the connection on every return.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let response = sender.send_request(request(target, message)?).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(Problem::Status(status));
    }
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(|why| {
        let long = why.is::<LengthLimitError>();
        Problem::Broken(if long {
            "a long answer".to_owned()
        } else {
            why.to_string()
        })
    })?;
    rejected(&body.to_bytes())
}

fn request(target: &OtlpTarget, message: Vec<u8>) -> Result<Request<Full<Bytes>>, Problem> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&target.path)
        .body(Full::new(Bytes::from(message)))
        .map_err(|why| Problem::Broken(why.to_string()))?;
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
fn rejected(answer: &[u8]) -> Result<(), Problem> {
    let told = ExportMetricsServiceResponse::decode(answer).unwrap_or_default();
    match told.partial_success {
        Some(partial) if partial.rejected_data_points > 0 => {
            Err(Problem::Rejected(partial.rejected_data_points))
        }
        _ => Ok(()),
    }
}

impl From<hyper::Error> for Problem {
    fn from(why: hyper::Error) -> Self {
        Self::Broken(why.to_string())
    }
}

impl fmt::Display for Problem {
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
