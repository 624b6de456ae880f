//! Bodies of four megabytes that would become much more when they are read, rendered or answered: each is refused with
//! the field and its bound, or answered, and holds a stated multiple of itself on the way.
#![expect(clippy::print_stdout, reason = "the figures")]

use crate::support::client::{Client, Reply};
use crate::support::{Rig, config, fake};
use testing::child::run_in_child;
use testing::heap;

/// Bytes of each body: the most there may be by default.
const BODY_BYTES: usize = 4 << 20;

/// What it is, its path, what its body begins with, repeats and ends with, the answer's status, what the answer
/// names, and how many times its size it may take.
type Row = (
    &'static str,
    &'static str,
    [&'static str; 3],
    u16,
    &'static [&'static str],
    usize,
);

const USER: &str = r#"{"messages":[{"role":"user","content":"hi"}],"#;

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // The body comes in pieces, which are put together: two of it in any case.
    ("a template of the prompt", "/api/generate", [r#"{"template":"{{.Prompt}}{{.Prompt}}{{.Prompt}}{{.Prompt}}{{.Prompt}}","prompt":""#, "ab ", r#""}"#], 400, &["template", "16777216"], 4),
    ("a template, within its bound", "/api/generate", [r#"{"truncate":false,"template":"{{.Prompt}}{{.Prompt}}","prompt":""#, "ab ", r#""}"#], 400, &["prompt", "context"], 4),
    ("a template, truncated", "/api/generate", [r#"{"template":"{{.Prompt}}{{.Prompt}}","prompt":""#, "ab ", r#""}"#], 200, &["done"], 4),
    ("a conversation, truncated", "/api/generate", [r#"{"prompt":""#, "ab ", r#""}"#], 200, &["done"], 5),
    ("a text, truncated", "/v1/completions", [r#"{"max_tokens":1,"truncate_prompt_tokens":-1,"prompt":""#, "ab ", r#""}"#], 200, &["text_completion"], 4),
    ("a prompt of one word", "/v1/completions", [r#"{"prompt":""#, "a", r#""}"#], 400, &["prompt", "context"], 3),
    ("a conversation of one word", "/v1/chat/completions", [r#"{"messages":[{"role":"user","content":""#, "a", r#""}]}"#], 400, &["messages", "context"], 3),
    ("control tokens that were typed", "/v1/chat/completions", [r#"{"messages":[{"role":"user","content":""#, "<|eos|>", r#""}]}"#], 400, &["messages", "context"], 5),
    ("numbers for the template", "/v1/chat/completions", [USER, "", ""], 400, &["chat_template_kwargs", "262144"], 3),
    ("lists for the template", "/v1/chat/completions", [r#"{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"a":["#, "[],", "0]}}"], 400, &["chat_template_kwargs", "262144"], 3),
    ("objects in a tool", "/v1/chat/completions", [r#"{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":["#, "{},", "0]}}}]}"], 400, &["tools", "262144"], 3),
    ("objects in a call", "/v1/chat/completions", [r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":["#, r#"{"":0},"#, "0]}}}]}]}"], 400, &["messages", "262144"], 3),
    ("objects in a call to Anthropic", "/v1/messages", [r#"{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"a":["#, r#"{"":0},"#, "0]}}]}]}"], 400, &["messages", "262144"], 3),
    ("items of a response", "/v1/responses", [r#"{"input":["#, "{},", "{}]}"], 400, &["input", "262144"], 3),
    ("numbers for messages", "/api/chat", [r#"{"messages":["#, "0,", "0]}"], 400, &["messages", "262144"], 3),
    ("biases", "/v1/completions", [r#"{"prompt":"a","logit_bias":{"#, r#""1":0,"#, r#""1":0}}"#], 400, &["logit_bias", "262144"], 3),
    ("a context", "/api/generate", [r#"{"prompt":"a","context":["#, "7,", "7]}"], 400, &["context", "1048576"], 3),
    ("a prompt of ids", "/v1/completions", [r#"{"prompt":["#, "7,", "7]}"], 400, &["prompt", "1048576"], 3),
    ("a job of ids", "/v1/jobs", [r#"{"prompt":["#, "7,", "7]}"], 400, &["prompt", "1048576"], 3),
    ("a text of ids to be embedded", "/v1/embeddings", [r#"{"input":["#, "7,", "7]}"], 400, &["input", "1048576"], 3),
    ("a text to be embedded", "/v1/embeddings", [r#"{"input":""#, "a", r#""}"#], 400, &["input", "bytes"], 3),
    ("a text to be embedded as far as it fits", "/api/embed", [r#"{"input":""#, "a", r#""}"#], 200, &["embeddings"], 3),
    ("ids to be text", "/detokenize", [r#"{"tokens":["#, "7,", "7]}"], 400, &["tokens", "1048576"], 3),
    ("ids to be text, as many as there may be", "/detokenize", [r#"{"tokens":["#, "258,", "258]}"], 200, &["content", "hello"], 8),
    ("text to be ids", "/tokenize", [r#"{"content":""#, "a b ", r#""}"#], 200, &["count"], 12),
    ("text to be ids with their texts", "/tokenize", [r#"{"with_pieces":true,"content":""#, "a b ", r#""}"#], 400, &["content", "33554432"], 16),
    ("text to be ids and their texts", "/tokenize", [r#"{"return_token_strs":true,"content":""#, r"\u0001", r#""}"#], 200, &["count"], 12),
    ("a conversation to be rendered", "/apply-template", [r#"{"messages":[{"role":"user","content":""#, "a", r#""}]}"#], 200, &["prompt"], 6),
    ("names of fields", "/v1/completions", ["{", r#""a":0,"#, r#""b":0}"#], 400, &["fields"], 4),
];

/// The body: what it begins with, so often what it repeats that it has the bytes of a body, its end.
fn body([begin, unit, end]: [&str; 3]) -> String {
    if unit.is_empty() {
        let begin = format!("{begin}\"chat_template_kwargs\":{{\"a\":[");
        return body([&begin, "0,", "0]}}"]);
    }
    let room = BODY_BYTES - begin.len() - end.len();
    [begin, &unit.repeat(room / unit.len()), end].concat()
}

fn answer(rig: &Rig, path: &str, body: &str) -> Reply {
    let mut client = Client::connect(rig.addr);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes());
    client.send(body.as_bytes());
    client.reply()
}

#[test]
fn expansion_of_a_body_is_limited_before_allocation() {
    if run_in_child(expansion_of_a_body_is_limited_before_allocation) {
        return;
    }
    heap::count_process_without_this_thread();
    let rig = Rig::with(fake(), config());
    // The tokenizer and the template make what they make once.
    answer(
        &rig,
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#,
    );
    // So does the engine for a prompt that fills the context.
    let prompt = "ab ".repeat(4096);
    answer(
        &rig,
        "/api/generate",
        &format!(r#"{{"prompt":"{prompt}"}}"#),
    );
    for &(label, path, parts, status, named, times) in ROWS {
        let body = body(parts);
        rig.wait_until_empty();
        heap::take_process_peak();
        let before = heap::process_held();
        let reply = answer(&rig, path, &body);
        let most = heap::take_process_peak() - before;
        let factor = most as f64 / BODY_BYTES as f64;
        println!(
            "{label:45} {path:22} {} {factor:5.1} times its body",
            reply.head.status
        );
        let said = &reply.body[..reply.body.len().min(500)];
        assert_eq!(reply.head.status, status, "{label}: {said}");
        for name in named {
            assert!(said.contains(name), "{label}: {said}");
        }
        assert!(
            factor <= times as f64,
            "{label} takes {factor:.1} times its body: {said}"
        );
    }
    rig.wait_until_empty();
}
