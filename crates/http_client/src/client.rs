//! Requests, their redirects, and the bodies of responses.

use super::connector::{Connector, Proxies, Reach};
use super::error::HttpError;
use super::tls::Verification;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use url::Url;

/// Bytes of a response's head; also those of a body that are read at once.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Time for which an idle connection is kept, below the five seconds after which uvicorn and llama.cpp's server close theirs.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// What a client may do.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Time for a connection: name, address, proxy and TLS together.
    pub connect_max: Duration,
    /// Which addresses may be reached.
    pub reach: Reach,
    /// Whether proxies are used.
    pub proxies: Proxies,
    /// How certificates are verified.
    pub verification: Verification,
    /// Redirects of a `GET` that are followed; with 0 the response that redirects is returned.
    pub redirects_max: u32,
    /// Idle connections that are kept for each host.
    pub idle_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_max: Duration::from_secs(10),
            reach: Reach::default(),
            proxies: Proxies::default(),
            verification: Verification::default(),
            redirects_max: 0,
            idle_max: 0,
        }
    }
}

/// A client with its idle connections. Clones share them.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    redirects_max: u32,
}

impl HttpClient {
    /// A client without connections.
    pub fn new(options: ClientOptions) -> Self {
        let connector = Connector::new(
            options.connect_max,
            options.reach,
            options.proxies,
            options.verification,
        );
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(options.idle_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector.clone());
        Self {
            client,
            connector,
            redirects_max: options.redirects_max,
        }
    }

    /// Sends a request to an absolute URL, and returns the response when its head has arrived, for which there is `head_max`
    /// after each redirect. A user and a password in the URL are sent as basic credentials, unless there are others.
    /// Credentials are not sent to another scheme, host or port that a redirect names. The connection is closed if the future,
    /// or the body before its end, is dropped.
    ///
    /// # Errors
    /// There is no response; why.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        head_max: Duration,
    ) -> Result<Response<Incoming>, HttpError> {
        let (mut head, body) = request.into_parts();
        move_credentials(&mut head)?;
        for _ in 0..=self.redirects_max {
            let request = Request::from_parts(head.clone(), Full::new(body.clone()));
            let response = timeout(head_max, self.client.request(request)).await;
            let response = response.map_err(|_| HttpError::Silent(head_max))?;
            let response = response.map_err(|why| HttpError::of(&why))?;
            let target = match self.redirects_max {
                0 => None,
                _ => redirect_target(&head, &response),
            };
            let Some(target) = target else {
                return Ok(response);
            };
            follow(&mut head, &target?)?;
        }
        Err(HttpError::Redirects(self.redirects_max))
    }

    /// Host and port of the proxy through which this URL is requested.
    pub fn proxy_of(&self, uri: &Uri) -> Option<String> {
        self.connector.proxy_of(uri)
    }
}

/// The next bytes of a body; `None`: it is complete.
///
/// # Errors
/// The body breaks off, or there is no byte for `silence_max`.
pub async fn next_bytes(
    body: &mut Incoming,
    silence_max: Duration,
) -> Result<Option<Bytes>, HttpError> {
    loop {
        let frame = timeout(silence_max, body.frame()).await;
        let Some(frame) = frame.map_err(|_| HttpError::Silent(silence_max))? else {
            return Ok(None);
        };
        // Trailers carry no bytes.
        if let Ok(bytes) = frame.map_err(|why| HttpError::of_body(&why))?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// A whole body.
///
/// # Errors
/// The body breaks off, is larger, or is not complete in time.
pub async fn read_body(
    body: Incoming,
    bytes_max: usize,
    time: Duration,
) -> Result<Bytes, HttpError> {
    let collected = timeout(time, Limited::new(body, bytes_max).collect()).await;
    let collected = collected.map_err(|_| HttpError::Silent(time))?;
    let collected = collected.map_err(|why| match why.downcast_ref::<hyper::Error>() {
        Some(why) => HttpError::of_body(why),
        None => HttpError::TooLarge(bytes_max),
    });
    Ok(collected?.to_bytes())
}

/// The pause that a response asks for with `Retry-After`: seconds, or a date, of which `now` is subtracted.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// Takes user and password out of a URL.
fn move_credentials(head: &mut Parts) -> Result<(), HttpError> {
    let shown = |head: &Parts| HttpError::Url(head.uri.path().to_owned());
    let Some(authority) = head.uri.authority().cloned() else {
        return Err(shown(head));
    };
    let Some((user, host)) = authority.as_str().rsplit_once('@') else {
        return Ok(());
    };
    let mut parts = head.uri.clone().into_parts();
    parts.authority = Some(Authority::try_from(host).map_err(|_| shown(head))?);
    head.uri = Uri::from_parts(parts).map_err(|_| shown(head))?;
    if !head.headers.contains_key(AUTHORIZATION) {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let mut pair = percent_decode_str(name).collect::<Vec<_>>();
        pair.push(b':');
        pair.extend(percent_decode_str(password));
        let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
        let mut value = value.map_err(|_| shown(head))?;
        value.set_sensitive(true);
        head.headers.insert(AUTHORIZATION, value);
    }
    Ok(())
}

/// Where a response to a `GET` redirects to, if it does.
fn redirect_target<B>(head: &Parts, response: &Response<B>) -> Option<Result<Url, HttpError>> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    if !is_redirect || head.method != Method::GET {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let target = location.to_str().ok().and_then(|location| {
        let base = Url::parse(&head.uri.to_string()).ok()?;
        base.join(location).ok()
    });
    Some(target.ok_or_else(|| HttpError::Broken("the redirect has no valid URL".to_owned())))
}

/// Turns a request into the one that a redirect asks for.
fn follow(head: &mut Parts, target: &Url) -> Result<(), HttpError> {
    let uri: Uri = target
        .as_str()
        .parse()
        .map_err(|_| HttpError::Url(target.path().to_owned()))?;
    let before = Url::parse(&head.uri.to_string()).ok();
    if before.as_ref().is_some_and(|url| url.scheme() == "https") && target.scheme() != "https" {
        return Err(HttpError::Broken(
            "the redirect leaves TLS, from https to http".to_owned(),
        ));
    }
    if before.is_none_or(|before| before.origin() != target.origin()) {
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            head.headers.remove(name);
        }
        let sensitive = head
            .headers
            .iter()
            .filter(|(_, value)| value.is_sensitive());
        let sensitive: Vec<_> = sensitive.map(|(name, _)| name.clone()).collect();
        for name in sensitive {
            head.headers.remove(name);
        }
    }
    head.uri = uri;
    move_credentials(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(url: &str, authorization: Option<&str>) -> Parts {
        let mut request = Request::get(url);
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn authorization(head: &Parts) -> Option<&str> {
        head.headers
            .get(AUTHORIZATION)
            .map(|value| value.to_str().unwrap())
    }

    #[test]
    fn user_of_a_url_is_sent_as_credentials() {
        for (url, own, uri, sent) in [
            ("http://a/x", None, "http://a/x", None),
            (
                "http://u:p%40q@a:1/x?y",
                None,
                "http://a:1/x?y",
                Some("Basic dTpwQHE="),
            ),
            ("https://u@a/", None, "https://a/", Some("Basic dTo=")),
            (
                "http://u:p@a/",
                Some("Bearer t"),
                "http://a/",
                Some("Bearer t"),
            ),
        ] {
            let mut head = head(url, own);
            move_credentials(&mut head).unwrap();
            assert_eq!(
                (head.uri.to_string().as_str(), authorization(&head)),
                (uri, sent)
            );
        }
        assert!(move_credentials(&mut head("/path", None)).is_err());
    }

    #[test]
    fn credentials_stay_with_scheme_host_and_port() {
        for (location, uri, is_sent) in [
            ("/z?q", "http://a:1/z?q", true),
            ("http://a:1/", "http://a:1/", true),
            ("http://a:2/", "http://a:2/", false),
            ("https://a:1/", "https://a:1/", false),
            ("//b:1/z", "http://b:1/z", false),
        ] {
            let mut head = head("http://a:1/x/y", Some("Bearer t"));
            let response = Response::builder().status(307).header(LOCATION, location);
            let target = redirect_target(&head, &response.body(()).unwrap());
            follow(&mut head, &target.unwrap().unwrap()).unwrap();
            assert_eq!(head.uri, uri);
            assert_eq!(authorization(&head).is_some(), is_sent, "{location}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, want) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("99999999999999999999", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(
                retry_after(&headers, now),
                want.map(Duration::from_secs),
                "{text}"
            );
        }
    }
}
