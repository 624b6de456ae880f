//! Images that requests name by addresses of other servers: fetched from hosts that the operator names, and from no others.

use crate::encoders::body;
use crate::images::{BLUE, RED, square};
use crate::support::{Folder, Serving, millrace, stdout};
use crate::vision_proxy::Live;
use crate::vision_proxy::seer::Seer;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use testing::wait::wait_until;

/// A file that a test replaces.
type NowFile = Arc<Mutex<Option<Vec<u8>>>>;

const PICTURE: &[u8] = include_bytes!("../pictures/red-square.png");
const QUESTION: &str = "Which colour is the square?";

/// A server with a picture and other answers, by path.
pub(crate) struct FileServer {
    pub(crate) address: String,
    /// The file at `/now`; `None`: there is none.
    now: NowFile,
    /// Heads of requests.
    heads: Arc<Mutex<Vec<String>>>,
    /// Connections that the client closed while there was no answer.
    closed: Arc<Mutex<usize>>,
}

impl FileServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (heads, closed) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::<Mutex<usize>>::default(),
        );
        let now = NowFile::default();
        let server = Self {
            address: address.clone(),
            now: Arc::clone(&now),
            heads: Arc::clone(&heads),
            closed: Arc::clone(&closed),
        };
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (heads, closed, address) =
                    (Arc::clone(&heads), Arc::clone(&closed), address.clone());
                let now = Arc::clone(&now);
                std::thread::spawn(move || {
                    let Some(head) = read_head(&socket) else {
                        return;
                    };
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    heads.lock().unwrap().push(head.to_ascii_lowercase());
                    if path == "/now" {
                        return answer_now(socket, now.lock().unwrap().as_deref());
                    }
                    if answer(socket, &path, &address).is_none() {
                        *closed.lock().unwrap() += 1;
                    }
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Has another file at `/now`, or none.
    pub(crate) fn have(&self, file: Option<Vec<u8>>) {
        *self.now.lock().unwrap() = file;
    }

    /// Requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

fn read_head(mut socket: &TcpStream) -> Option<String> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).ok()
}

fn answer_now(mut socket: TcpStream, file: Option<&[u8]>) {
    let status = if file.is_some() { 200 } else { 404 };
    let file = file.unwrap_or_default();
    let length = file.len();
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = socket.write_all(&[head.as_bytes(), file].concat());
}

/// `None`: the client closed the connection.
fn answer(mut socket: TcpStream, path: &str, address: &str) -> Option<()> {
    let redirect = |location: &str| {
        format!(
            "HTTP/1.1 302 Found\r\nset-cookie: a=b\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    };
    let head = match path {
        "/red.png" => {
            let length = PICTURE.len();
            // The label is wrong: the bytes decide.
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            )
        }
        "/once" => redirect("/red.png"),
        "/four" => redirect(&format!("http://{address}/three")),
        "/three" => redirect("/two"),
        "/two" => redirect("/once"),
        "/elsewhere" => redirect("http://localhost/red.png"),
        "/metadata" => redirect("http://169.254.169.254/latest/meta-data"),
        "/large" => {
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\nconnection: close\r\n\r\n".to_owned()
        }
        "/silent" => {
            return match socket.read(&mut [0]) {
                Ok(0) | Err(_) => None,
                Ok(_) => Some(()),
            };
        }
        "/text" => {
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_owned()
        }
        _ => "HTTP/1.1 404 X\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_owned(),
    };
    let _ = socket.write_all(head.as_bytes());
    if path == "/red.png" {
        let _ = socket.write_all(PICTURE);
    }
    if path == "/large" {
        // More than an image may have, unless the client stops.
        while socket.write_all(&[0; 1 << 16]).is_ok() {}
    }
    Some(())
}

fn serve(vars: &[(&str, &str)]) -> Serving {
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/mini/millrace-mini-vision.gguf"
    );
    let args = ["serve", model, "--bind", "127.0.0.1:0"];
    Serving::start_with(&args, vars, Stdio::null())
}

fn chat(url: &str) -> Value {
    chat_about(&[url.to_owned()])
}

fn chat_about(urls: &[String]) -> Value {
    let image = |url: &String| json!({"type": "image_url", "image_url": {"url": url}});
    let text = json!({"type": "text", "text": QUESTION});
    let parts: Vec<Value> = urls.iter().map(image).chain([text]).collect();
    json!({"temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": parts}]})
}

fn refused(serving: &Serving, url: &str) -> String {
    let reply = serving.post("/v1/chat/completions", &chat(url).to_string());
    let error = body(&reply, 400);
    let message = error["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("messages[0].content[0]: "), "{message}");
    assert!(!message.contains("secret"), "{message}");
    message
}

/// Promise (Images): images of other servers are fetched where the operator allows it, in each API that has addresses.
#[test]
fn image_of_another_server_is_seen() {
    let files = FileServer::start();
    let host = format!("http://{}", files.address);
    let serving = serve(&[
        ("MILLRACE_VISION_REMOTE_ENABLED", "true"),
        ("MILLRACE_VISION_REMOTE_HOSTS", &host),
    ]);
    let post = |path: &str, request: Value| body(&serving.post(path, &request.to_string()), 200);
    for path in ["/red.png", "/once", "/two", "/three"] {
        let said = post("/v1/chat/completions", chat(&files.url(path)));
        let said = said["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(said.contains("red"), "{path}: {said}");
    }
    let url = files.url("/red.png");
    let input = json!([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION}]);
    let input = json!({"temperature": 0, "max_output_tokens": 12, "input": [{"role": "user", "content": input}]});
    let said = post("/v1/responses", input);
    assert!(
        said["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("red"),
        "{said}"
    );
    let parts = json!([{"type": "image", "source": {"type": "url", "url": url}}, {"type": "text", "text": QUESTION}]);
    let message = json!({"model": "millrace-mini-vision", "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "user", "content": parts}]});
    let said = post("/v1/messages", message);
    assert!(
        said["content"][0]["text"].as_str().unwrap().contains("red"),
        "{said}"
    );
    let heads = files.heads.lock().unwrap();
    for head in heads.iter() {
        let has = |name: &str| head.contains(&format!("\r\n{name}:"));
        assert!(
            head.starts_with("get /") && !has("cookie") && !has("authorization"),
            "{head}"
        );
    }
}

/// Promise (Images): by default no address is fetched, and otherwise only those of hosts that the operator names, at public
/// addresses, also after a redirect; an error names the field, the host and the reason, and repeats nothing that came.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn other_addresses_are_refused() {
    let files = FileServer::start();
    let host = format!("http://{}, localhost:*, nowhere.invalid", files.address);
    let serving = serve(&[
        ("MILLRACE_VISION_REMOTE_ENABLED", "true"),
        ("MILLRACE_VISION_REMOTE_HOSTS", &host),
        ("MILLRACE_VISION_REMOTE_TIMEOUT_MS", "2000"),
        ("MILLRACE_VISION_IMAGE_BYTES_MAX", "100000"),
    ]);
    let port = files.address.rsplit(':').next().unwrap();
    for (url, why) in [
        (
            files.url("/missing"),
            "could not be fetched from 127.0.0.1: its status is 404",
        ),
        (files.url("/text"), "is no image"),
        (
            files.url("/large"),
            "could not be fetched from 127.0.0.1: the response has more than 100000 bytes",
        ),
        (files.url("/four"), "is redirected more than 3 times"),
        (
            files.url("/elsewhere"),
            "is at localhost, which may not be asked by http at port 80",
        ),
        (
            files.url("/metadata"),
            "is at 169.254.169.254, which may not be asked by http",
        ),
        (
            format!("https://{}/red.png", files.address),
            "may not be asked by https",
        ),
        (
            format!("https://localhost:{port}/red.png"),
            "the host has an address that is not public",
        ),
        (
            "https://nowhere.invalid/a.png".to_owned(),
            "could not be fetched from nowhere.invalid: ",
        ),
        (
            "https://example.com/a.png".to_owned(),
            "is at example.com, which may not be asked",
        ),
        (
            "https://user:secret@localhost/a.png".to_owned(),
            "with a user or a password",
        ),
        ("file:///etc/passwd".to_owned(), "messages[0].content[0]: "),
    ] {
        let message = refused(&serving, &url);
        assert!(message.contains(why), "{url}: {message}");
    }
    let message = refused(&serving, &files.url("/silent"));
    assert!(
        message.contains("could not be fetched within 2000 ms (vision.remote.timeout_ms)"),
        "{message}"
    );
    wait_until("the connection is closed", || {
        *files.closed.lock().unwrap() == 1
    });
    wait_until("no bytes are held", || {
        serving.get("/metrics").contains("millrace_image_bytes 0")
    });
    let off = serve(&[]);
    let asked = files.asked();
    let message = refused(&off, &files.url("/red.png"));
    assert!(
        message.contains("remote images are off (vision.remote): send a data URL"),
        "{message}"
    );
    assert_eq!(files.asked(), asked);
}

/// The bounds of a request are checked before an image is fetched for it, and the first failure ends the other fetches.
#[test]
fn nothing_is_fetched_for_a_request_beyond_its_bounds() {
    let files = FileServer::start();
    let host = format!("http://{}", files.address);
    let serving = serve(&[
        ("MILLRACE_VISION_REMOTE_ENABLED", "true"),
        ("MILLRACE_VISION_REMOTE_HOSTS", &host),
        ("MILLRACE_VISION_REMOTE_TIMEOUT_MS", "3600000"),
    ]);
    let error = |path: &str, request: &Value| {
        let error = body(&serving.post(path, &request.to_string()), 400);
        error["error"]["message"].as_str().unwrap().to_owned()
    };
    let path = "/v1/chat/completions";
    let red = || files.url("/red.png");
    let many = error(path, &chat_about(&vec![red(); 17]));
    assert!(
        many.contains("messages[0].content[16]: is image 17 of 17"),
        "{many}"
    );
    let elsewhere = "https://example.com/a.png".to_owned();
    let refused = error(path, &chat_about(&[red(), elsewhere]));
    assert!(
        refused.contains("messages[0].content[1]: is at example.com"),
        "{refused}"
    );
    let why = "is a URL, and images of other servers are not fetched to count tokens";
    let source = json!({"type": "image", "source": {"type": "url", "url": red()}});
    let count = json!({"model": "millrace-mini-vision", "messages": [{"role": "user", "content": [source]}]});
    let counted = error("/v1/messages/count_tokens", &count);
    assert!(counted.contains(why), "{counted}");
    let image = json!({"type": "input_image", "image_url": red()});
    let count = json!({"input": [{"role": "user", "content": [image]}]});
    let counted = error("/v1/responses/input_tokens", &count);
    assert!(counted.contains(why), "{counted}");
    assert_eq!(files.asked(), 0);

    let urls = [files.url("/silent"), files.url("/missing")];
    let missing = error(path, &chat_about(&urls));
    assert!(
        missing.ends_with("its status is 404") && !missing.contains("content[0]"),
        "{missing}"
    );
    wait_until("the other connection is closed", || {
        *files.closed.lock().unwrap() == 1
    });
}

/// While images are fetched, the request counts as an open stream of its key, and fetched files as bytes of images.
#[test]
fn request_counts_while_its_images_are_fetched() {
    let folder = Folder::new("remote-keys");
    let keys = folder.0.join("keys.yaml").display().to_string();
    let new = ["keys", "--file", &keys, "new", "app"];
    let rights = [
        "--concurrent-streams",
        "1",
        "--scope",
        "inference",
        "--scope",
        "metrics",
    ];
    let made = millrace(&[&new[..], &rights[..]].concat());
    let key = format!("authorization: Bearer {}\r\n", stdout(&made).trim());
    let files = FileServer::start();
    let host = format!("http://{}", files.address);
    let serving = serve(&[
        ("MILLRACE_KEYS_FILE", &keys),
        ("MILLRACE_VISION_REMOTE_ENABLED", "true"),
        ("MILLRACE_VISION_REMOTE_HOSTS", &host),
        ("MILLRACE_VISION_REMOTE_TIMEOUT_MS", "3600000"),
    ]);
    let holds = |bytes: usize| {
        let line = format!("millrace_image_bytes {bytes}\n");
        serving.send("GET", "/metrics", &key, "").contains(&line)
    };
    let path = "/v1/chat/completions";
    let urls = [files.url("/red.png"), files.url("/silent")];
    let live = Live::open(&serving, path, &key, &chat_about(&urls));
    wait_until("both images are asked for", || files.asked() == 2);
    wait_until("the first one counts", || holds(PICTURE.len()));
    let second = chat(&files.url("/red.png")).to_string();
    let second = serving.post_with(&key, path, &second);
    assert!(second.starts_with("HTTP/1.1 429"), "{second}");
    assert_eq!(files.asked(), 2);
    live.close();
    wait_until("the fetch ends with its client", || {
        *files.closed.lock().unwrap() == 1
    });
    wait_until("no bytes are held", || holds(0));
    let third = chat(&files.url("/red.png")).to_string();
    body(&serving.post_with(&key, path, &third), 200);
}

/// A response that is continued without a journal has the bytes that were fetched for it in its item, which counts them, with a
/// model that sees and with one whose images are described.
#[test]
fn continued_response_has_the_image_that_was_fetched() {
    let files = FileServer::start();
    let host = format!("http://{}", files.address);
    let remote = [
        ("MILLRACE_VISION_REMOTE_ENABLED", "true"),
        ("MILLRACE_VISION_REMOTE_HOSTS", &*host),
    ];
    let url = files.url("/now");
    let parts = json!([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION}]);
    let first = json!({"temperature": 0, "max_output_tokens": 16, "input": [{"role": "user", "content": parts}]});
    let respond = |serving: &Serving, request: &Value| {
        body(&serving.post("/v1/responses", &request.to_string()), 200)
    };
    let next = |previous: &Value| json!({"temperature": 0, "max_output_tokens": 16, "previous_response_id": previous["id"], "input": QUESTION});
    files.have(Some(square(RED)));
    let serving = serve(&remote);
    let answer = respond(&serving, &first);
    files.have(Some(square(BLUE)));
    let second = respond(&serving, &next(&answer));
    files.have(None);
    for again in [&second, &respond(&serving, &next(&second))] {
        let text = again["output"][0]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("red"), "{again}");
    }
    let id = answer["id"].as_str().unwrap();
    let items = serving.get(&format!("/v1/responses/{id}/input_items"));
    let items = body(&items, 200);
    assert_eq!(items["data"][0]["content"][0]["image_url"], url, "{items}");
    let count = next(&second).to_string();
    let count = body(&serving.post("/v1/responses/input_tokens", &count), 200);
    assert!(count["input_tokens"].as_u64().unwrap() > 64, "{count}");
    assert_eq!(files.asked(), 1);

    files.have(Some(square(RED)));
    let small = [&remote[..], &[("MILLRACE_RESPONSES_STORED_BYTES", "10000")]].concat();
    let full = serve(&small).post("/v1/responses", &first.to_string());
    let full = body(&full, 503);
    assert_eq!(full["error"]["code"], "response_store_full", "{full}");

    let seer = Seer::saying("a red square");
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let blind = [&remote[..], &seer.variables()].concat();
    let blind = Serving::start_with(&args, &blind, Stdio::null());
    let answer = respond(&blind, &first);
    files.have(None);
    let second = respond(&blind, &next(&answer));
    assert_eq!(second["usage"]["vision_proxy"]["cached"], 1, "{second}");
    assert_eq!((files.asked(), seer.requests().len()), (3, 1));
}
