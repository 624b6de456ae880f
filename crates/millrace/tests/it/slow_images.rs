//! Images that take a while, since the tower is larger than the built-in model's: clients that leave meanwhile, and a memory
//! for images that is full.

use crate::encoders::body;
use crate::images::data_url;
use crate::support::{Folder, Serving};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use synth::VisionSpec;
use testing::wait::wait_until;

/// A picture of noise with this seed, as a BMP file: it is cut into four tiles.
pub(crate) fn noise(seed: u32) -> Vec<u8> {
    const EDGE: u32 = 512;
    let mut file = b"BM".to_vec();
    file.extend((54 + EDGE * EDGE * 3).to_le_bytes());
    file.extend([0; 4]);
    file.extend(54_u32.to_le_bytes());
    file.extend(40_u32.to_le_bytes());
    file.extend(EDGE.to_le_bytes());
    file.extend(EDGE.to_le_bytes());
    file.extend([1, 0, 24, 0]);
    file.extend([0; 24]);
    let mut state = seed | 1;
    for _ in 0..EDGE * EDGE * 3 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        file.push((state >> 24) as u8);
    }
    file
}

/// Writes a small model with a deep tower. Returns its path.
pub(crate) fn slow_model(folder: &Folder) -> String {
    slow_model_of(folder, 12)
}

/// As [`slow_model`], with so many layers.
pub(crate) fn slow_model_of(folder: &Folder, layers: u32) -> String {
    let spec = VisionSpec {
        dim: 256,
        layers,
        heads: 4,
        ffn: 1024,
        image: 256,
        longest_edge: 512,
        merge: 4,
        projection_dim: 64,
        ..VisionSpec::preset("tiny-idefics3").unwrap()
    };
    let mut text = spec.text().unwrap();
    text.context = 2048;
    let path: PathBuf = folder.0.join("slow.gguf");
    std::fs::write(&path, text.to_bytes().unwrap()).unwrap();
    std::fs::write(folder.0.join("slow.mmproj.gguf"), spec.to_bytes().unwrap()).unwrap();
    path.display().to_string()
}

/// A request about these pictures.
pub(crate) fn about(pictures: &[Vec<u8>]) -> Value {
    let part =
        |picture: &Vec<u8>| json!({"type": "image_url", "image_url": {"url": data_url(picture)}});
    let text = json!({"type": "text", "text": "What is this?"});
    let parts: Vec<Value> = pictures.iter().map(part).chain([text]).collect();
    json!({"temperature": 0, "max_tokens": 8, "ignore_eos": true, "messages": [{"role": "user", "content": parts}]})
}

/// The value of a metric, with its labels.
pub(crate) fn metric(server: &Serving, name: &str) -> f64 {
    let reply = server.get("/metrics");
    let line = reply
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .unwrap()
}

fn serve(model: &str, settings: &[(&str, &str)]) -> Serving {
    let args = ["serve", model, "--bind", "127.0.0.1:0"];
    Serving::start_with(&args, settings, Stdio::inherit())
}

/// Sends a request on a connection of its own.
fn send(server: &Serving, request: &Value) -> TcpStream {
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(address).unwrap();
    let body = request.to_string();
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    write!(
        socket,
        "{head}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    socket
}

fn content(reply: &str) -> String {
    let answer = body(reply, 200);
    answer["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Promise (Images): a client that leaves while its images are encoded ends the encoding: no rows are kept of it, the memory is
/// free, and the next request is answered as ever.
#[test]
fn client_that_leaves_ends_the_encoding_of_its_images() {
    let folder = Folder::new("slow-images-left");
    let model = slow_model(&folder);
    let server = serve(&model, &[]);
    let pictures: Vec<_> = (0..4).map(noise).collect();
    let left = send(&server, &about(&pictures));
    wait_until("an image is being encoded", || {
        metric(&server, "millrace_encodings_total") >= 1.0
    });
    drop(left);
    wait_until("nothing is left of the request", || {
        metric(&server, "millrace_image_bytes") == 0.0
    });
    let encoded = metric(&server, "millrace_encodings_total");
    assert!(encoded < 20.0, "all 20 pictures were encoded: {encoded}");
    let reply = server.post("/v1/chat/completions", &about(&pictures[3..]).to_string());
    let fresh = serve(&model, &[]);
    let expected = fresh.post("/v1/chat/completions", &about(&pictures[3..]).to_string());
    assert_eq!(content(&reply), content(&expected));
    // The pictures that were not begun, or not finished, and no others.
    assert_eq!(metric(&server, "millrace_encodings_total"), encoded + 5.0);
    assert_eq!(metric(&server, "millrace_image_bytes"), 0.0);
}

/// Promise (Images): where the memory for images is full, a request gets the time of its next try, and is answered then.
#[test]
fn request_that_finds_no_room_for_its_images_gets_a_time_to_try_again() {
    let folder = Folder::new("slow-images-full");
    let server = serve(&slow_model(&folder), &[("MILLRACE_VISION_PIXELS_MIB", "2")]);
    let (first, second) = (about(&[noise(1)]), about(&[noise(2)]));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.post("/v1/chat/completions", &first.to_string()));
        wait_until("the first image is being encoded", || {
            metric(&server, "millrace_encodings_total") >= 1.0
        });
        let reply = server.post("/v1/chat/completions", &second.to_string());
        let error = body(&reply, 503);
        assert_eq!(error["error"]["code"], "media_full", "{reply}");
        assert!(
            reply
                .to_ascii_lowercase()
                .contains("\r\nretry-after: 1\r\n"),
            "{reply}"
        );
        content(&asked.join().unwrap());
    });
    let reply = server.post("/v1/chat/completions", &second.to_string());
    content(&reply);
    let many: Vec<_> = (0..3).map(noise).collect();
    let error = body(
        &server.post("/v1/chat/completions", &about(&many).to_string()),
        400,
    );
    assert_eq!(
        error["error"]["code"], "images_too_large",
        "never room: {error}"
    );
}
