//! Decoders that were made for embeddings or for scores: a synthetic one is written and served.

use crate::encoders::{body, synth, vectors};
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json};

/// Bytes of a text become tokens of the synthetic vocabulary, which has few merges: `<|bos|>`, three bytes, `<|eos|>`.
const FEW: (&str, u64) = ("abc", 5);

fn embed(serving: &Serving, input: &Value) -> Value {
    let request = json!({ "input": input }).to_string();
    body(&serving.post("/v1/embeddings", &request), 200)
}

/// Vectors of length 1 that do not depend on other texts; a capability, and no prompt for text.
fn check_embeddings(serving: &Serving, label: &str) {
    let texts = [FEW.0, "the mill of the river", "x"];
    let together = vectors(&embed(serving, &json!(texts)));
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(vector.len(), 64, "{label}");
        let length: f64 = vector.iter().map(|entry| entry * entry).sum();
        assert!((length - 1.0).abs() < 1e-5, "{label}: {length}");
        let alone = vectors(&embed(serving, &json!(text)));
        assert_eq!(&alone[0], vector, "{label}: {text}");
    }
    let (text, tokens) = FEW;
    let one = embed(serving, &json!(text));
    assert_eq!(one["usage"]["prompt_tokens"], tokens, "{label}: both ends");
    let shown = body(&serving.post("/api/show", r#"{"model":"encoder"}"#), 200);
    assert_eq!(shown["capabilities"], json!(["embedding"]), "{label}");
}

#[test]
fn gemma_embedding_serves_embeddings_only() {
    let folder = Folder::new("gemma-embedding");
    let model = synth(&folder, "tiny-gemma-embedding");
    let shown = stdout(&millrace(&["inspect", &model]));
    assert!(shown.contains("runs here: gemma-embedding"), "{shown}");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    check_embeddings(&serving, "gemma-embedding");
    let request = json!({"prompt": "Hello"}).to_string();
    let error = body(&serving.post("/v1/completions", &request), 400).to_string();
    assert!(error.contains("is an encoder"), "{error}");
    // As many tokens as the context has positions, both ends included.
    let fits = json!({"input": "z".repeat(254)}).to_string();
    let fits = body(&serving.post("/v1/embeddings", &fits), 200);
    assert_eq!(fits["usage"]["prompt_tokens"], 256);
}

#[test]
fn last_token_of_an_embedding_decoder_is_the_end() {
    let folder = Folder::new("qwen3-embedding");
    let model = synth(&folder, "tiny-qwen3-embedding");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    check_embeddings(&serving, "qwen3-embedding");
    // A truncated text keeps its end: what was truncated does not matter.
    let cut = |text: String| {
        let request = json!({ "input": text }).to_string();
        body(&serving.post("/api/embed", &request), 200)["embeddings"].clone()
    };
    assert_eq!(cut("z".repeat(300)), cut("z".repeat(253)));
}

#[test]
fn reranker_of_yes_and_no_orders_documents() {
    let folder = Folder::new("qwen3-reranker");
    let model = synth(&folder, "tiny-qwen3-reranker");
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let rank = |documents: Value| {
        let request = json!({"query": "the mill", "documents": documents}).to_string();
        body(&serving.post("/v1/rerank", &request), 200)
    };
    let all = rank(json!(["a cat", "a mill in the river", {"text": "water"}]));
    let results = all["results"].as_array().unwrap();
    let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert!(results.is_sorted_by(|a, b| score(a) >= score(b)), "{all}");
    assert!(
        results
            .iter()
            .all(|result| (0.0..=1.0).contains(&score(result)))
    );
    let second = results.iter().find(|result| result["index"] == 1).unwrap();
    let alone = rank(json!(["a mill in the river"]));
    assert_eq!(
        score(&alone["results"][0]),
        score(second),
        "whatever shares the step"
    );

    let tokens = |document: &str| rank(json!([document]))["usage"]["total_tokens"].as_u64();
    // The name of a control token in a document is text, as one that names none.
    assert_eq!(tokens("<|im_end|>"), tokens("<|im.end|>"));
    assert_eq!(
        tokens(&"z".repeat(1000)),
        Some(255),
        "truncated before the end of the prompt"
    );
    assert_eq!(
        rank(json!(["z".repeat(1000)]))["results"],
        rank(json!(["z".repeat(900)]))["results"]
    );

    for (path, request, expected) in [
        ("/v1/embeddings", json!({"input": "a"}), "is a reranker"),
        (
            "/v1/rerank",
            json!({"query": "q".repeat(250), "documents": ["a"]}),
            "query: has 250 tokens; beside a document at most",
        ),
    ] {
        let error = body(&serving.post(path, &request.to_string()), 400).to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
    let shown = body(&serving.post("/api/show", r#"{"model":"encoder"}"#), 200);
    assert_eq!(shown["capabilities"], json!(["rerank"]));
}
