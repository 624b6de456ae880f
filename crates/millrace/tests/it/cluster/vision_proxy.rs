//! Images that the engine of one model describes for the model of another engine.

use super::conversation::SETTINGS;
use super::processes::{Cluster, json};
use super::several_models::listed;
use super::{metric, nats_server};
use crate::kill::images::{MODEL, PARTS, RED_SQUARE};
use crate::slow_images::{noise, slow_model_of};
use crate::support::{Folder, Serving};
use crate::vision_proxy::{Live, chat, streamed};
use serde_json::{Value, json as value};
use testing::wait::wait_until;

const SEES: &str = "millrace-mini-vision";
const READS: &str = "millrace-mini";

/// A cluster whose gateways have images described by this model.
fn cluster(name: &str, directory: &'static str, proxy: &'static str) -> Option<Cluster> {
    let program = nats_server::program()?;
    let mine = [
        ("MILLRACE_MODELS_DIRECTORIES", directory),
        ("MILLRACE_VISION_PROXY_MODEL", proxy),
        ("MILLRACE_VISION_PROXY_PROMPT", "{question}"),
        ("MILLRACE_VISION_PROXY_MAX_TOKENS", "24"),
        ("MILLRACE_VISION_PROXY_TIMEOUT_MS", "600000"),
    ];
    let settings = [&SETTINGS[..], &mine].concat();
    Some(Cluster::new(program, name, "", &settings))
}

/// Waits until the gateway knows an engine with this model.
fn wait_for_model(gateway: &Serving, name: &str) {
    wait_until("an engine has the model", || {
        listed(gateway).contains(&(name.to_owned(), Some(1)))
    });
}

/// A question about a red square.
fn question() -> Value {
    let mut request = chat(
        &[RED_SQUARE],
        &value!({"return_token_ids": true, "model": READS}),
    );
    request["messages"][0]["content"][1]["text"] = value!("Which colour is the square?");
    request
}

/// An answer, and its prompt as text.
fn ask(gateway: &Serving, request: &Value) -> (Value, String) {
    let answer = json(&gateway.post("/v1/chat/completions", &request.to_string()));
    let tokens = value!({"tokens": answer["prompt_token_ids"], "model": READS}).to_string();
    let text = json(&gateway.post("/detokenize", &tokens));
    let text = text["content"].as_str();
    (answer.clone(), text.unwrap_or_default().to_owned())
}

/// Promise (Images): in a cluster, a gateway has images described by the engine of one model, for the model of another engine;
/// without an engine that sees, the request can be tried again.
#[test]
fn engine_describes_images_for_the_model_of_another_engine() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/mini");
    let Some(mut cluster) = cluster("cluster-vision-proxy", directory, SEES) else {
        return;
    };
    cluster.start_engine_of(READS);
    let gateway = cluster.start_gateway();
    wait_for_model(&gateway, READS);
    let request = question();
    let reply = gateway.post("/v1/chat/completions", &request.to_string());
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    assert!(reply.contains("retry-after: "), "{reply}");
    let message = json(&reply)["error"]["message"].to_string();
    let why = format!("vision model {SEES} failed: ");
    assert!(message.contains(&why), "{message}");

    cluster.start_engine_of(MODEL);
    wait_for_model(&gateway, SEES);
    let (answer, prompt) = ask(&gateway, &request);
    let described = format!("[Image 1, described by {SEES}: The square is red.]");
    assert!(prompt.contains(&described), "{prompt} {answer}");
    let usage = &answer["usage"]["vision_proxy"];
    assert_eq!(
        (&usage["model"], &usage["cached"]),
        (&value!(SEES), &value!(0))
    );
    assert!(usage["prompt_tokens"].as_u64().unwrap() > 16, "{usage}");
    assert_eq!(usage["completion_tokens"], 5, "{usage}");
    let (again, same) = ask(&gateway, &request);
    assert_eq!(
        (&again["usage"]["vision_proxy"]["cached"], same),
        (&value!(1), prompt)
    );
    for (engine, encoded) in [(0, 0.0), (1, 1.0)] {
        let found = metric(cluster.engine(engine), "millrace_encodings_total");
        assert_eq!(found, encoded, "engine {engine}");
    }
    for server in [&gateway, cluster.engine(1)] {
        wait_until("no image is held", || {
            metric(server, "millrace_image_bytes") == 0.0
        });
    }
}

/// Promise (Images): a description outlives its engine in a cluster, and ends at the engine with the request that it is for.
#[test]
fn description_is_continued_by_another_engine_and_ends_with_its_request() {
    let folder = Folder::new("cluster-vision-proxy-slow");
    let model = slow_model_of(&folder, 5);
    let directory: &str = folder.0.display().to_string().leak();
    let Some(mut cluster) = cluster("cluster-vision-proxy-killed", directory, "slow") else {
        return;
    };
    cluster.start_engine_of(READS);
    cluster.start_engine_of(&model);
    let gateway = cluster.start_gateway();
    wait_for_model(&gateway, READS);
    wait_for_model(&gateway, "slow");
    let open = |picture: u32| {
        let fields = value!({"model": READS, "stream_options": {"include_usage": true}});
        let request = streamed(chat(&[&noise(picture)], &fields));
        let mut live = Live::open(&gateway, "/v1/chat/completions", "", &request);
        live.until(": describing image 1 of 1");
        live
    };
    let encoded =
        |cluster: &Cluster, engine| metric(cluster.engine(engine), "millrace_encodings_total");
    let live = open(1);
    wait_until("a part of the picture is encoded", || {
        encoded(&cluster, 1) >= 1.0
    });
    let before = encoded(&cluster, 1);
    assert!(before < PARTS, "the whole picture was encoded: {before}");
    cluster.kill_engine(1);
    cluster.start_engine_of(&model);
    let reply = live.rest();
    let usage = "\"vision_proxy\":{\"model\":\"slow\"";
    assert!(
        reply.contains(usage) && reply.contains("data: [DONE]"),
        "{reply}"
    );
    assert_eq!(encoded(&cluster, 2), PARTS);

    let live = open(2);
    wait_until("a part of the next picture is encoded", || {
        encoded(&cluster, 2) > PARTS
    });
    live.close();
    for server in [&gateway, cluster.engine(2)] {
        wait_until("no image is held", || {
            metric(server, "millrace_image_bytes") == 0.0
        });
    }
    let after = encoded(&cluster, 2);
    assert!(
        after < 2.0 * PARTS,
        "the description was not ended: {after}"
    );
}
