//! Encoders: a synthetic one is written, inspected and served.

use crate::support::folder::both_of_encoder;
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};

/// A synthetic encoder with this preset's shape.
pub(crate) fn synth(folder: &Folder, preset: &str) -> String {
    let path = folder.0.join("encoder.gguf").display().to_string();
    stdout(&millrace(&["synth", &path, "--preset", preset]));
    path
}

/// The JSON body of a response with this status.
pub(crate) fn body(reply: &str, status: u16) -> Value {
    assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

pub(crate) fn vectors(reply: &Value) -> Vec<Vec<f64>> {
    let data = reply["data"].as_array().unwrap().iter();
    data.map(|entry| serde_json::from_value(entry["embedding"].clone()).unwrap())
        .collect()
}

#[test]
fn encoder_serves_embeddings() {
    for preset in ["tiny-bert", "tiny-nomic-bert"] {
        let folder = Folder::new("encoder");
        let model = synth(&folder, preset);
        let shown = stdout(&millrace(&["inspect", &model]));
        assert!(
            shown.contains("(encoder) with 2 layers, 64 wide"),
            "{shown}"
        );
        let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
        let embed = |input: Value| {
            let request = json!({ "input": input }).to_string();
            body(&serving.post("/v1/embeddings", &request), 200)
        };
        let words = ["the cat", "a river in france is the mill of the water", "?"];
        let together = embed(json!(words));
        // "the cat" is two tokens between the ends.
        assert_eq!(together["usage"]["prompt_tokens"], 4 + 12 + 3, "{preset}");
        let together = vectors(&together);
        for (text, vector) in words.iter().zip(&together) {
            assert_eq!(vector.len(), 64);
            let length: f64 = vector.iter().map(|entry| entry * entry).sum();
            assert!((length - 1.0).abs() < 1e-5, "{preset}: {length}");
            assert_eq!(&vectors(&embed(json!(text)))[0], vector, "{preset}: {text}");
        }
        assert_ne!(together[0], together[1]);
        let ids = json!([[2, 10, 20, 30, 3]]);
        assert_eq!(vectors(&embed(ids)).len(), 1);
        let request = json!({"input": words, "dimensions": 16}).to_string();
        let cut = body(&serving.post("/api/embed", &request), 200);
        assert_eq!(cut["embeddings"][2].as_array().unwrap().len(), 16);
        let listed = body(&serving.get("/v1/models"), 200);
        let card = &listed["data"][0];
        assert_eq!(card["id"], "encoder");
        assert_eq!(
            (&card["tools"], &card["thinking"]),
            (&json!("none"), &json!(false))
        );
        let shown = body(&serving.post("/api/show", r#"{"model":"encoder"}"#), 200);
        assert_eq!(shown["capabilities"], json!(["embedding"]));
        assert_eq!(shown["tool_prompt"], "none");
    }
}

#[test]
fn encoder_with_experts_serves_embeddings() {
    let folder = Folder::new("encoder-experts");
    let model = synth(&folder, "tiny-nomic-bert-moe");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let embed = |input: Value| {
        let request = json!({ "input": input }).to_string();
        vectors(&body(&serving.post("/v1/embeddings", &request), 200))
    };
    let texts = ["the cat", "a river in france is the mill of the water"];
    let together = embed(json!(texts));
    assert_eq!(together, texts.map(|text| embed(json!(text)).concat()));
    assert_ne!(together[0], together[1]);
}

#[test]
fn encoder_truncates_or_rejects_long_texts() {
    let folder = Folder::new("encoder-long");
    let model = synth(&folder, "tiny-bert");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let embed = |text: &str| {
        let request = json!({ "input": text }).to_string();
        serving.post("/v1/embeddings", &request)
    };
    // With both ends, 64 tokens.
    let fits = "cat ".repeat(62);
    body(&embed(&fits), 200);
    let long = "cat ".repeat(63);
    let error = body(&embed(&long), 400);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("maximum context length is 64 tokens. However, input[0] has 65 tokens"),
        "{message}"
    );
    let cut = |text: &str| {
        let request = json!({ "input": text }).to_string();
        body(&serving.post("/api/embed", &request), 200)["embeddings"].clone()
    };
    assert_eq!(cut(&long), cut(&fits), "truncated before the last token");
}

#[test]
fn encoder_rejects_requests_for_text() {
    let folder = Folder::new("encoder-chat");
    let model = synth(&folder, "tiny-bert");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let messages = json!([{"role": "user", "content": "Hello"}]);
    for (path, request) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "stream": true}),
        ),
        ("/v1/completions", json!({"prompt": "Hello"})),
        ("/v1/responses", json!({"input": "Hello"})),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 5, "model": "encoder"}),
        ),
        (
            "/api/chat",
            json!({"messages": messages, "model": "encoder"}),
        ),
    ] {
        let reply = serving.post(path, &request.to_string());
        let error = body(&reply, 400).to_string();
        assert!(
            error.contains("'encoder' is an encoder, which generates no text")
                && error.contains("(/v1/embeddings)"),
            "{path}: {error}"
        );
    }
    let listed = body(&serving.get("/v1/models"), 200);
    assert_eq!(listed["data"][0]["kind"], "embedding", "{listed}");
    assert_eq!(listed["data"][0]["capabilities"], json!(["embedding"]));
    let run = millrace(&["run", &model, "Hello"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && said.contains("is an encoder"),
        "{said}"
    );
}

#[test]
fn reranker_orders_documents() {
    let folder = Folder::new("reranker");
    let model = synth(&folder, "tiny-bert-rank");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let documents =
        json!(["the cat", {"text": "a mill in the river"}, "water", "the wheel of the mill"]);
    let rank = |path: &str, more: Value| {
        let mut request = json!({"query": "the mill", "documents": documents});
        let fields = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(fields);
        body(&serving.post(path, &request.to_string()), 200)
    };
    let all = rank("/v1/rerank", json!({"return_documents": true}));
    let results = all["results"].as_array().unwrap();
    let scores: Vec<f64> = results
        .iter()
        .map(|result| result["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{all}");
    assert!(
        scores.iter().all(|score| (0.0..=1.0).contains(score)),
        "{all}"
    );
    let mut found: Vec<u64> = results
        .iter()
        .map(|result| result["index"].as_u64().unwrap())
        .collect();
    assert_eq!(results.len(), 4);
    let second = results.iter().find(|result| result["index"] == 1).unwrap();
    assert_eq!(second["document"]["text"], "a mill in the river");
    // Each pair has three tokens around it, and the query's two.
    assert_eq!(all["usage"]["total_tokens"], 4 * 5 + 2 + 5 + 1 + 5);

    let best = rank("/rerank", json!({"top_n": 2}));
    assert_eq!(best["results"].as_array().unwrap().len(), 2);
    assert_eq!(
        best["results"][1]["relevance_score"],
        results[1]["relevance_score"]
    );
    assert!(best["results"][0].get("document").is_none());
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3]);

    let alone = json!({"query": "the mill", "documents": ["a mill in the river"]}).to_string();
    let alone = body(&serving.post("/v1/rerank", &alone), 200);
    assert_eq!(
        alone["results"][0]["relevance_score"], second["relevance_score"],
        "whatever shares the step"
    );
}

#[test]
fn reranker_truncates_documents_and_rejects_what_is_invalid() {
    let folder = Folder::new("reranker-bad");
    let model = synth(&folder, "tiny-bert-rank");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let long = json!({"query": "the mill", "documents": ["cat ".repeat(500)]}).to_string();
    let long = body(&serving.post("/v1/rerank", &long), 200);
    assert_eq!(long["usage"]["total_tokens"], 64);
    for (path, request, expected) in [
        (
            "/v1/rerank",
            json!({"query": "mill ".repeat(70), "documents": ["a"]}),
            "query: has 70 tokens; beside a document at most 60",
        ),
        ("/v1/rerank", json!({"documents": []}), "query: is required"),
        ("/v1/embeddings", json!({"input": "a"}), "is a reranker"),
        (
            "/v1/completions",
            json!({"prompt": "a"}),
            "it scores documents for a query (/v1/rerank)",
        ),
    ] {
        let error = body(&serving.post(path, &request.to_string()), 400).to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
}

#[test]
fn models_that_rank_nothing_reject_rerank() {
    let folder = Folder::new("reranker-not");
    let model = synth(&folder, "tiny-bert");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let request = json!({"query": "a", "documents": ["b"]}).to_string();
    let error = body(&serving.post("/v1/rerank", &request), 400).to_string();
    assert!(error.contains("model: is no reranker"), "{error}");
}

/// Replies to texts and to a query with documents, of a model in a folder or a file.
fn replies(path: &std::path::Path, route: &str, request: &Value) -> Value {
    let path = path.display().to_string();
    let args = ["serve", &path, "--bind", "127.0.0.1:0", "--name", "it"];
    let serving = Serving::start(&args);
    body(&serving.post(route, &request.to_string()), 200)
}

#[test]
fn folder_of_an_encoder_answers_as_the_gguf_of_the_same_weights() {
    let texts = json!(["the cat", "a mill in the river, [SEP] and?", "zéro"]);
    for (preset, route, request) in [
        ("tiny-bert", "/v1/embeddings", json!({"input": texts})),
        (
            "tiny-bert-rank",
            "/v1/rerank",
            json!({"query": "the mill", "documents": texts}),
        ),
        ("tiny-nomic-bert", "/v1/embeddings", json!({"input": texts})),
    ] {
        let (saved, bytes) = both_of_encoder(preset);
        let folder = Folder::new("encoder-gguf");
        let file = folder.0.join("encoder.gguf");
        std::fs::write(&file, bytes).unwrap();
        let expected = replies(&file, route, &request);
        let found = replies(&saved.folder, route, &request);
        assert_eq!(found, expected, "{preset}");
    }
}
