//! Images on other servers, which requests name by their addresses: off, unless the operator names the hosts.
//!
//! Each address, that of a redirect like that of a request, has to be one of a host that is named, and the connection is made
//! to public addresses only (`http_client`). No cookie, no credential and no header of the client is sent, and nothing of what
//! another server says is repeated but its status.

use crate::handles::GenerationHandles;
use crate::locks::lock;
use crate::media::ByteReservation;
use crate::requested_images::set_bytes;
use crate::webhooks::HostPattern;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use generate::error::{ApiError, Problem};
use generate::images::ImagePart;
use http::header::{ACCEPT, CONTENT_LENGTH, LOCATION, USER_AGENT};
use http::{HeaderMap, Request};
use http_client::{ClientOptions, HttpClient, Reach, read_body};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

const AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));
/// Redirects of one image.
const REDIRECTS_MAX: usize = 3;
/// Images of one request that are fetched at one time.
const FETCHES_MAX: usize = 4;
/// Bytes of an address.
const URL_BYTES_MAX: usize = 8192;
/// Prefix of a host that is asked without TLS, and may have any address.
const PLAIN: &str = "http://";

/// An entry of `vision.remote.hosts`: a host as in `webhooks.allowed_hosts`, asked by https at public addresses; or with
/// `http://` before it, asked by http at any address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHost {
    pattern: HostPattern,
    is_plain: bool,
}

impl RemoteHost {
    /// Reads an entry.
    ///
    /// # Errors
    /// The text is no such entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = text.trim().strip_prefix(PLAIN);
        Ok(Self {
            pattern: HostPattern::parse(plain.unwrap_or(text))?,
            is_plain: plain.is_some(),
        })
    }
}

/// Fetches images of the hosts that the operator names.
pub struct RemoteImages {
    hosts: Vec<RemoteHost>,
    /// Time for one image, with redirects.
    timeout: Duration,
    /// Bytes of one image.
    bytes_max: usize,
    public: HttpClient,
    any: HttpClient,
}

/// An address that may be asked, and how.
struct AcceptedUrl {
    url: Url,
    reach: Reach,
}

impl AcceptedUrl {
    /// The host for errors.
    fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

impl RemoteImages {
    /// Images of these hosts.
    pub fn new(hosts: Vec<RemoteHost>, timeout: Duration, bytes_max: usize) -> Self {
        let client = |reach| {
            HttpClient::new(ClientOptions {
                reach,
                ..ClientOptions::default()
            })
        };
        Self {
            hosts,
            timeout,
            bytes_max,
            public: client(Reach::Public),
            any: client(Reach::Any),
        }
    }

    /// Fetches the images that have addresses, and returns their share of the bytes of all images. Nothing is fetched unless all
    /// addresses may be asked, and the first failure ends the other fetches, as the drop of the future does.
    ///
    /// # Errors
    /// 400 with the field of an image that could not be fetched, its host and the reason, or with the fields of all that may not
    /// be asked; 503 without room for the files.
    pub(crate) async fn fetch_all(
        &self,
        parts: &mut [ImagePart],
        handles: &GenerationHandles,
    ) -> Result<ByteReservation, ApiError> {
        self.expect_accepted(parts)?;
        let share = Mutex::new(handles.images.media.pixels.reserve_none());
        let place = (&share, handles);
        let remote = parts.iter_mut().filter(|part| part.url.is_some());
        let jobs = remote.map(|part| self.fill(part, place).boxed());
        let jobs: Vec<BoxFuture<'_, _>> = jobs.collect();
        let fetched = stream::iter(jobs).buffer_unordered(FETCHES_MAX);
        fetched.try_collect::<Vec<()>>().await?;
        Ok(share.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks the addresses of all images.
    fn expect_accepted(&self, parts: &[ImagePart]) -> Result<(), ApiError> {
        let refused = |part: &ImagePart| match self.accept(part.url.as_deref()?) {
            Err(Failure::Remote(why)) => Some(Problem::new(&part.path, why)),
            Err(Failure::NoRoom(_)) | Ok(_) => None,
        };
        let problems: Vec<Problem> = parts.iter().filter_map(refused).collect();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ApiError::fields(problems))
        }
    }

    async fn fill(&self, part: &mut ImagePart, place: FetchPlace<'_>) -> Result<(), ApiError> {
        let Some(url) = part.url.clone() else {
            return Ok(());
        };
        let fetched = timeout(self.timeout, self.fetch(&url, place)).await;
        let ms = self.timeout.as_millis();
        let late = || {
            Failure::Remote(format!(
                "could not be fetched within {ms} ms (vision.remote.timeout_ms)"
            ))
        };
        match fetched.unwrap_or_else(|_| Err(late())) {
            Ok(bytes) => {
                part.bytes = Arc::from(&*bytes);
                Ok(())
            }
            Err(Failure::NoRoom(error)) => Err(error),
            Err(Failure::Remote(why)) => Err(ApiError::fields(vec![Problem::new(&part.path, why)])),
        }
    }

    /// Fetches an image. The caller's time for the whole is over before those of the parts.
    async fn fetch(&self, text: &str, place: FetchPlace<'_>) -> Result<Bytes, Failure> {
        let mut accepted = self.accept(text)?;
        for _ in 0..=REDIRECTS_MAX {
            let host = accepted.host().to_owned();
            let failed = |why: &dyn std::fmt::Display| {
                Failure::Remote(format!("could not be fetched from {host}: {why}"))
            };
            let client = match accepted.reach {
                Reach::Public => &self.public,
                Reach::Any => &self.any,
            };
            let get = Request::get(accepted.url.as_str())
                .header(USER_AGENT, AGENT)
                .header(ACCEPT, "image/*")
                .body(Bytes::new());
            let get = get.map_err(|why| failed(&why))?;
            let response = client.send(get, self.timeout.saturating_mul(2)).await;
            let response = response.map_err(|why| failed(&why))?;
            let status = response.status();
            if status.is_redirection() {
                let target = redirect(&accepted.url, response.headers());
                let target = target.ok_or_else(|| failed(&"the redirect has no URL"))?;
                accepted = self.accept(&target)?;
                continue;
            }
            if !status.is_success() {
                return Err(failed(&format!("its status is {}", status.as_u16())));
            }
            let reserved = self.reserve(response.headers(), place)?;
            let time = self.timeout.saturating_mul(2);
            let body = read_body(response.into_body(), self.bytes_max, time).await;
            let body = body.map_err(|why| failed(&why))?;
            let mut share = lock(place.0);
            let unused = reserved.saturating_sub(body.len() as u64);
            let bytes = share.bytes() - unused;
            share.resize(bytes, 0);
            return Ok(body);
        }
        let why = format!("is redirected more than {REDIRECTS_MAX} times");
        Err(Failure::Remote(why))
    }

    /// The address, if it may be asked.
    fn accept(&self, text: &str) -> Result<AcceptedUrl, Failure> {
        let refuse = |why: String| Err(Failure::Remote(why));
        if text.len() > URL_BYTES_MAX {
            return refuse(format!("is a URL of more than {URL_BYTES_MAX} bytes"));
        }
        let parsed = Url::parse(text).ok();
        let Some((url, host)) = parsed.and_then(|url| {
            let host = url.host_str()?.to_owned();
            Some((url, host))
        }) else {
            return refuse("is no valid URL".to_owned());
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("is a URL with a user or a password".to_owned());
        }
        let is_plain = url.scheme() == "http";
        let is_http = is_plain || url.scheme() == "https";
        let (port, is_default) = (
            url.port_or_known_default().unwrap_or(0),
            url.port().is_none(),
        );
        let permits = |entry: &RemoteHost| {
            entry.is_plain == is_plain && entry.pattern.permits(&host, port, is_default)
        };
        if !is_http || !self.hosts.iter().any(permits) {
            let scheme = url.scheme();
            return refuse(format!(
                "is at {host}, which may not be asked by {scheme} at port {port} (vision.remote.hosts)"
            ));
        }
        let reach = if is_plain { Reach::Any } else { Reach::Public };
        Ok(AcceptedUrl { url, reach })
    }

    /// Reserves room for a file, by the length that its server says, in the share of the request. Returns the bytes.
    fn reserve(
        &self,
        headers: &HeaderMap,
        (share, handles): FetchPlace<'_>,
    ) -> Result<u64, Failure> {
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        let length = length.and_then(|text| text.parse::<usize>().ok());
        let bytes = length.unwrap_or(self.bytes_max).min(self.bytes_max) as u64;
        let mut share = lock(share);
        let wanted = share.bytes() + bytes;
        set_bytes(&mut share, wanted, handles).map_err(Failure::NoRoom)?;
        Ok(bytes)
    }
}

/// The request's share of the bytes of all images, and where that is.
type FetchPlace<'a> = (&'a Mutex<ByteReservation>, &'a GenerationHandles);

/// Why an image was not fetched.
enum Failure {
    /// The address, the server or the way to it, in words that follow the field's path.
    Remote(String),
    /// There is no memory for it now.
    NoRoom(ApiError),
}

/// Where a response leads to.
fn redirect(from: &Url, headers: &HeaderMap) -> Option<String> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    Some(from.join(location).ok()?.to_string())
}

/// An error for images with addresses, where none is fetched; `why` follows the field's path.
///
/// # Errors
/// An image has an address.
pub(crate) fn expect_no_remote(parts: &[ImagePart], why: &str) -> Result<(), ApiError> {
    match parts.iter().find(|part| part.url.is_some()) {
        None => Ok(()),
        Some(part) => Err(ApiError::fields(vec![Problem::new(&part.path, why)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(hosts: &[&str]) -> RemoteImages {
        let hosts = hosts.iter().map(|host| RemoteHost::parse(host));
        let hosts = hosts.collect::<Result<_, _>>().expect("hosts");
        RemoteImages::new(hosts, Duration::from_secs(1), 100)
    }

    #[test]
    fn only_named_hosts_may_be_asked() {
        let images = remote(&[
            "images.example.com",
            "*.cdn.test:8443",
            "http://127.0.0.1:9",
        ]);
        let reach = |text: &str| match images.accept(text) {
            Ok(accepted) => Ok(accepted.reach),
            Err(Failure::Remote(why)) => Err(why),
            Err(Failure::NoRoom(error)) => Err(error.message),
        };
        for text in [
            "https://images.example.com/a.png?b=c#d",
            "HTTPS://IMAGES.example.com:443/",
            "https://a.cdn.test:8443/x",
            // The normal form, which is requested, has a slash and the same host.
            "https://images.example.com\\@evil.test/",
        ] {
            assert_eq!(reach(text), Ok(Reach::Public), "{text}");
        }
        assert_eq!(reach("http://127.0.0.1:9/x"), Ok(Reach::Any));
        for text in [
            "http://images.example.com/a.png",
            "https://images.example.com:444/",
            "https://example.com/",
            "https://images.example.com.evil.test/",
            "https://cdn.test:8443/",
            "https://127.0.0.1:9/",
            "http://127.0.0.1/",
            "ftp://images.example.com/",
            "file:///etc/passwd",
            "https://user@images.example.com/",
            "https:///x",
        ] {
            assert!(reach(text).is_err(), "{text}");
        }
        let long = format!("https://images.example.com/{}", "x".repeat(URL_BYTES_MAX));
        assert!(reach(&long).is_err_and(|why| why.contains("8192 bytes")));
        let why = reach("https://evil.test/x").expect_err("not named");
        assert_eq!(
            why,
            "is at evil.test, which may not be asked by https at port 443 (vision.remote.hosts)"
        );
    }

    #[test]
    fn redirect_is_a_whole_address() {
        let from = Url::parse("https://a.test/x/y").expect("a URL");
        let target = |location: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, location.parse().expect("a value"));
            redirect(&from, &headers)
        };
        assert_eq!(target("/z").as_deref(), Some("https://a.test/z"));
        assert_eq!(target("//b.test/z").as_deref(), Some("https://b.test/z"));
        assert_eq!(
            target("http://169.254.169.254/").as_deref(),
            Some("http://169.254.169.254/")
        );
        assert_eq!(redirect(&from, &HeaderMap::new()), None);
    }
}
