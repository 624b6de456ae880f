//! The client against scripted servers on loopback.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_client::{
    BlockingClient, ClientOptions, HttpClient, HttpError, Reach, next_bytes, read_body,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use testing::wait::PATIENCE;
use tokio::runtime::{Builder, Runtime};

/// Requests that a test looks at.
const REQUESTS_MAX: usize = 16;

/// A server that answers each request with the bytes for its path and that keeps connections open.
struct Scripted {
    address: SocketAddr,
    /// Number of the connection, and the head of the request.
    requests: Receiver<(usize, String)>,
}

impl Scripted {
    fn start(answer: impl Fn(&str) -> String + Send + Clone + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = sync_channel(REQUESTS_MAX);
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().flatten().enumerate() {
                let (sender, answer) = (sender.clone(), answer.clone());
                std::thread::spawn(move || {
                    while let Some(head) = read_head(&socket) {
                        let bytes = answer(head.split(' ').nth(1).unwrap());
                        let _ = sender.send((number, head));
                        (&socket).write_all(bytes.as_bytes()).unwrap();
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn next(&self) -> (usize, String) {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }
}

/// A request's head in lower case; `None`: the connection has ended. The requests have no bodies.
fn read_head(socket: &TcpStream) -> Option<String> {
    let mut lines = BufReader::with_capacity(1, socket).lines();
    let mut head = lines.next()?.ok()?;
    for line in lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
    {
        head.push('\n');
        head.push_str(&line.to_lowercase());
    }
    Some(head)
}

fn response(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{fields}\r\n{body}")
}

fn get(url: &str) -> Request<Bytes> {
    let request = Request::get(url).header(header::AUTHORIZATION, "Bearer t");
    request.body(Bytes::new()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn redirects_are_followed_and_the_key_stays() {
    let other = Scripted::start(|_| response("200 OK", "", "moved"));
    let away = other.url("/there");
    let here = Scripted::start(move |path| match path {
        "/near" => response("302 Found", "location: /far\r\n", ""),
        "/far" => response(
            "307 Temporary Redirect",
            &format!("location: {away}\r\n"),
            "",
        ),
        _ => response("308 Permanent Redirect", "location: /circle\r\n", ""),
    });
    let client = |redirects_max| {
        let options = ClientOptions {
            redirects_max,
            ..ClientOptions::default()
        };
        BlockingClient::new(options).unwrap()
    };
    let send = |path: &str| client(3).send(get(&here.url(path)), PATIENCE, PATIENCE);
    let mut body = String::new();
    let response = send("/near").unwrap();
    response.into_body().read_to_string(&mut body).unwrap();
    assert_eq!(body, "moved");
    let key = "authorization: bearer t";
    assert!(here.next().1.contains(key) && here.next().1.contains(key));
    assert!(!other.next().1.contains("authorization"));
    assert_eq!(send("/circle").err(), Some(HttpError::Redirects(3)));
    let unfollowed = client(0).send(get(&here.url("/near")), PATIENCE, PATIENCE);
    assert_eq!(unfollowed.unwrap().status(), StatusCode::FOUND);
}

#[test]
fn connection_is_used_again_after_a_complete_body() {
    let server = Scripted::start(|_| response("200 OK", "", "abc"));
    let client = HttpClient::new(ClientOptions {
        idle_max: 1,
        ..ClientOptions::default()
    });
    runtime().block_on(async {
        for _ in 0..3 {
            let response = client.send(get(&server.url("/")), PATIENCE).await.unwrap();
            let body = read_body(response.into_body(), 3, PATIENCE).await;
            assert_eq!(body.unwrap(), "abc");
            // The connection returns to the pool in a task of its own.
            tokio::task::yield_now().await;
        }
        let response = client.send(get(&server.url("/")), PATIENCE).await.unwrap();
        let body = read_body(response.into_body(), 2, PATIENCE).await;
        assert_eq!(body, Err(HttpError::TooLarge(2)));
    });
    let connections: Vec<_> = (0..3).map(|_| server.next().0).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[test]
fn bounds_of_time_and_reach_end_a_request() {
    let moment = Duration::from_millis(20);
    let server = Scripted::start(|path| match path {
        "/begun" => "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_owned(),
        _ => String::new(),
    });
    let client = HttpClient::new(ClientOptions::default());
    let public = HttpClient::new(ClientOptions {
        reach: Reach::Public,
        ..ClientOptions::default()
    });
    runtime().block_on(async {
        let silent = client.send(get(&server.url("/silent")), moment).await;
        assert_eq!(silent.err(), Some(HttpError::Silent(moment)));
        let begun = client.send(get(&server.url("/begun")), PATIENCE).await;
        let mut body = begun.unwrap().into_body();
        assert_eq!(
            next_bytes(&mut body, PATIENCE).await.unwrap().unwrap(),
            "abc"
        );
        let end = next_bytes(&mut body, moment).await;
        assert_eq!(end, Err(HttpError::Silent(moment)));
        let url = format!("http://localhost:{}/", server.address.port());
        let refused = public.send(get(&url), PATIENCE).await;
        assert_eq!(refused.err(), Some(HttpError::NotPublic));
        let port = server.address.port();
        let tls = client
            .send(get(&format!("https://localhost:{port}/")), PATIENCE)
            .await;
        assert!(
            matches!(tls, Err(HttpError::Tls(_) | HttpError::ConnectTime(_))),
            "{tls:?}"
        );
    });
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gone = runtime().block_on(client.send(get(&format!("http://{closed}/")), PATIENCE));
    let why = gone.err().unwrap().to_string();
    assert!(why.contains("refused"), "{why}");
}
