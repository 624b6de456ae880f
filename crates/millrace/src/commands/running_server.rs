//! Requests to a running server.

use crate::args::{Secret, ServerArgs};
use crate::config::{Settings, bind};
use crate::failure::Failure;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_client::{BlockingBody, BlockingClient, ClientOptions, HttpError, Proxies, Verification};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Bytes of a response.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// Time without a byte after which a request fails.
const SILENCE: Duration = Duration::from_secs(10);

/// What to look at after an answer that no server of this version gives.
pub(super) const NO_MILLRACE: &str = "another program listens there, or a Millrace of another version; --url says where the server is";

/// A server and the key to send.
pub(super) struct RunningServer {
    url: String,
    api_key: Option<Secret>,
    client: BlockingClient,
    silence: Duration,
    /// What of the environment was ignored.
    ignored: Option<String>,
}

/// Why a request has no response to read.
pub(super) enum RequestError {
    /// The server cannot be reached, is starting or is overloaded: a later request may succeed.
    Unavailable(Failure),
    /// The request was rejected.
    Rejected(Failure),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Unavailable(failure) | RequestError::Rejected(failure) => failure,
        }
    }
}

/// An error response, or that of a health probe; other fields are ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorBody {
    /// OpenAI's shape.
    OpenAi { error: ErrorMessage },
    /// Ollama's shape.
    Ollama { error: String },
    /// The stage of a server that is not ready, and perhaps why.
    Health {
        status: String,
        reason: Option<String>,
    },
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

impl ErrorBody {
    fn message(self) -> String {
        match self {
            Self::OpenAi { error } => error.message,
            Self::Ollama { error } => error,
            Self::Health {
                status,
                reason: Some(reason),
            } => format!("{status}: {reason}"),
            Self::Health {
                status,
                reason: None,
            } => status,
        }
    }
}

impl RunningServer {
    /// The server of these flags, or of the settings.
    ///
    /// # Errors
    /// The settings are invalid.
    pub(super) fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let config = args.library.settings()?;
        let own = Self::of_settings(&config.settings, SILENCE)?;
        let api_key = args.api_key.as_ref().map(Secret::first);
        // A variable without a value is none.
        let api_key = api_key.filter(|key| !key.reveal().is_empty());
        let ignored = config.ignored();
        let url = match &args.url {
            None => {
                return Ok(Self {
                    api_key,
                    ignored,
                    ..own
                });
            }
            Some(url) if url.contains("://") => url.trim_end_matches('/').to_owned(),
            // The syntax of `--bind`; other text has a host name for the resolver.
            Some(authority) => match bind::parse(authority) {
                Ok(address) => format!("http://{address}"),
                Err(_) => format!("http://{}", authority.trim_end_matches('/')),
            },
        };
        Ok(Self {
            url,
            api_key,
            client: client(false, SILENCE)?,
            silence: SILENCE,
            ignored,
        })
    }

    /// This machine's server with these settings, without a key; a server that answers nothing for `silence` is none.
    ///
    /// # Errors
    /// The system gives no means to wait for sockets.
    pub(super) fn of_settings(settings: &Settings, silence: Duration) -> Result<Self, Failure> {
        Ok(Self {
            url: url_of_settings(settings),
            api_key: None,
            client: client(own_host(settings).is_loopback(), silence)?,
            silence,
            ignored: None,
        })
    }

    /// Prints what of the environment was ignored, if there is something.
    pub(super) fn tell_ignored(&self) {
        if let Some(ignored) = &self.ignored {
            // A closed standard error fails no command.
            let _ = writeln!(std::io::stderr(), "millrace: {ignored}");
        }
    }

    /// URL of the server, without a path.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The JSON of a `GET`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.read_json(path, Method::GET, Bytes::new())
    }

    /// The JSON of a `POST`.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        self.read_json(path, Method::POST, body.to_string().into())
    }

    /// The JSON of a `DELETE`.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.read_json(path, Method::DELETE, Bytes::new())
    }

    /// The lines of a response without an end in time.
    pub(super) fn read_lines(&self, path: &str) -> Result<impl BufRead + use<>, RequestError> {
        let response = self.checked(path, (Method::GET, Bytes::new()), Duration::MAX)?;
        Ok(BufReader::new(response.into_body()))
    }

    fn send(
        &self,
        path: &str,
        (method, body): (Method, Bytes),
        silence_max: Duration,
    ) -> Result<Response<BlockingBody>, HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        if let Some(key) = &self.api_key {
            let bearer = format!("Bearer {}", key.reveal());
            request = request.header(header::AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body);
        let request = request.map_err(|_| HttpError::Url(self.url.clone()))?;
        self.client.send(request, self.silence, silence_max)
    }

    /// The response to a request that succeeded.
    fn checked(
        &self,
        path: &str,
        request: (Method, Bytes),
        silence_max: Duration,
    ) -> Result<Response<BlockingBody>, RequestError> {
        let url = &self.url;
        let response = self.send(path, request, silence_max);
        let unreachable = |why| RequestError::Unavailable(self.unreachable(&why));
        let response = response.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if matches!(status, StatusCode::UNAUTHORIZED) {
            return Err(RequestError::Rejected(Failure::user(format!(
                "the server at {url} requires an API key: --api-key KEY, or the variable MILLRACE_API_KEY"
            ))));
        }
        let body = response.into_body();
        let body = body.read_whole(RESPONSE_BYTES_MAX, SILENCE);
        let body = body.unwrap_or_default();
        let failure = Failure::user(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => format!("{url}{path} answered {status}: {}", body.message()),
            Err(_) => format!("{url}{path} answered {status}: {NO_MILLRACE}"),
        });
        Err(if status.is_server_error() {
            RequestError::Unavailable(failure)
        } else {
            RequestError::Rejected(failure)
        })
    }

    fn read_json<T: DeserializeOwned>(
        &self,
        path: &str,
        method: Method,
        body: Bytes,
    ) -> Result<T, Failure> {
        let response = self.checked(path, (method, body), SILENCE)?;
        let bytes = response.into_body().read_whole(RESPONSE_BYTES_MAX, SILENCE);
        let bytes = bytes.map_err(|why| self.unreachable(&why))?;
        serde_json::from_slice(&bytes).map_err(|_| {
            let url = &self.url;
            Failure::user(format!(
                "{url}{path} answered what this version cannot read: {NO_MILLRACE}"
            ))
        })
    }

    fn unreachable(&self, why: &HttpError) -> Failure {
        let why = match why {
            HttpError::Url(_) => "it is no address such as http://127.0.0.1:8420".to_owned(),
            HttpError::Silent(time) | HttpError::ConnectTime(time) => {
                format!("no answer for {} s", time.as_secs())
            }
            why => why.to_string(),
        };
        Failure::user(format!(
            "no server answers at {}: {why}\n  `millrace serve` starts one; --url says where another is",
            self.url
        ))
    }
}

/// A client for this machine's own server, or for another. The certificate of the own one is not verified, over loopback: it
/// is for the server's public name, and no other program listens there. No proxy is used for the own one.
fn client(is_own: bool, silence: Duration) -> Result<BlockingClient, Failure> {
    let (verification, proxies) = if is_own {
        (Verification::Nothing, Proxies::None)
    } else {
        (Verification::Roots, Proxies::Environment)
    };
    let client = BlockingClient::new(ClientOptions {
        connect_max: silence,
        verification,
        proxies,
        ..ClientOptions::default()
    });
    client.map_err(|why| Failure::user(format!("HTTP client: {why}")))
}

/// URL of a server with these settings, from this machine, with the prefix of its paths.
fn url_of_settings(settings: &Settings) -> String {
    let address = SocketAddr::new(own_host(settings), settings.server.bind.port());
    let (scheme, prefix) = (settings.listener.scheme(), &settings.server.api_prefix);
    format!("{scheme}://{address}{prefix}")
}

/// Where this machine reaches a server with these settings.
fn own_host(settings: &Settings) -> IpAddr {
    match settings.server.bind.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host,
    }
}
