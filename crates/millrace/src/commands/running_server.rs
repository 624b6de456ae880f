//! Requests to a running server.

use crate::args::{Secret, ServerArgs};
use crate::config::{Settings, bind};
use crate::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use ureq::http::{Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

/// Bytes of a response.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;
/// Time without a byte after which a request fails.
const SILENCE: Duration = Duration::from_secs(10);

/// What to look at after an answer that no server of this version gives.
pub(super) const NO_MILLRACE: &str = "another program listens there, or a Millrace of another version; --url says where the server is";

/// A server and the key to send.
pub(super) struct RunningServer {
    url: String,
    api_key: Option<Secret>,
    agent: Agent,
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
        let own = Self::of_settings(&config.settings, SILENCE);
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
            agent: agent(false, SILENCE),
            ignored,
        })
    }

    /// This machine's server with these settings, without a key; a server that answers nothing for `silence` is none.
    pub(super) fn of_settings(settings: &Settings, silence: Duration) -> Self {
        Self {
            url: url_of_settings(settings),
            api_key: None,
            agent: agent(own_host(settings).is_loopback(), silence),
            ignored: None,
        }
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
        let request = self.agent.get(format!("{}{path}", self.url));
        let request = request.config().timeout_per_read(Some(SILENCE)).build();
        self.read_json(path, self.checked(path, self.with_key(request).call())?)
    }

    /// The JSON of a `POST`.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        let request = request.config().timeout_per_read(Some(SILENCE)).build();
        let sent = self.with_key(request).send(body.to_string());
        self.read_json(path, self.checked(path, sent)?)
    }

    /// The JSON of a `DELETE`.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = self.agent.delete(format!("{}{path}", self.url));
        let request = request.config().timeout_per_read(Some(SILENCE)).build();
        self.read_json(path, self.checked(path, self.with_key(request).call())?)
    }

    /// The lines of a response without an end in time.
    pub(super) fn read_lines(&self, path: &str) -> Result<impl BufRead + use<>, RequestError> {
        let request = self.agent.get(format!("{}{path}", self.url));
        let response = self.checked(path, self.with_key(request).call())?;
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    fn with_key<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.api_key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.reveal())),
            None => request,
        }
    }

    /// The response to a request that succeeded.
    fn checked(
        &self,
        path: &str,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, RequestError> {
        let url = &self.url;
        let unreachable = |why| RequestError::Unavailable(self.unreachable(&why));
        let mut response = response.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if matches!(status, StatusCode::UNAUTHORIZED) {
            return Err(RequestError::Rejected(Failure::user(format!(
                "the server at {url} requires an API key: --api-key KEY, or the variable MILLRACE_API_KEY"
            ))));
        }
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX);
        let body = body.read_to_string().unwrap_or_default();
        let failure = Failure::user(match serde_json::from_str::<ErrorBody>(&body) {
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
        mut response: Response<Body>,
    ) -> Result<T, Failure> {
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX);
        let bytes = body.read_to_vec().map_err(|why| self.unreachable(&why))?;
        serde_json::from_slice(&bytes).map_err(|_| {
            let url = &self.url;
            Failure::user(format!(
                "{url}{path} answered what this version cannot read: {NO_MILLRACE}"
            ))
        })
    }

    fn unreachable(&self, why: &ureq::Error) -> Failure {
        let why = match why {
            ureq::Error::Io(why) => why.to_string(),
            ureq::Error::Timeout(_) => format!("no answer for {} s", SILENCE.as_secs()),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                "it is no address such as http://127.0.0.1:8420".to_owned()
            }
            why => why.to_string(),
        };
        Failure::user(format!(
            "no server answers at {}: {why}\n  `millrace serve` starts one; --url says where another is",
            self.url
        ))
    }
}

fn agent(is_own: bool, silence: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(silence))
        .timeout_recv_response(Some(silence))
        .tls_config(tls(is_own));
    config.build().into()
}

/// How a server's certificate is verified. That of this machine's own server is not, over loopback: it is for the server's
/// public name, and nobody else listens there.
fn tls(is_own: bool) -> TlsConfig {
    TlsConfig::builder().disable_verification(is_own).build()
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
