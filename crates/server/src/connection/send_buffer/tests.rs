//! Promise (Hostile input and memory): a response of known length longer than `send_buffer_bytes` gets a large send
//! buffer, limited over all connections; a stream never does.

use super::super::client_socket::BufferedStream;
use super::super::handover::Handover;
use super::*;
use crate::connection::client_socket;
use crate::metrics::{CountedSocket, Metrics};
use http_body_util::BodyExt;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const SMALL: usize = 8 << 10;
const LARGE: usize = 64 << 10;
const PIECE: usize = 100;

fn config() -> ServerConfig {
    ServerConfig {
        send_buffer_bytes: SMALL,
        answer_buffer_bytes: LARGE,
        ..ServerConfig::default()
    }
}

/// The server side of a connection, the send buffer, a second handle of the socket, and the client side.
async fn connected_stream() -> (
    BufferedStream,
    Arc<SendBuffer>,
    std::net::TcpStream,
    TcpStream,
) {
    let config = config();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap());
    let (peer, accepted) = tokio::join!(peer, listener.accept());
    let (stream, _) = accepted.unwrap();
    client_socket::set_options(&stream, &config).unwrap();
    let stream = stream.into_std().unwrap();
    let same = stream.try_clone().unwrap();
    let stream = TcpStream::from_std(stream).unwrap();
    let buffer = Arc::new(SendBuffer::new(&config));
    let socket = CountedSocket::new(
        Box::new(ClientSocket::Tcp(stream)),
        Arc::new(Metrics::default()),
    );
    let buffered = BufferedStream::new(socket, Arc::new(Handover::default()), Arc::clone(&buffer));
    (buffered, buffer, same, peer.unwrap())
}

fn sized_response(bytes: usize) -> Response<Body> {
    Response::new(Body::from(vec![b'x'; bytes]))
}

fn streamed_response() -> Response<Body> {
    let frames = futures_util::stream::pending::<Result<Bytes, axum::Error>>();
    Response::new(Body::from_stream(frames))
}

#[tokio::test]
async fn response_longer_than_the_small_buffer_gets_the_large_one() {
    let (mut buffered, buffer, socket, _peer) = connected_stream().await;
    let buffers = AnswerBuffers::new(1 << 20);
    let rows = [
        ("as accepted", None, SMALL),
        ("short", Some(sized_response(SMALL)), SMALL),
        ("long", Some(sized_response(SMALL + 1)), LARGE),
        ("long again", Some(sized_response(1 << 20)), LARGE),
        ("a stream after it", Some(streamed_response()), SMALL),
        ("long after a stream", Some(sized_response(1 << 20)), LARGE),
        ("a short one after it", Some(sized_response(1)), SMALL),
    ];
    for (label, response, bytes) in rows {
        if let Some(response) = response {
            buffer.prepare_response(response, &buffers, PIECE);
        }
        buffered.write_all(b"x").await.unwrap();
        let given = SockRef::from(&socket).send_buffer_size().unwrap();
        // The kernel may report the doubled size.
        assert!(
            [bytes, KERNEL_FACTOR * bytes].contains(&given),
            "{label}: {given}"
        );
    }
}

#[tokio::test]
async fn large_buffers_share_a_budget_and_others_stay_small() {
    // Budget for one and a half large buffers.
    let buffers = AnswerBuffers::new(3 * LARGE);
    let config = config();
    let [first, second, third] = [(); 3].map(|()| SendBuffer::new(&config));
    let is_large = |buffer: &SendBuffer, bytes| {
        buffer.prepare_response(sized_response(bytes), &buffers, PIECE);
        buffer.is_large.load(Ordering::Relaxed)
    };
    assert!(is_large(&first, 1 << 20));
    assert!(!is_large(&second, 1 << 20), "budget is used up");
    assert!(is_large(&third, LARGE), "needs less");
    assert!(
        is_large(&first, 1 << 20),
        "own reservation is released first"
    );
    assert!(!is_large(&first, 1), "released");
    assert!(is_large(&second, 1 << 20));
    drop(second);
    assert!(
        is_large(&first, 1 << 20),
        "the end of a connection releases too"
    );
}

#[tokio::test]
async fn body_in_pieces_equals_the_body() {
    let buffers = AnswerBuffers::new(1 << 20);
    let bytes: Vec<u8> = (0..=250).cycle().take(SMALL + 33).collect();
    let response = Response::new(Body::from(bytes.clone()));
    let mut body = SendBuffer::new(&config())
        .prepare_response(response, &buffers, PIECE)
        .into_body();
    let mut received = Vec::new();
    while !body.is_end_stream() {
        let left = (bytes.len() - received.len()) as u64;
        assert_eq!(body.size_hint().exact(), Some(left));
        let frame = body.frame().await.unwrap().unwrap();
        let data = frame.into_data().unwrap();
        assert!((1..=PIECE).contains(&data.len()));
        received.extend_from_slice(&data);
    }
    assert_eq!(received, bytes);
    assert!(body.frame().await.is_none());
}
