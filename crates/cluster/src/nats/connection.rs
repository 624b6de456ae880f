//! One connection of the process, opened once and connected again without end, with the versions of NATS servers that
//! are used.

use super::credentials;
use super::credentials::CredentialError;
use super::status::{ConnectionState, ConnectionStatus, Hearing, NatsServer, News};
use super::unreadable::UnreadableMessages;
use crate::config;
use crate::config::NatsConfig;
use async_nats::connection::State;
use async_nats::{
    Client, ClientError, ConnectOptions, Event, HeaderMap, Server, ServerAddr, ServerError,
};
use bytes::Bytes;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Time for one attempt, with login and TLS.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Time before the second attempt; each further one waits twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// Longest time between two attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// Time between two pings to the server; after two without an answer the connection is lost.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Time for the answer to a request.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Commands to the connection that wait, such as publications.
const COMMANDS_MAX: usize = 2048;
/// Messages that wait in one subscription; further ones are dropped and counted.
const SUBSCRIPTION_MESSAGES_MAX: usize = 4096;
/// Events of the connection that wait.
const EVENTS_MAX: usize = 256;
/// Longest time until a change of the connection is seen whose event was dropped.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Bytes of the reason why no server was reached.
const REASON_BYTES_MAX: usize = 1024;

/// A connection to NATS. It is usable while [`Connection::is_usable`]; dropping it ends it.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    shared: Arc<SharedStatus>,
    unreadable: Arc<UnreadableMessages>,
    hearing: Arc<Hearing>,
    monitor: JoinHandle<()>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatsCounts {
    /// Connections made.
    pub connects: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Errors that servers sent, such as denied subjects.
    pub errors: u64,
    /// Times that messages of a subscription were dropped because they were not taken in time.
    pub slow_consumer: u64,
}

#[derive(Debug)]
struct SharedStatus {
    status: Mutex<ConnectionStatus>,
    /// Changes with the state.
    usable: watch::Sender<bool>,
    errors: AtomicU64,
    slow_consumer: AtomicU64,
}

impl Connection {
    /// Opens a connection. Returns at once: servers that are not reachable are tried again for ever. Must be called inside
    /// a tokio runtime.
    ///
    /// # Errors
    /// An address is invalid, or a file of secrets or certificates cannot be used.
    pub async fn open(config: &NatsConfig) -> Result<Self, String> {
        let servers = config
            .servers
            .iter()
            .map(|server| config::parse_server(server))
            .collect::<Result<Vec<ServerAddr>, _>>()
            .map_err(|why| format!("cluster.servers: {why}"))?;
        if servers.is_empty() || servers.len() > config::SERVERS_MAX {
            return Err(format!(
                "cluster.servers: {} servers; 1 to {} are possible",
                servers.len(),
                config::SERVERS_MAX
            ));
        }
        let shared = Arc::new(SharedStatus {
            status: Mutex::new(ConnectionStatus::new(servers.len(), now())),
            usable: watch::Sender::new(false),
            errors: AtomicU64::new(0),
            slow_consumer: AtomicU64::new(0),
        });
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let options = options(config, &shared, events).map_err(|why| why.to_string())?;
        let client = options
            .connect(servers)
            .await
            .map_err(|why| format!("cluster.servers: {why}"))?;
        let monitor = Monitor {
            client: client.clone(),
            shared: Arc::clone(&shared),
            connects: 0,
        };
        Ok(Self {
            client,
            shared,
            unreadable: Arc::default(),
            hearing: Arc::new(Hearing::new(now())),
            monitor: tokio::spawn(monitor.run(received)),
        })
    }

    /// The client, for publications, requests and subscriptions. Subscriptions outlive a lost connection; publications
    /// during one wait and are sent late, so check [`Connection::is_usable`] before.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether messages may be sent: connected, with a server that is used.
    pub fn is_usable(&self) -> bool {
        *self.shared.usable.borrow()
    }

    /// Changes when [`Connection::is_usable`] does.
    pub fn usable_watch(&self) -> watch::Receiver<bool> {
        self.shared.usable.subscribe()
    }

    /// Why a gateway or an engine cannot do its work: not connected, a server that is not used, or a subject that is
    /// denied. `None`: it can.
    pub fn problem(&self) -> Option<String> {
        self.shared.status().problem(now())
    }

    /// The state.
    pub fn state(&self) -> ConnectionState {
        self.shared.status().state().clone()
    }

    /// Missing rights, a line each.
    pub fn denials(&self) -> Vec<String> {
        self.shared.status().denials(now())
    }

    /// Whether own heartbeats come back.
    pub fn hearing(&self) -> &Arc<Hearing> {
        &self.hearing
    }

    /// Messages that arrived over this connection and cannot be read.
    pub fn unreadable(&self) -> &Arc<UnreadableMessages> {
        &self.unreadable
    }

    /// Counts since the start.
    pub fn counts(&self) -> NatsCounts {
        let statistics = self.client.statistics();
        NatsCounts {
            connects: statistics.connects.load(Ordering::Relaxed),
            received: statistics.in_messages.load(Ordering::Relaxed),
            sent: statistics.out_messages.load(Ordering::Relaxed),
            errors: self.shared.errors.load(Ordering::Relaxed),
            slow_consumer: self.shared.slow_consumer.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.monitor.abort();
    }
}

impl SharedStatus {
    fn status(&self) -> MutexGuard<'_, ConnectionStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores whether the connection is usable after the state changed.
    fn publish_state(&self) {
        let is_usable = self.status().is_usable();
        self.usable.send_if_modified(|was| {
            let is_changed = *was != is_usable;
            *was = is_usable;
            is_changed
        });
    }
}

fn options(
    config: &NatsConfig,
    shared: &Arc<SharedStatus>,
    events: mpsc::Sender<Event>,
) -> Result<ConnectOptions, CredentialError> {
    let attempts = Arc::clone(shared);
    let options = ConnectOptions::new()
        .name(&config.connection_name)
        .retry_on_initial_connect()
        .connection_timeout(ATTEMPT_MAX)
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_MAX))
        .client_capacity(COMMANDS_MAX)
        .subscription_capacity(SUBSCRIPTION_MESSAGES_MAX)
        .reconnect_delay_callback(|attempt| delay(attempt, random()))
        .reconnect_to_server_callback(move |servers, _| {
            if let Some(reason) = reason(&servers) {
                log(attempts.status().attempt_failed(&reason));
            }
            // The client chooses the server.
            std::future::ready(None)
        })
        .event_callback(move |event| {
            // Full: the monitor looks at the connection itself soon.
            let _ = events.try_send(event);
            std::future::ready(())
        });
    credentials::with_credentials(options, &config.login, &config.tls)
}

/// The last error of each server; `None` before any failed.
fn reason(servers: &[Server]) -> Option<String> {
    let failed = servers.iter().filter_map(|server| {
        let why = server.last_error.as_ref()?;
        let why = why.to_string();
        let advice = tls_advice(&why).unwrap_or_default();
        let (host, port) = (server.addr.host(), server.addr.port());
        Some(format!("{host}:{port}: {why}{advice}"))
    });
    let mut text = failed.collect::<Vec<_>>().join("; ");
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    (!text.is_empty()).then_some(text)
}

/// What a failed handshake says about this process's settings.
fn tls_advice(why: &str) -> Option<&'static str> {
    // Before TLS 1.3, servers say "bad certificate" where there is none.
    let wants_certificate = ["BadCertificate", "CertificateRequired", "UnknownCA"];
    if why.contains("invalid peer certificate") {
        Some(" (the NATS server's certificate does not fit cluster.tls_ca, or its host name)")
    } else if wants_certificate.iter().any(|alert| why.contains(alert)) {
        Some(
            " (the NATS server does not accept the certificate of this process: cluster.tls_cert and cluster.tls_key)",
        )
    } else {
        None
    }
}

/// Follows the connection.
struct Monitor {
    client: Client,
    shared: Arc<SharedStatus>,
    /// Connections that were seen.
    connects: u64,
}

impl Monitor {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        loop {
            match tokio::time::timeout(LOOK_AGAIN, events.recv()).await {
                Ok(Some(event)) => self.take(event),
                // The client has ended.
                Ok(None) => return,
                Err(_) => {}
            }
            self.look().await;
        }
    }

    fn take(&self, event: Event) {
        let news = match event {
            Event::ServerError(ServerError::Other(error)) => {
                self.shared.errors.fetch_add(1, Ordering::Relaxed);
                self.shared.status().server_error(&error, now())
            }
            Event::SlowConsumer(_) => {
                self.shared.slow_consumer.fetch_add(1, Ordering::Relaxed);
                None
            }
            // Errors without a server in the list of servers, such as unknown hosts.
            Event::ClientError(ClientError::Other(error)) => {
                let mut status = self.shared.status();
                match status.state() {
                    ConnectionState::Disconnected { why: None, .. } => {
                        status.attempt_failed(&error)
                    }
                    _ => None,
                }
            }
            Event::LameDuckMode => Some(News::Info(
                "the NATS server is about to stop; another one is used".to_owned(),
            )),
            _ => None,
        };
        log(news);
    }

    /// Compares the status with the connection.
    async fn look(&mut self) {
        let connects = self.client.statistics().connects.load(Ordering::Relaxed);
        let is_connected = self.client.connection_state() == State::Connected;
        if connects != self.connects && self.connects > 0 || !is_connected {
            log(self.shared.status().disconnected(now()));
            self.shared.publish_state();
        }
        if !is_connected || connects == self.connects {
            return;
        }
        // The facts of the server are up to date when the connection handles commands.
        let flushed = tokio::time::timeout(REQUEST_MAX, self.client.flush()).await;
        let Some(info) = self
            .client
            .try_server_info()
            .filter(|_| matches!(flushed, Ok(Ok(()))))
        else {
            return;
        };
        self.connects = connects;
        let server = NatsServer {
            name: info.server_name,
            version: info.version,
            cluster: info.cluster,
            max_payload: info.max_payload,
        };
        let news = self.shared.status().connected(server, now());
        news.into_iter().for_each(|news| log(Some(news)));
        self.shared.publish_state();
    }
}

fn log(news: Option<News>) {
    match news {
        Some(News::Info(line)) => tracing::info!("{line}"),
        Some(News::Warning(line)) => tracing::warn!("{line}"),
        Some(News::Error(line)) => tracing::error!("{line}"),
        None => {}
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A random byte; 0 where the system has none.
fn random() -> u8 {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

/// Time before attempt `attempt`, counted from 1 since the connection was lost. `random` spreads the attempts of many
/// instances over a quarter of the time.
fn delay(attempt: usize, random: u8) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(attempt - 2).unwrap_or(u32::MAX).min(16);
    let whole = FIRST_DELAY
        .saturating_mul(1 << doublings)
        .min(LONGEST_DELAY);
    whole - whole / 4 * u32::from(random) / 255
}

/// Time for a message to be taken by the connection, which takes none while it is made again. Longer waits lose the message, as
/// the loss of the connection does.
const TAKEN_MAX: Duration = Duration::from_millis(100);

/// Gives a message to the connection.
///
/// # Errors
/// The connection is closed, or takes no message in time: the message is lost.
pub(crate) async fn publish_in_time(
    client: &Client,
    subject: String,
    header: Option<HeaderMap>,
    message: Bytes,
) -> Result<(), String> {
    let sent = async {
        match header {
            None => client.publish(subject, message).await,
            Some(header) => client.publish_with_headers(subject, header, message).await,
        }
    };
    match timeout(TAKEN_MAX, sent).await {
        Ok(sent) => sent.map_err(|why| why.to_string()),
        Err(_) => Err("the connection takes no message".to_owned()),
    }
}

/// Version of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion(pub u32, pub u32, pub u32);

/// Oldest server that is used: that of Debian 12, with which the tests run.
pub const VERSION_FLOOR: ServerVersion = ServerVersion(2, 9, 10);

/// Oldest server without a notice. Older ones were seen to lose whole streams of JetStream when a server is killed
/// (up to 2.10.22), or when files are damaged (up to 2.12.2).
pub const RECOMMENDED: ServerVersion = ServerVersion(2, 12, 3);

impl ServerVersion {
    /// Reads `2.12.8`, `v2.12.8` and `2.13.0-RC.1`. `None`: no version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let release = text.split(['-', '+']).next()?;
        let mut parts = release.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::ConnectOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn delays_double_up_to_a_bound() {
        assert_eq!(delay(0, 0), Duration::ZERO);
        assert_eq!(delay(1, 255), Duration::ZERO);
        let ms = [2, 3, 4, 5, 6, 7, 8, 9, usize::MAX].map(|n| delay(n, 0).as_millis());
        assert_eq!(ms, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        for attempt in 2..20 {
            let (long, short) = (delay(attempt, 0), delay(attempt, 255));
            assert_eq!(short, long - long / 4);
        }
    }

    /// A server that greets one client and is gone.
    async fn greet(listener: TcpListener) {
        let (mut socket, _) = listener.accept().await.unwrap();
        let info = b"INFO {\"server_id\":\"a\",\"version\":\"2.10.0\",\"max_payload\":1048576,\"proto\":1,\"headers\":true}\r\n";
        socket.write_all(info).await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"PING\r\n") {
            let mut part = [0; 512];
            let read = socket.read(&mut part).await.unwrap();
            heard.extend_from_slice(&part[..read]);
        }
        socket.write_all(b"PONG\r\n").await.unwrap();
    }

    #[tokio::test]
    async fn message_for_a_lost_connection_delays_its_sender_by_a_moment() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(greet(listener));
        let options = ConnectOptions::new().client_capacity(1);
        let client = options.connect(url).await.unwrap();
        server.await.unwrap();
        let mut outcome = Ok(());
        for _ in 0..100 {
            // Without the bound this would wait for the server without end.
            outcome = publish_in_time(&client, "a".to_owned(), None, Bytes::new()).await;
            if outcome.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let lost = Err("the connection takes no message".to_owned());
        assert_eq!(outcome, lost);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let parse = |text| ServerVersion::parse(text).unwrap();
        assert!(parse("2.9.9") < VERSION_FLOOR);
        assert!(parse("2.10.0") > VERSION_FLOOR);
        assert_eq!(parse("v2.12.3-RC.1"), RECOMMENDED);
        assert_eq!(parse("2.9.10").to_string(), "2.9.10");
        for bad in ["", "2", "2.9", "2.9.x", "2.9.10.1", "new"] {
            assert_eq!(ServerVersion::parse(bad), None, "{bad}");
        }
    }
}
