//! Images at gateways: engines get the files, and answers are those of one process.

use super::conversation::{Conversation, SETTINGS};
use super::gateway_killed::check;
use super::processes::{Cluster, json, wait_for_engines};
use super::{metric, nats_server};
use crate::images::{BLUE, RED, chat, content, square};
use crate::kill::images::{MODEL, requests};
use crate::slow_images::{about, noise, slow_model};
use crate::support::{Folder, Serving};
use serde_json::{Value, json as value};
use std::process::Stdio;
use testing::wait::wait_until;

const SEES: (&str, &str) = ("MILLRACE_MODEL_PATH", MODEL);

fn settings() -> Vec<(&'static str, &'static str)> {
    [&SETTINGS[..], &[SEES]].concat()
}

fn cluster(name: &str) -> Option<Cluster> {
    let program = nats_server::program()?;
    Some(Cluster::new(program, name, "", &settings()))
}

fn ask(server: &Serving, request: &Value) -> String {
    server.post("/v1/chat/completions", &request.to_string())
}

/// The message of a response with this status.
fn refusal(reply: &str, status: &str) -> String {
    assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
    let message = json(reply)["error"]["message"].as_str().map(str::to_owned);
    message.expect("a message")
}

/// Promise (Cluster): answers about images are byte for byte those of one process, in every protocol, while engines are
/// killed: the next engine gets the files, and encodes them again.
#[test]
fn answers_about_images_outlive_engines() {
    let Some(mut cluster) = cluster("cluster-images") else {
        return;
    };
    cluster.start_engines(2);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 2);
    let conversation = Conversation::of(&gateway, requests().into_iter());
    let received = conversation.run(&gateway, |round| match round {
        0 => {
            cluster.kill_engine(0);
            cluster.start_engines(1);
        }
        1 => {
            let leaving = cluster.engines[1].take().expect("the second engine");
            assert!(leaving.terminate().success());
        }
        2 => {
            cluster.nats.kill();
            cluster.nats.start();
        }
        _ => {}
    });
    assert!(metric(&gateway, "millrace_relay_resubmitted_total") > 0.0);
    assert_eq!(metric(&gateway, "millrace_relay_diverged_total"), 0.0);
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let single = Serving::start_with(&args, &settings(), Stdio::inherit());
    let expected = Conversation::of(&single, requests().into_iter()).run(&single, |_| {});
    for ((case, received), (_, expected)) in received.into_iter().zip(expected) {
        assert_eq!(
            received.without_cached(),
            expected.without_cached(),
            "{case}"
        );
    }
    wait_until("no image is held any more", || {
        let engine = cluster.engine(2);
        [&gateway, engine]
            .iter()
            .all(|server| metric(server, "millrace_image_bytes") == 0.0)
    });
}

/// Promise (Cluster): an engine that is killed while it encodes images costs a pause, and no image is left out.
#[test]
fn engine_that_is_killed_while_it_encodes_is_replaced() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-images-slow");
    let model: &str = slow_model(&folder).leak();
    let settings = [&SETTINGS[..], &[("MILLRACE_MODEL_PATH", model)]].concat();
    let mut cluster = Cluster::new(program, "cluster-images-encode", "", &settings);
    cluster.start_engines(1);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 1);
    let request = about(&[noise(1), noise(2)]);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&gateway, &request));
        wait_until("some pictures are encoded", || {
            metric(cluster.engine(0), "millrace_encodings_total") >= 1.0
        });
        let encoded = metric(cluster.engine(0), "millrace_encodings_total");
        assert!(encoded < 10.0, "all pictures were encoded: {encoded}");
        cluster.kill_engine(0);
        cluster.start_engines(1);
        let reply = json(&asked.join().expect("an answer"));
        let args = ["serve", "--bind", "127.0.0.1:0"];
        let single = Serving::start_with(&args, &settings, Stdio::inherit());
        let expected = json(&ask(&single, &request));
        assert_eq!(content(&reply), content(&expected));
        let tokens = &expected["usage"]["prompt_tokens"];
        assert_eq!(reply["usage"]["prompt_tokens"], *tokens);
    });
    assert_eq!(metric(cluster.engine(1), "millrace_encodings_total"), 10.0);
}

/// Promise (Cluster): streams about images have the text of one undisturbed process while gateways are killed one after another:
/// the next one has the images from JetStream.
#[test]
fn streams_about_images_survive_gateways() {
    check("gateways-images", requests, &[SEES]);
}

/// Promise (Cluster): a request with images goes to engines with the gateway's tower only; without one, the model reads text
/// only, as on one machine.
#[test]
fn images_go_to_engines_with_the_same_tower() {
    let Some(mut cluster) = cluster("cluster-images-towers") else {
        return;
    };
    cluster.start_engine_with(&["--no-vision"]);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 1);
    let request = chat(&square(RED));
    let why = refusal(&ask(&gateway, &request), "400");
    assert!(
        why.contains("messages[0].content[0]") && why.contains("reads text only"),
        "{why}"
    );
    let sees = || {
        let listed = json(&gateway.get("/v1/models"));
        let listed = listed["data"][0]["capabilities"].as_array().cloned();
        listed.is_some_and(|names| names.contains(&value!("vision")))
    };
    assert!(!sees());
    cluster.start_engine_with(&[]);
    wait_for_engines(&gateway, 2);
    wait_until("the gateway knows the tower", sees);
    for (color, word) in [(RED, "red"), (BLUE, "blue"), (RED, "red")] {
        let answer = content(&json(&ask(&gateway, &chat(&square(color)))));
        assert!(answer.contains(word), "{word}: {answer}");
    }
    // The red square is not decoded again for a look at it.
    assert_eq!(metric(&gateway, "millrace_images_known_total"), 1.0);
    assert_eq!(metric(cluster.engine(0), "millrace_encodings_total"), 0.0);
    assert_eq!(metric(cluster.engine(1), "millrace_encodings_total"), 2.0);
    let mut cut = square(RED);
    cut.truncate(900);
    let why = refusal(&ask(&gateway, &chat(&cut)), "400");
    assert!(why.contains("cannot be decoded as BMP"), "{why}");
    cluster.kill_engine(1);
    wait_until("the gateway knows that the tower is gone", || !sees());
    refusal(&ask(&gateway, &request), "400");
}
