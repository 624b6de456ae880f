//! Images of stored answers: files of the journal, named by the items, and put back where the items are shown.
//!
//! Promise (Journal): stored answers keep images as files, once for all turns: items are shown as they were sent, also after a
//! restart; a conversation continues with its images; a deleted answer leaves no file; a lost image is an error of its item.

use super::crashing::Crashing;
use super::images::{MODEL, blobs};
use super::requests::Request;
use super::{Onward, SETTINGS, Scene};
use crate::encoders::body;
use crate::images::{BLUE, RED, data_url, square};
use crate::remote_images::FileServer;
use serde_json::{Value, json};
use std::fs;
use testing::wait::wait_until;

const QUESTION: &str = "Which color is the square?";

fn start(name: &str) -> Crashing {
    Crashing::start(
        name,
        &[
            ("MILLRACE_MODEL_PATH", MODEL),
            ("MILLRACE_LOG_FILTER", "warn"),
        ],
    )
}

fn post(server: &Crashing, path: &str, request: &Value) -> Value {
    body(&server.serving().post(path, &request.to_string()), 200)
}

fn get(server: &Crashing, path: &str) -> Value {
    body(&server.serving().get(path), 200)
}

fn respond(server: &Crashing, request: &Value) -> String {
    let answer = post(server, "/v1/responses", request);
    answer["id"].as_str().unwrap().to_owned()
}

/// The request of a response about an image.
fn first_turn() -> Value {
    turn_about(&data_url(&square(RED)))
}

fn turn_about(url: &str) -> Value {
    json!({"temperature": 0, "max_output_tokens": 12, "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION}]}]})
}

/// The request that continues it.
fn next_turn(previous: &str) -> Value {
    json!({"temperature": 0, "max_output_tokens": 12, "previous_response_id": previous, "input": QUESTION})
}

fn items(server: &Crashing, id: &str) -> Value {
    get(server, &format!("/v1/responses/{id}/input_items"))
}

fn text_of(answer: &Value) -> String {
    answer["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn stored_images_are_files_that_live_as_long_as_their_answers() {
    let mut server = start("stored-images");
    let id = respond(&server, &first_turn());
    let url = data_url(&square(RED));
    let shown = items(&server, &id);
    assert_eq!(shown["data"][0]["content"][0]["image_url"], url, "{shown}");
    assert_eq!(blobs(&server).len(), 1);
    let continued = post(&server, "/v1/responses", &next_turn(&id));
    assert!(text_of(&continued).contains("red"), "{continued}");
    let chat = json!({"temperature": 0, "max_tokens": 12, "store": true, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]}]});
    let completion = post(&server, "/v1/chat/completions", &chat);
    let completion = completion["id"].as_str().unwrap().to_owned();
    let messages = format!("/v1/chat/completions/{completion}/messages");
    let listed = get(&server, &messages);
    assert_eq!(
        listed["data"][0]["content_parts"][0]["image_url"]["url"], url,
        "{listed}"
    );
    assert_eq!(blobs(&server).len(), 1, "all of them share the file");
    let size = fs::metadata(&blobs(&server)[0]).unwrap().len();
    assert_eq!(size, square(RED).len() as u64);
    // No segment has the image.
    for segment in fs::read_dir(server.journal()).unwrap() {
        let path = segment.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "log") {
            let bytes = fs::read(&path).unwrap();
            let start = &url.as_bytes()[url.len() - 400..];
            assert!(
                !bytes.windows(start.len()).any(|part| part == start),
                "{path:?}"
            );
        }
    }
    server.kill();
    server.restart();
    assert_eq!(items(&server, &id), shown);
    assert_eq!(get(&server, &messages), listed);
    let again = post(&server, "/v1/responses", &next_turn(&id));
    assert_eq!(text_of(&again), text_of(&continued));
    for response in [
        &id,
        continued["id"].as_str().unwrap(),
        again["id"].as_str().unwrap(),
    ] {
        server
            .serving()
            .send("DELETE", &format!("/v1/responses/{response}"), "", "");
        assert_eq!(blobs(&server).len(), 1, "the completion has it");
    }
    server.serving().send(
        "DELETE",
        &format!("/v1/chat/completions/{completion}"),
        "",
        "",
    );
    wait_until("the file is removed with its last answer", || {
        blobs(&server).is_empty()
    });
}

#[test]
fn lost_image_is_an_error_of_its_item_and_of_requests_that_need_it() {
    let mut server = start("stored-image-lost");
    let id = respond(&server, &first_turn());
    let path = blobs(&server).remove(0);
    server.kill();
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    server.restart();
    let shown = items(&server, &id);
    let part = &shown["data"][0]["content"][0];
    assert_eq!(part["image_url"], Value::Null, "{shown}");
    assert_eq!(part["error"]["code"], "image_lost", "{shown}");
    let reply = server
        .serving()
        .post("/v1/responses", &next_turn(&id).to_string());
    let error = body(&reply, 400);
    assert_eq!(error["error"]["code"], "image_lost", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("previous_response_id"), "{message}");
    // The answer itself is there.
    assert!(text_of(&get(&server, &format!("/v1/responses/{id}"))).contains("red"));
}

/// Settings with which images of this server are fetched.
fn fetching(files: &FileServer) -> [(&'static str, String); 3] {
    [
        ("MILLRACE_MODEL_PATH", MODEL.to_owned()),
        ("MILLRACE_VISION_REMOTE_ENABLED", "true".to_owned()),
        (
            "MILLRACE_VISION_REMOTE_HOSTS",
            format!("http://{}", files.address),
        ),
    ]
}

/// Promise (Journal): an image that a request names by its address is fetched once: continuations, also after a restart, have the
/// bytes of the first request, whatever is at the address by then; items are shown with the address.
#[test]
fn continued_responses_have_the_image_that_was_fetched_first() {
    let files = FileServer::start();
    let own = fetching(&files);
    let own = own.each_ref().map(|(name, value)| (*name, &**value));
    let mut server = Crashing::start("stored-image-fetched", &own);
    let url = files.url("/now");
    let mut background = turn_about(&url);
    background["background"] = json!(true);
    let chat = json!({"temperature": 0, "max_tokens": 12, "store": true, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]}]});
    files.have(Some(square(RED)));
    let first = respond(&server, &turn_about(&url));
    let background = respond(&server, &background);
    wait_until("the response in the background has ended", || {
        get(&server, &format!("/v1/responses/{background}"))["status"] == "completed"
    });
    let completion = post(&server, "/v1/chat/completions", &chat);
    let messages = completion["id"].as_str().unwrap();
    let messages = format!("/v1/chat/completions/{messages}/messages");
    assert_eq!((files.asked(), blobs(&server).len()), (3, 1));

    files.have(Some(square(BLUE)));
    let second = respond(&server, &next_turn(&first));
    let check = |server: &Crashing| {
        for previous in [&first, &background, &second] {
            let answer = post(server, "/v1/responses", &next_turn(previous));
            assert!(text_of(&answer).contains("red"), "{answer}");
        }
        for id in [&first, &background] {
            let shown = items(server, id);
            assert_eq!(shown["data"][0]["content"][0]["image_url"], url, "{shown}");
        }
        let listed = get(server, &messages);
        let shown = &listed["data"][0]["content_parts"][0]["image_url"]["url"];
        assert_eq!(*shown, url, "{listed}");
        post(server, "/v1/responses/input_tokens", &next_turn(&second));
    };
    check(&server);
    files.have(None);
    server.kill();
    server.restart();
    check(&server);
    assert_eq!((files.asked(), blobs(&server).len()), (3, 1));

    let path = blobs(&server).remove(0);
    fs::write(&path, b"other bytes").unwrap();
    let shown = items(&server, &first);
    let part = &shown["data"][0]["content"][0];
    assert_eq!(part["error"]["code"], "image_lost", "{shown}");
    let reply = server
        .serving()
        .post("/v1/responses", &next_turn(&second).to_string());
    let error = body(&reply, 400);
    assert_eq!(error["error"]["code"], "image_lost", "{error}");
}

/// Promise (Journal): an answer about an image that was fetched continues after `kill -9` with the bytes of the request.
#[test]
fn stream_about_a_fetched_image_survives_kills() {
    let files = FileServer::start();
    files.have(Some(square(RED)));
    let own = fetching(&files);
    let own = own.each_ref().map(|(name, value)| (*name, &**value));
    let settings = SETTINGS.map(|(name, value)| match name {
        "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS" => (name, "2"),
        _ => (name, value),
    });
    let settings: Vec<_> = settings.into_iter().chain(own).collect();
    let request = ("response", "/v1/responses", turn_about(&files.url("/now")));
    let requests = vec![Request::streamed(request, json!({}))];
    let server = Crashing::start("kill-fetched", &settings);
    let mut killed = Scene::open(server, requests);
    files.have(Some(square(BLUE)));
    let rounds = killed.run(Onward::Killed);
    assert!(rounds >= 2, "{rounds} kills");
    for client in &killed.clients {
        let received = &client.transcript;
        assert!(
            received.says("The square is red."),
            "{}: {received:?}",
            client.case
        );
    }
    assert_eq!(files.asked(), 1);
}
