//! Streams about images that outlive the process: the files are in the journal's directory, and the next process encodes them
//! again.

use super::crashing::{Client, Crashing};
use super::requests::Request;
use super::transcript::Transcript;
use super::{Onward, SETTINGS, Scene};
use crate::encoders::body;
use crate::slow_images::{about, metric, noise, slow_model_of};
use crate::support::Folder;
use crate::vision_proxy::{CHAT_TEMPLATE, Question};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use testing::wait::wait_until;

/// A model that sees, whose tower is found next to it.
pub(crate) const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/mini/millrace-mini-vision.gguf"
);
const PICTURE: &[u8] = include_bytes!("../../../../media/tests/golden/images/jpeg-420.jpg");
pub(crate) const RED_SQUARE: &[u8] = include_bytes!("../../pictures/red-square.png");
/// Runs of rows of a picture of [`noise`].
pub(crate) const PARTS: f64 = 5.0;
const QUESTION: &str = "What is in the picture?";

fn start(name: &str) -> Crashing {
    let own = [("MILLRACE_MODEL_PATH", MODEL)];
    let settings: Vec<_> = SETTINGS.into_iter().chain(own).collect();
    Crashing::start(name, &settings)
}

pub(crate) fn requests() -> Vec<Request> {
    let data = STANDARD.encode(PICTURE);
    let url = format!("data:image/jpeg;base64,{data}");
    let text = json!({"type": "text", "text": QUESTION});
    let openai = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, text]}]);
    let source = json!({"type": "base64", "media_type": "image/jpeg", "data": data});
    let anthropic =
        json!([{"role": "user", "content": [{"type": "image", "source": source}, text]}]);
    let ollama = json!([{"role": "user", "content": QUESTION, "images": [data]}]);
    let input = json!([{"role": "user", "content": [
        {"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION},
    ]}]);
    let rows = [
        (
            "chat about an image",
            "/v1/chat/completions",
            json!({"messages": openai, "max_tokens": 30, "n": 2}),
        ),
        (
            "messages about an image",
            "/v1/messages",
            json!({"messages": anthropic, "max_tokens": 30, "model": "millrace-mini-vision"}),
        ),
        (
            "ollama about an image",
            "/api/chat",
            json!({"messages": ollama, "options": {"num_predict": 30, "seed": 5, "ignore_eos": true}}),
        ),
        (
            "response about an image",
            "/v1/responses",
            json!({"input": input, "max_output_tokens": 30, "store": false}),
        ),
    ];
    let request = |row| Request::streamed(row, json!({"ignore_eos": true, "seed": 5}));
    rows.into_iter().map(request).collect()
}

pub(crate) fn blobs(server: &Crashing) -> Vec<PathBuf> {
    let entries = fs::read_dir(server.journal().join("blobs")).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Promise (Journal): `kill -9` each seven tokens changes no token of an answer about an image, in OpenAI's, Anthropic's and Ollama's
/// protocols: the image is in the journal's directory once, and its rows are computed again.
#[test]
fn answers_about_images_survive_a_kill_each_seven_tokens() {
    let mut whole = Scene::open(start("kill-images-whole"), requests());
    whole.run(Onward::Acknowledged);
    let mut killed = Scene::open(start("kill-images"), requests());
    assert_eq!(
        blobs(&killed.server).len(),
        1,
        "four streams share the file"
    );
    killed.run(Onward::Killed);
    for (client, uninterrupted) in killed.clients.iter().zip(&whole.clients) {
        // Whether a request finds the pages of another one depends on which is computed first.
        let texts = |transcript: &Transcript| transcript.clone().without_cached();
        let (found, wanted) = (texts(&client.transcript), texts(&uninterrupted.transcript));
        assert_eq!(found, wanted, "{}", client.case);
        assert!(
            client.visits >= 2,
            "{}: {} visits",
            client.case,
            client.visits
        );
    }
}

/// Promise (Images): a question about a picture is answered right where the process is killed before each second token: the
/// color comes from a process that has the picture from the journal.
#[test]
fn question_about_a_picture_is_answered_right_after_kills() {
    let settings = SETTINGS.map(|(name, value)| match name {
        "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS" => (name, "2"),
        _ => (name, value),
    });
    let own = [("MILLRACE_MODEL_PATH", MODEL)];
    let settings: Vec<_> = settings.into_iter().chain(own).collect();
    let question = Question {
        model: "millrace-mini-vision",
        image: RED_SQUARE,
        text: "Which colour is the square?",
        tokens: 16,
        around: CHAT_TEMPLATE,
    };
    let requests = question.requests().into_iter();
    let requests: Vec<_> = requests
        .map(|row| Request::streamed(row, json!({})))
        .collect();
    let mut killed = Scene::open(Crashing::start("kill-question", &settings), requests);
    let rounds = killed.run(Onward::Killed);
    assert!(rounds >= 2, "{rounds} kills");
    for client in &killed.clients {
        let received = &client.transcript;
        assert!(
            received.says("The square is red."),
            "{}: {received:?}",
            client.case
        );
        assert!(
            client.visits >= 2,
            "{}: {} visits",
            client.case,
            client.visits
        );
    }
}

/// A job about a picture that takes a while, which the server has in its journal.
fn open_slow_job(server: &Crashing) -> String {
    let mut request = about(&[noise(1)]);
    request["stream"] = json!(true);
    let reply = server.serving().post("/v1/jobs", &request.to_string());
    let stream = body(&reply, 202)["job_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let described = super::description(server.serving(), &stream);
    assert_eq!(described["durable"], true, "{described}");
    stream
}

/// Promise (Journal): `kill -9` while an image is being encoded changes no token: the next process encodes all of it.
#[test]
fn answer_survives_a_kill_while_its_image_is_encoded() {
    let folder = Folder::new("kill-encoding-model");
    let model = slow_model_of(&folder, 5);
    let start = |name: &str| Crashing::start(name, &[("MILLRACE_MODEL_PATH", &model)]);
    let encoded = |server: &Crashing| metric(server.serving(), "millrace_encodings_total");
    let read = |server: &Crashing, stream: &str| {
        let mut client = Client::new("slow", stream, "native.job");
        client.read_to_end(&server.address());
        client.transcript
    };
    let mut server = start("kill-encoding");
    let stream = open_slow_job(&server);
    wait_until("the stream is in the journal", || {
        metric(server.serving(), "millrace_journal_streams") == 1.0
    });
    wait_until("a part of the picture is encoded", || {
        encoded(&server) >= 1.0
    });
    let before = encoded(&server);
    assert!(before < PARTS, "the whole picture was encoded: {before}");
    server.kill();
    server.restart();
    let found = read(&server, &stream);
    assert_eq!(encoded(&server), PARTS);
    let whole = start("kill-encoding-whole");
    let stream = open_slow_job(&whole);
    assert_eq!(found, read(&whole, &stream));
    assert!(!found.is_empty());
}

/// Promise (Journal): a stream whose image is missing or damaged ends as lost, after the tokens that were recorded.
#[test]
fn answer_whose_image_is_damaged_is_lost() {
    for (name, damage) in [
        ("kill-image-flipped", flip as fn(&PathBuf)),
        ("kill-image-removed", |path| {
            fs::remove_file(path).expect("removed");
        }),
    ] {
        let requests = requests().into_iter().take(1).collect();
        let mut scene = Scene::open(start(name), requests);
        scene.wait_until_parked();
        scene.read_on();
        scene.server.kill();
        blobs(&scene.server).iter().for_each(damage);
        scene.server.restart();
        scene.wait_until_parked();
        scene.read_on();
        for client in &scene.clients {
            assert!(client.is_over, "{name}, {}", client.case);
            assert!(!client.transcript.is_empty(), "{name}, {}", client.case);
        }
        let client = scene.clients.first().expect("a client");
        let described = super::description(scene.server.serving(), &client.stream);
        assert_eq!(described["choices"][0]["end"], "lost", "{described}");
    }
}

fn flip(path: &PathBuf) {
    let mut bytes = fs::read(path).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("written");
}
