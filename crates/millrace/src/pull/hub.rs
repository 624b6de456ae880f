//! A hub with Hugging Face's API: the files of a repository, and their content.
//!
//! `HF_ENDPOINT` names another hub than huggingface.co, `HF_TOKEN` is sent to the hub (and to no host that the hub
//! redirects to), and with `HF_HUB_OFFLINE` no request is sent.

use super::source::HubSource;
use super::sum::Sum;
use crate::clock;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_client::{BlockingBody, BlockingClient, ClientOptions, HttpError, Proxies, retry_after};
use serde::Deserialize;
use server::LibraryError;
use std::fmt;
use std::time::Duration;

/// The hub without `HF_ENDPOINT`.
const ENDPOINT: &str = "https://huggingface.co";
/// Bytes of a list of files.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Files of a repository that are considered.
const FILES_MAX: usize = 10_000;
const REDIRECTS_MAX: u32 = 8;
/// Time without a byte after which a request fails.
const SILENCE: Duration = Duration::from_secs(30);
/// Time for the whole list of a repository's files, so that a hub that sends a byte now and then holds no download.
const LIST_TIME: Duration = Duration::from_secs(120);

pub(super) struct Hub {
    client: BlockingClient,
    endpoint: String,
    token: Option<String>,
}

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubFile {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sum: Sum,
}

/// A part of a file's content.
pub(super) struct Content {
    /// Position of the first byte in the file.
    pub(super) offset: u64,
    pub(super) bytes: BlockingBody,
}

/// Why there is no content.
pub(super) enum NoContent {
    /// The next attempt may succeed.
    Perhaps(String),
    /// The hub answers requests later, after this pause if it says so.
    Busy(StatusCode, Option<Duration>),
    /// The file ends before the offset.
    Beyond,
    /// No attempt will succeed.
    Never(LibraryError),
}

impl fmt::Display for NoContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Perhaps(why) => f.write_str(why),
            Self::Busy(status, pause) => {
                let advice = match *status {
                    StatusCode::TOO_MANY_REQUESTS => {
                        "limits requests (those with HF_TOKEN less): pull again later"
                    }
                    _ => "is overloaded or under maintenance: pull again later",
                };
                write!(f, "it answered {status}")?;
                if let Some(pause) = pause {
                    write!(f, " with a pause of {} s", pause.as_secs())?;
                }
                write!(f, "; it {advice}")
            }
            Self::Beyond => f.write_str("the response was shorter than its Content-Length"),
            Self::Never(why) => why.fmt(f),
        }
    }
}

impl NoContent {
    /// The pause before the next attempt that the hub asked for.
    pub(super) fn asked_pause(&self) -> Option<Duration> {
        match self {
            Self::Busy(_, pause) => *pause,
            _ => None,
        }
    }

    /// Of an answer that the hub gives for the time being.
    fn of_busy(response: &Response<BlockingBody>) -> Result<(), Self> {
        let status = response.status();
        let is_busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        ) || status.is_server_error();
        if !is_busy {
            return Ok(());
        }
        let pause = retry_after(response.headers(), clock::wall());
        Err(Self::Busy(status, pause))
    }
}

#[derive(Deserialize)]
struct HubEntry {
    path: String,
    /// Git's object id.
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl Hub {
    /// The hub that the environment names.
    pub(super) fn from_env() -> Result<Self, LibraryError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_on = |value: String| !matches!(value.as_str(), "0" | "false" | "no" | "off");
        if set("HF_HUB_OFFLINE").is_some_and(is_on) {
            let words = "HF_HUB_OFFLINE is set: nothing is downloaded";
            return Err(LibraryError::Invalid(words.to_owned()));
        }
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let client = BlockingClient::new(ClientOptions {
            connect_max: SILENCE,
            proxies: Proxies::Environment,
            redirects_max: REDIRECTS_MAX,
            ..ClientOptions::default()
        });
        Ok(Self {
            client: client.map_err(|why| LibraryError::Failed(format!("HTTP client: {why}")))?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: set("HF_TOKEN"),
        })
    }

    /// The files of a repository, with their checksums.
    pub(super) fn files(&self, source: &HubSource) -> Result<Vec<HubFile>, NoContent> {
        let path = format!(
            "/api/models/{}/{}/tree/{}?recursive=true",
            source.owner,
            source.repository,
            source.revision()
        );
        let unreachable = |why: HttpError| NoContent::Perhaps(why.to_string());
        let response = self.send_get(&path, None).map_err(unreachable)?;
        NoContent::of_busy(&response)?;
        expect_found(response.status(), source).map_err(NoContent::Never)?;
        let list = response.into_body().read_whole(LIST_BYTES_MAX, LIST_TIME);
        let list = list.map_err(unreachable)?;
        let entries: Vec<HubEntry> = serde_json::from_slice(&list).map_err(|_| {
            let words = "the hub's list of files is not valid";
            NoContent::Never(LibraryError::Failed(words.to_owned()))
        })?;
        let files = entries.into_iter().take(FILES_MAX).filter_map(|entry| {
            let (sum, bytes) = match entry.lfs {
                Some(large) => (Sum::sha256(&large.oid)?, large.size),
                None => (Sum::git(&entry.oid)?, entry.size),
            };
            Some(HubFile {
                path: entry.path,
                bytes,
                sum,
            })
        });
        Ok(files.collect())
    }

    /// A file's content from `offset` on, or from the beginning.
    pub(super) fn content(
        &self,
        source: &HubSource,
        file: &HubFile,
        offset: u64,
    ) -> Result<Content, NoContent> {
        let path = content_path(source, &file.path);
        let response = self
            .send_get(&path, (offset > 0).then_some(offset))
            .map_err(|why| NoContent::Perhaps(why.to_string()))?;
        NoContent::of_busy(&response)?;
        let status = response.status();
        let offset = match status {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => range_start(response.headers()).ok_or_else(|| {
                NoContent::Perhaps("the response has no Content-Range".to_owned())
            })?,
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(NoContent::Beyond),
            _ => {
                expect_found(status, source).map_err(NoContent::Never)?;
                return Err(NoContent::Never(status_error(status)));
            }
        };
        Ok(Content {
            offset,
            bytes: response.into_body(),
        })
    }

    /// The address of a file's content, for a person.
    pub(super) fn file_address(&self, source: &HubSource, file: &str) -> String {
        format!("{}{}", self.shown_endpoint(), content_path(source, file))
    }

    /// The address of the page with a repository's files, for a person.
    pub(super) fn page_address(&self, source: &HubSource) -> String {
        let (owner, repository) = (&source.owner, &source.repository);
        let (endpoint, revision) = (self.shown_endpoint(), source.revision());
        format!("{endpoint}/{owner}/{repository}/tree/{revision}")
    }

    /// The hub's address, without a user's name and password.
    pub(super) fn shown_endpoint(&self) -> String {
        let Some((scheme, rest)) = self.endpoint.split_once("://") else {
            return self.endpoint.clone();
        };
        let authority = rest.split('/').next().unwrap_or(rest);
        let user_bytes = authority.rfind('@').map_or(0, |at| at + 1);
        format!("{scheme}://{}", &rest[user_bytes..])
    }

    /// Host and port of the proxy that requests go through, if the environment names one.
    pub(super) fn proxy(&self) -> Option<String> {
        self.client.proxy_of(&self.endpoint.parse().ok()?)
    }

    fn send_get(&self, path: &str, from: Option<u64>) -> Result<Response<BlockingBody>, HttpError> {
        let agent = concat!("millrace/", env!("CARGO_PKG_VERSION"));
        let mut request = Request::get(format!("{}{path}", self.endpoint));
        request = request.header(header::USER_AGENT, agent);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(from) = from {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        let request = request.body(Bytes::new());
        let request = request.map_err(|why| HttpError::Url(why.to_string()))?;
        self.client.send(request, SILENCE, SILENCE)
    }
}

/// The path of a file's content.
fn content_path(source: &HubSource, file: &str) -> String {
    let (owner, repository) = (&source.owner, &source.repository);
    let (revision, file) = (source.revision(), escape_path(file));
    format!("/{owner}/{repository}/resolve/{revision}/{file}")
}

/// Position of the first byte of a partial response.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let range = range.strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

fn expect_found(status: StatusCode, source: &HubSource) -> Result<(), LibraryError> {
    let repository = format!("{}/{}", source.owner, source.repository);
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(LibraryError::Invalid(format!(
            "the hub denies access to {repository}: check the name; if the repository is gated, accept its terms on \
             the hub and set HF_TOKEN"
        ))),
        StatusCode::NOT_FOUND => Err(LibraryError::Unknown(repository)),
        status => Err(status_error(status)),
    }
}

fn status_error(status: StatusCode) -> LibraryError {
    LibraryError::Failed(format!("the hub answered {status}"))
}

/// A path with URL escapes.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
