//! A new connection: names, checked addresses, proxies and TLS.

use super::error::HttpError;
use super::public_address::is_public;
use super::tls::{self, Verification};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::Service;

/// Addresses to which a connection is tried, one after another.
const ADDRESSES_MAX: usize = 8;
/// Names of one [`Reach`] that are resolved at one time, each on a thread: the resolver of the system blocks.
const LOOKUPS_MAX: usize = 8;
/// Name of these threads.
const LOOKUP_THREAD: &str = "resolve";
/// Bytes of a proxy's response to `CONNECT`.
const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;

/// Names that clients of the server chose, and names of the operator: slow name servers of the first do not delay the others.
static LOOKUPS: [Semaphore; 2] = [const { Semaphore::const_new(LOOKUPS_MAX) }; 2];

/// Which addresses a client may connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Any address: the operator or the user named the host.
    #[default]
    Any,
    /// Hosts all of whose addresses are public: a client of the server named the URL.
    Public,
}

/// Whether a client uses proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// Connections are made to the host itself.
    #[default]
    None,
    /// `HTTPS_PROXY` and `HTTP_PROXY` for URLs of these schemes, else `ALL_PROXY`, except for hosts of `NO_PROXY`. Not with
    /// [`Reach::Public`], which checks the addresses of hosts.
    Environment,
}

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector(Arc<Policy>);

struct Policy {
    connect_max: Duration,
    reach: Reach,
    proxies: Option<Matcher>,
    verification: Verification,
    /// Made for the first connection with TLS: the root certificates take time and memory.
    tls: OnceLock<Result<TlsConnector, HttpError>>,
}

impl Connector {
    pub(crate) fn new(
        connect_max: Duration,
        reach: Reach,
        proxies: Proxies,
        verification: Verification,
    ) -> Self {
        let uses_proxies = proxies == Proxies::Environment && reach == Reach::Any;
        Self(Arc::new(Policy {
            connect_max,
            reach,
            proxies: uses_proxies.then(Matcher::from_env),
            verification,
            tls: OnceLock::new(),
        }))
    }

    /// Host and port of the proxy through which this URL is requested.
    pub(crate) fn proxy_of(&self, uri: &Uri) -> Option<String> {
        let proxy = self.0.proxy_of(uri)?;
        let target = Target::of(proxy.uri()).ok()?;
        Some(format!("{}:{}", target.host, target.port))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Transport>;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, HttpError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            let opened = timeout(policy.connect_max, policy.open(&uri)).await;
            let opened = opened.map_err(|_| HttpError::ConnectTime(policy.connect_max))?;
            opened.map(|io| TokioIo::new(Transport(io)))
        })
    }
}

/// Host, port and TLS of a URL.
struct Target<'a> {
    host: &'a str,
    port: u16,
    is_tls: bool,
}

impl<'a> Target<'a> {
    fn of(uri: &'a Uri) -> Result<Self, HttpError> {
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(HttpError::Url(uri.to_string())),
        };
        let host = uri.host().ok_or_else(|| HttpError::Url(uri.to_string()))?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { host, port, is_tls })
    }
}

impl Policy {
    async fn open(&self, uri: &Uri) -> Result<BoxedIo, HttpError> {
        let target = Target::of(uri)?;
        let io = match self.proxy_of(uri) {
            None => self.dial(&target).await?,
            Some(proxy) => self.tunnel(&proxy, &target).await?,
        };
        if target.is_tls {
            self.shake_hands(io, target.host).await
        } else {
            Ok(io)
        }
    }

    fn proxy_of(&self, uri: &Uri) -> Option<Intercept> {
        self.proxies.as_ref()?.intercept(uri)
    }

    /// A connection to one of the host's addresses; each has an equal share of the time.
    async fn dial(&self, target: &Target<'_>) -> Result<BoxedIo, HttpError> {
        let addresses = resolve(self.reach, target.host, target.port).await?;
        self.check(&addresses)?;
        let tried = addresses.len().min(ADDRESSES_MAX);
        let share = self.connect_max / u32::try_from(tried).unwrap_or(u32::MAX).max(1);
        let mut failure = HttpError::Unreachable("the host has no address".to_owned());
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            failure = match timeout(share, TcpStream::connect(address)).await {
                Err(_) => HttpError::ConnectTime(share),
                Ok(Err(why)) => HttpError::Unreachable(why.to_string()),
                Ok(Ok(socket)) => {
                    // Without it small requests wait for the acknowledgment of the ones before.
                    let _ = socket.set_nodelay(true);
                    return Ok(Box::new(socket));
                }
            };
        }
        Err(failure)
    }

    fn check(&self, addresses: &[SocketAddr]) -> Result<(), HttpError> {
        let is_allowed = |address: &SocketAddr| match self.reach {
            Reach::Any => true,
            Reach::Public => is_public(address.ip()),
        };
        if addresses.iter().all(is_allowed) {
            Ok(())
        } else {
            Err(HttpError::NotPublic)
        }
    }

    /// A connection to the target through a proxy.
    async fn tunnel(&self, proxy: &Intercept, target: &Target<'_>) -> Result<BoxedIo, HttpError> {
        let through = Target::of(proxy.uri()).map_err(|_| {
            let scheme = proxy.uri().scheme_str().unwrap_or_default();
            HttpError::Proxy(format!(
                "has the scheme {scheme}: only http and https are supported"
            ))
        })?;
        let mut io = self.dial(&through).await?;
        if through.is_tls {
            io = self.shake_hands(io, through.host).await?;
        }
        let (host, port) = (target.host, target.port);
        let mut request =
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
        if let Some(auth) = proxy.basic_auth() {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(auth.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let broken = |why: io::Error| HttpError::Proxy(format!("broke off: {why}"));
        io.write_all(&request).await.map_err(broken)?;
        io.flush().await.map_err(broken)?;
        let mut head = Vec::new();
        // Byte by byte, since what follows the head is the target's.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == PROXY_HEAD_BYTES_MAX {
                return Err(HttpError::Proxy(
                    "answers with a head that is too large".to_owned(),
                ));
            }
            head.push(io.read_u8().await.map_err(broken)?);
        }
        let status = head.split(|byte| matches!(byte, b' ' | b'\r')).nth(1);
        match status {
            Some(b"200") => Ok(io),
            status => Err(HttpError::Proxy(format!(
                "refuses the connection with status {:.3}",
                String::from_utf8_lossy(status.unwrap_or_default())
            ))),
        }
    }

    async fn shake_hands(&self, io: BoxedIo, host: &str) -> Result<BoxedIo, HttpError> {
        let name = ServerName::try_from(without_brackets(host).to_owned());
        let name = name.map_err(|why| HttpError::Tls(why.to_string()))?;
        let tls = self.tls.get_or_init(|| {
            let made = tls::connector(self.verification);
            made.map_err(|why| HttpError::Tls(why.to_string()))
        });
        let io = tls.as_ref().map_err(Clone::clone)?.connect(name, io).await;
        Ok(Box::new(io.map_err(|why| HttpError::Tls(why.to_string()))?))
    }
}

/// The addresses of a host. The thread of a look-up that is no longer waited for ends when the system's resolver gives up.
async fn resolve(reach: Reach, host: &str, port: u16) -> Result<Vec<SocketAddr>, HttpError> {
    if let Ok(address) = without_brackets(host).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let failed = |why: String| HttpError::Unreachable(format!("{host}: {why}"));
    let lookups = match reach {
        Reach::Any => &LOOKUPS[0],
        Reach::Public => &LOOKUPS[1],
    };
    let place = lookups
        .acquire()
        .await
        .map_err(|why| failed(why.to_string()))?;
    let (sender, found) = oneshot::channel();
    let name = host.to_owned();
    let look_up = move || {
        let found = (name.as_str(), port).to_socket_addrs();
        let _ = sender.send(found.map(Iterator::collect));
        drop(place);
    };
    let thread = std::thread::Builder::new().name(LOOKUP_THREAD.to_owned());
    thread
        .spawn(look_up)
        .map_err(|why| failed(why.to_string()))?;
    let found = found.await.map_err(|why| failed(why.to_string()))?;
    found.map_err(|why| failed(why.to_string()))
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type BoxedIo = Box<dyn Io>;

/// A connection to a server, with or without TLS.
pub(crate) struct Transport(BoxedIo);

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

impl Connection for Transport {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(reach: Reach) -> Connector {
        let second = Duration::from_secs(1);
        Connector::new(second, reach, Proxies::Environment, Verification::Roots)
    }

    #[test]
    fn one_private_address_among_public_ones_is_rejected() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 443);
        let mixed = [address("8.8.8.8"), address("::ffff:10.0.0.1")];
        let public = [address("8.8.8.8"), address("2606:4700::1111")];
        let check = |reach, addresses| policy(reach).0.check(addresses);
        assert_eq!(check(Reach::Public, &mixed), Err(HttpError::NotPublic));
        assert_eq!(check(Reach::Public, &public), Ok(()));
        assert_eq!(check(Reach::Any, &mixed), Ok(()));
    }

    #[test]
    fn addresses_are_checked_where_the_connection_is_made() {
        assert!(
            policy(Reach::Public).0.proxies.is_none(),
            "a proxy would look up the name itself"
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
            let uri: Uri = format!("http://{host}:{port}/").parse().unwrap();
            let opened = runtime.block_on(policy(Reach::Public).0.open(&uri));
            assert_eq!(opened.err(), Some(HttpError::NotPublic), "{host}");
        }
        let uri: Uri = format!("http://localhost:{port}/").parse().unwrap();
        assert!(runtime.block_on(policy(Reach::Any).0.open(&uri)).is_ok());
    }

    #[test]
    fn target_is_http_or_https_with_a_host() {
        let of = |text: &str| {
            let uri: Uri = text.parse().unwrap();
            Target::of(&uri).map(|target| (target.host.to_owned(), target.port, target.is_tls))
        };
        assert_eq!(of("http://a"), Ok(("a".to_owned(), 80, false)));
        assert_eq!(of("https://[::1]/x"), Ok(("[::1]".to_owned(), 443, true)));
        assert_eq!(of("https://a:9"), Ok(("a".to_owned(), 9, true)));
        assert!(of("ftp://a").is_err() && of("/x").is_err());
    }
}
