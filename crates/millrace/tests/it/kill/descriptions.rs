//! Streams about images that another model describes, and that outlive the process: the prepared prompt is in the journal, so a
//! description is made once.

use super::crashing::{Client, Crashing};
use super::event_reader::read_events;
use super::requests::Request;
use super::{Onward, SETTINGS, Scene};
use crate::vision_proxy::seer::{Reply, Seer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use testing::wait::wait_until;

const PICTURES: [&[u8]; 2] = [
    include_bytes!("../../../../media/tests/golden/images/jpeg-420.jpg"),
    include_bytes!("../../pictures/red-square.png"),
];
const SAID: [&str; 2] = ["a photo of a lake", "a red square"];

fn start(name: &str, seer: &Seer) -> Crashing {
    let settings: Vec<_> = SETTINGS.into_iter().chain(seer.variables()).collect();
    Crashing::start(name, &settings)
}

fn request(case: &'static str, path: &'static str, body: Value) -> Request {
    let fields = json!({"ignore_eos": true, "seed": 5});
    Request::streamed((case, path, body), fields)
}

fn requests() -> Vec<Request> {
    let data = PICTURES.map(|picture| STANDARD.encode(picture));
    let image = |data: &String| {
        let url = format!("data:image/jpeg;base64,{data}");
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let source = json!({"type": "base64", "media_type": "image/png", "data": data[1]});
    // Different beginnings, so that no prompt is found in the cache of another.
    let openai = json!([
        {"role": "system", "content": "First."},
        {"role": "user", "content": [image(&data[0]), image(&data[1])]},
    ]);
    let anthropic = json!([{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]}]);
    let ollama = json!([
        {"role": "system", "content": "Third."},
        {"role": "user", "content": "What?", "images": [data[0]]},
    ]);
    vec![
        request(
            "chat about described images",
            "/v1/chat/completions",
            json!({"messages": openai, "max_tokens": 30, "n": 2, "stream_options": {"include_usage": true}}),
        ),
        request(
            "messages about a described image",
            "/v1/messages",
            json!({"messages": anthropic, "max_tokens": 30, "model": "millrace-mini", "system": "Second."}),
        ),
        request(
            "ollama about a described image",
            "/api/chat",
            json!({"messages": ollama, "options": {"num_predict": 30, "seed": 5, "ignore_eos": true}}),
        ),
    ]
}

/// Opens the streams, while the other server describes the two pictures.
fn open(name: &str) -> (Seer, Scene<Crashing>) {
    let seer = Seer::start();
    SAID.iter().for_each(|text| seer.say(text));
    let scene = Scene::open(start(name, &seer), requests());
    (seer, scene)
}

/// Promise (Journal): `kill -9` each seven tokens changes no token of an answer about images that another model described, and
/// no image is described again.
#[test]
fn answers_about_described_images_survive_a_kill_each_seven_tokens() {
    let (_seer, mut whole) = open("kill-described-whole");
    whole.run(Onward::Acknowledged);
    let (seer, mut killed) = open("kill-described");
    killed.run(Onward::Killed);
    for (client, uninterrupted) in killed.clients.iter().zip(&whole.clients) {
        let case = &client.case;
        assert_eq!(client.transcript, uninterrupted.transcript, "{case}");
        assert!(client.visits >= 2, "{case}: {} visits", client.visits);
    }
    assert_eq!(seer.requests().len(), 2, "each picture once");
}

/// The stream of the first request, which is opened with a client that leaves while an image is being described.
fn leave_while_describing(server: &Crashing) -> String {
    let [request, ..] = &requests()[..] else {
        panic!("requests");
    };
    let head = format!("POST {} HTTP/1.1\r\nx-stream-resumable: 1", request.path);
    let silence = Duration::from_millis(1);
    let reading = read_events(&server.address(), &head, &request.body.to_string(), silence);
    let reading = reading.expect("a head");
    assert_eq!(reading.header("x-stream-durable").as_deref(), Some("1"));
    reading.header("x-stream-id").expect("an id")
}

/// Where a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    /// While the second image is being described.
    WhileDescribing,
    /// When the second description was sent, and may have arrived.
    AfterReply,
    /// When the prompt was prepared.
    AfterStart,
}

/// Promise (Journal): a process that dies while an image is described leaves the work to the next one, and one that dies after
/// that the description.
#[test]
fn image_is_described_by_the_next_process() {
    let (_seer, mut whole) = open("kill-describing-whole");
    whole.run(Onward::Acknowledged);
    let want = &whole.clients[0].transcript;
    for death in [Death::WhileDescribing, Death::AfterReply, Death::AfterStart] {
        let seer = Seer::start();
        let mut server = start("kill-describing", &seer);
        let stream = leave_while_describing(&server);
        seer.say(SAID[0]);
        wait_until("the second image is being described", || {
            seer.requests().len() == 2
        });
        match death {
            Death::WhileDescribing => seer.reply(Reply::Nothing),
            Death::AfterReply | Death::AfterStart => seer.say(SAID[1]),
        }
        if death == Death::AfterStart {
            wait_until("the answer is parked", || {
                super::description(server.serving(), &stream)["state"] == "parked"
            });
        }
        server.kill();
        // As far as the next process asks again.
        SAID.iter().for_each(|text| seer.say(text));
        server.restart();
        let mut client = Client::new("described again", &stream, "openai.chat");
        let address = server.address();
        wait_until("the answer has ended", || {
            client.read_on(&address);
            acknowledge(&server, &stream);
            client.is_over
        });
        assert_eq!(&client.transcript, want, "{death:?}");
        let asked = seer.requests().len();
        let is_expected = match death {
            Death::WhileDescribing => asked == 4,
            Death::AfterReply => [2, 4].contains(&asked),
            Death::AfterStart => asked == 2,
        };
        assert!(is_expected, "{death:?}: {asked} requests");
    }
}

/// Acknowledges all tokens of a stream.
fn acknowledge(server: &Crashing, stream: &str) {
    let told = super::description(server.serving(), stream);
    for choice in told["choices"].as_array().into_iter().flatten() {
        let body = json!({"index": choice["tokens"], "choice": choice["index"]});
        server
            .serving()
            .post(&format!("/v1/streams/{stream}/ack"), &body.to_string());
    }
}
