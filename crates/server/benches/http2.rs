//! Frames of 64 streams over HTTP/1.1 and over HTTP/2: the server thread's CPU time, writes and bytes for each frame.
//!
//! `cargo bench -p server --bench http2`. All streams have a frame every 5 ms, as an engine step gives them one. Both
//! protocols are hyper's, so that the protocol is all that differs; HTTP/2 has one stream for each connection, as
//! clients of their own have, and all streams on one connection, as a proxy might.
#![expect(clippy::print_stdout, reason = "the figures")]

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::fs;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinSet;
use tokio::time::interval;

type Error = Box<dyn std::error::Error + Send + Sync>;

const STREAMS: usize = 64;
/// Frames of each stream that are measured.
const FRAMES: u64 = 1_000;
const ROUNDS: usize = 3;
const STEP: Duration = Duration::from_millis(5);
/// A chunk of a chat completion with one token, as it is on the wire.
const FRAME: &str = "id: 0000000000000000000000000000000a.17\ndata: {\"id\":\"chatcmpl-0123456789abcdef01234567\",\"object\":\"chat.completion.chunk\",\
    \"created\":1764288000,\"model\":\"qwen3:0.6b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" water\"},\"finish_reason\":null}]}\n\n";

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
}

/// What the server did, in all connections.
#[derive(Default)]
struct Counts {
    cpu_ns: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counts {
    fn load(&self) -> [u64; 3] {
        [&self.cpu_ns, &self.writes, &self.written_bytes].map(|n| n.load(Ordering::Relaxed))
    }
}

/// A socket that counts what is written.
struct CountedSocket {
    socket: TcpStream,
    counts: Arc<Counts>,
}

impl CountedSocket {
    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.counts.writes.fetch_add(1, Ordering::Relaxed);
            let bytes = *bytes as u64;
            self.counts
                .written_bytes
                .fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for CountedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// CPU time of this thread in nanoseconds, from the kernel's scheduler statistics.
fn thread_cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    nanoseconds.unwrap_or(0)
}

/// A stream without an end: the same frame at each step.
async fn respond(
    steps: broadcast::Receiver<()>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let frames = futures_util::stream::unfold(steps, |mut steps| async {
        match steps.recv().await {
            Ok(()) | Err(RecvError::Lagged(_)) => {
                let frame = Frame::data(Bytes::from_static(FRAME.as_bytes()));
                Some((Ok(frame), steps))
            }
            Err(RecvError::Closed) => None,
        }
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response
        .body(StreamBody::new(frames))
        .unwrap_or_else(|error| unreachable!("constant header fields: {error}")))
}

async fn serve(
    listener: std::net::TcpListener,
    protocol: Protocol,
    counts: Arc<Counts>,
) -> Result<(), Error> {
    let listener = TcpListener::from_std(listener)?;
    let (steps, _) = broadcast::channel(16);
    let (ticks, of_thread) = (steps.clone(), Arc::clone(&counts));
    tokio::spawn(async move {
        let mut step = interval(STEP);
        loop {
            step.tick().await;
            // Without a receiver there is nobody to send a frame to.
            let _ = ticks.send(());
            of_thread.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        }
    });
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let counts = Arc::clone(&counts);
        let io = TokioIo::new(CountedSocket { socket, counts });
        let steps = steps.clone();
        let service = service_fn(move |_: Request<Incoming>| respond(steps.subscribe()));
        tokio::spawn(async move {
            // A connection ends with its client.
            match protocol {
                Protocol::Http1 => {
                    let _ = server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                }
                Protocol::Http2 => {
                    let _ = server::conn::http2::Builder::new(TokioExecutor::new())
                        .max_concurrent_streams(STREAMS as u32)
                        .serve_connection(io, service)
                        .await;
                }
            }
        });
    }
}

/// Opens `streams` streams on one connection and counts the frames that arrive.
async fn read(
    server: SocketAddr,
    protocol: Protocol,
    streams: usize,
    received: Arc<AtomicU64>,
) -> Result<(), Error> {
    let io = TokioIo::new(TcpStream::connect(server).await?);
    let request = || Request::get("http://localhost/").body(Empty::<Bytes>::new());
    let mut bodies = JoinSet::new();
    let count = |response: Response<Incoming>, received: Arc<AtomicU64>| async move {
        let mut body = response.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            received.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    match protocol {
        Protocol::Http1 => {
            let (mut sender, connection) = client::conn::http1::handshake(io).await?;
            tokio::spawn(connection);
            let response = sender.send_request(request()?).await?;
            bodies.spawn(count(response, received));
        }
        Protocol::Http2 => {
            let (mut sender, connection) =
                client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            for _ in 0..streams {
                let response = sender.send_request(request()?).await?;
                bodies.spawn(count(response, Arc::clone(&received)));
            }
        }
    }
    bodies.join_all().await;
    Ok(())
}

/// CPU nanoseconds, writes and bytes for each frame.
async fn measure(protocol: Protocol, connections: usize) -> Result<[f64; 3], Error> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let (server, counts) = (listener.local_addr()?, Arc::<Counts>::default());
    let served = Arc::clone(&counts);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                ended = serve(listener, protocol, served) => ended,
                _ = stopped => Ok(()),
            }
        })
    });
    let (received, mut readers) = (Arc::<AtomicU64>::default(), JoinSet::new());
    for _ in 0..connections {
        let received = Arc::clone(&received);
        readers.spawn(read(server, protocol, STREAMS / connections, received));
    }
    let frames = || received.load(Ordering::Relaxed) / FRAME.len() as u64;
    let wait_for = async |at_least: u64| {
        while frames() < at_least {
            tokio::time::sleep(STEP).await;
        }
    };
    wait_for(STREAMS as u64 * 20).await;
    let (before, first) = (counts.load(), frames());
    wait_for(first + STREAMS as u64 * FRAMES).await;
    let (after, last) = (counts.load(), frames());
    let per_frame = |i: usize| (after[i] - before[i]) as f64 / (last - first) as f64;
    let figures = [per_frame(0), per_frame(1), per_frame(2)];
    drop(stop);
    readers.shutdown().await;
    thread.join().map_err(|_| "the server panicked")??;
    Ok(figures)
}

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("| protocol | connections | CPU, us/frame | writes/frame | bytes/frame |");
    println!("|---|---|---|---|---|");
    for _ in 0..ROUNDS {
        for (name, protocol, connections) in [
            ("HTTP/1.1", Protocol::Http1, STREAMS),
            ("HTTP/2", Protocol::Http2, STREAMS),
            ("HTTP/2", Protocol::Http2, 1),
        ] {
            let [cpu_ns, writes, bytes] = runtime.block_on(measure(protocol, connections))?;
            let cpu_us = cpu_ns / 1e3;
            println!("| {name} | {connections} | {cpu_us:.2} | {writes:.2} | {bytes:.0} |");
        }
    }
    Ok(())
}
