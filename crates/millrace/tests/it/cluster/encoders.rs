//! Encoders and rerankers behind a gateway.
//!
//! Promise (Cluster): vectors and scores of encoders and rerankers at a gateway are those of one process bit for bit,
//! also when an engine dies in between; without an engine the error says so, within the deadline.
//! Also held by `engine/src/remote/tests/embedding.rs`.

use super::conversation::SETTINGS;
use super::processes::{Cluster, wait_for_engines};
use super::{metric, nats_server};
use crate::encoders::body;
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};
use std::process::Stdio;
use testing::wait::wait_until;

/// The model that server and gateway are started with.
const ENCODER: &str = "encoder";
/// A model that is read at the first request for it.
const RERANKER: &str = "reranker";
/// Texts of one request.
const TEXTS: usize = 16;
/// Tokens between the ends of the longest text.
const WORDS_MAX: usize = 62;

fn synth(folder: &Folder, name: &str, preset: &str) -> String {
    let path = folder.0.join(name).with_extension("gguf");
    let path = path.display().to_string();
    stdout(&millrace(&["synth", &path, "--preset", preset]));
    path
}

/// Texts of every length, the longest of which fills the context.
fn texts() -> Vec<String> {
    let text = |number: usize| "cat ".repeat(WORDS_MAX - number * 3);
    (0..TEXTS).map(text).collect()
}

/// Vectors of the encoder, as the routes write them.
fn embed(server: &Serving) -> [Value; 2] {
    let request = json!({"model": ENCODER, "input": texts()}).to_string();
    let mut openai = body(&server.post("/v1/embeddings", &request), 200);
    let mut ollama = body(&server.post("/api/embed", &request), 200);
    [openai["data"].take(), ollama["embeddings"].take()]
}

fn rank_request() -> String {
    json!({"model": RERANKER, "query": "the mill", "documents": texts()}).to_string()
}

/// Documents in order, with scores, by the reranker.
fn rank(server: &Serving) -> Value {
    body(&server.post("/v1/rerank", &rank_request()), 200)["results"].take()
}

#[test]
fn vectors_and_scores_of_a_gateway_are_those_of_one_process() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-encoders");
    let encoder = synth(&folder, ENCODER, "tiny-bert");
    let reranker = synth(&folder, RERANKER, "tiny-bert-rank");
    let directory: &str = folder.0.display().to_string().leak();
    let mine = [
        ("MILLRACE_MODELS_DIRECTORIES", directory),
        ("MILLRACE_CLUSTER_ENGINE_WAIT_MS", "1000"),
        ("MILLRACE_CLUSTER_PLACEMENT", "round_robin"),
        // A stopped engine gets texts for three seconds.
        ("MILLRACE_CLUSTER_HEARTBEAT_MS", "1000"),
    ];
    let settings = [&SETTINGS[..], &mine].concat();
    let serve = ["serve", &encoder, "--bind", "127.0.0.1:0"];
    let alone = Serving::start_with(&serve, &settings, Stdio::inherit());
    let (vectors, scores) = (embed(&alone), rank(&alone));
    assert_eq!(vectors[0].as_array().map(Vec::len), Some(TEXTS));

    let mut cluster = Cluster::new(program, "cluster-encoders", "", &settings);
    for model in [&encoder, &encoder, &reranker] {
        cluster.start_engine_of(model);
    }
    let gateway = cluster.start_gateway_with(&[&encoder]);
    wait_for_engines(&gateway, 3);
    assert_eq!(embed(&gateway), vectors);
    assert_eq!(rank(&gateway), scores);
    for (model, words) in [(ENCODER, "is an encoder"), (RERANKER, "is an encoder")] {
        let request = json!({"model": model, "prompt": "Hello"}).to_string();
        let error = body(&gateway.post("/v1/completions", &request), 400).to_string();
        assert!(error.contains(words), "{model}: {error}");
    }
    let long = json!({"model": ENCODER, "input": "cat ".repeat(WORDS_MAX + 1)}).to_string();
    let error = body(&gateway.post("/v1/embeddings", &long), 400).to_string();
    assert!(
        error.contains("maximum context length is 64 tokens. However, input[0] has 65 tokens"),
        "{error}"
    );

    // A stopped engine keeps what it got until it is killed.
    cluster.engine(0).signal("STOP");
    let attempts = metric(&gateway, "millrace_relay_attempts_total");
    let received = std::thread::scope(|scope| {
        let received = scope.spawn(|| embed(&gateway));
        wait_until("both engines have texts", || {
            metric(&gateway, "millrace_relay_attempts_total") >= attempts + 4.0
        });
        cluster.kill_engine(0);
        received.join().expect("vectors")
    });
    assert_eq!(received, vectors);
    wait_until("texts were submitted again", || {
        metric(&gateway, "millrace_relay_resubmitted_total") > 0.0
    });

    expect_errors_without_an_engine(&mut cluster, &gateway);
    cluster.start_engine_of(&reranker);
    wait_until("documents are ranked again", || {
        let reply = gateway.post("/v1/rerank", &rank_request());
        reply.starts_with("HTTP/1.1 200") && body(&reply, 200)["results"] == scores
    });
    assert!(gateway.terminate().success());
}

/// The reranker's only engine is stopped, then killed.
fn expect_errors_without_an_engine(cluster: &mut Cluster, gateway: &Serving) {
    cluster.engine(2).signal("STOP");
    let deadline = "request-timeout-ms: 200\r\n";
    let reply = gateway.post_with(deadline, "/v1/rerank", &rank_request());
    let error = body(&reply, 504).to_string();
    assert!(error.contains("deadline"), "{error}");
    cluster.kill_engine(2);
    wait_until("the reranker has no engine", || {
        let reply = gateway.post("/v1/rerank", &rank_request());
        let named = format!("model \\\"{RERANKER}\\\"");
        reply.starts_with("HTTP/1.1 503") && reply.contains(&named)
    });
}
