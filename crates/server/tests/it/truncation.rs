//! Prompts that are longer than the context, truncated where a request wants that.

use crate::support::Rig;
use crate::support::client::{Reply, post};
use crate::support::named::set_fields;
use serde_json::{Value, json};

/// A conversation of `turns` turns of 200 tokens each, and a last message of two. The context has 512 tokens.
fn messages(turns: usize) -> Value {
    let text = "x".repeat(100);
    let turn = [
        json!({"role": "user", "content": text}),
        json!({"role": "assistant", "content": text}),
    ];
    let last = json!({"role": "user", "content": "hi"});
    let turns = (0..turns).flat_map(|_| turn.clone());
    turns.chain([last]).collect()
}

fn with(base: &Value, over: &Value) -> Value {
    let mut body = base.clone();
    set_fields(&mut body, over);
    body
}

/// The named number of an answer.
fn count(reply: &Reply, pointer: &str) -> u64 {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let body = reply.json();
    let count = body.pointer(pointer).and_then(Value::as_u64);
    count.unwrap_or_else(|| panic!("{pointer}: {body}"))
}

/// Checks that a request is rejected because of this field.
fn check_rejected(reply: &Reply, param: &str) {
    assert_eq!(reply.head.status, 400, "{}", reply.body);
    assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
}

#[test]
fn responses_lose_whole_turns() {
    let rig = Rig::start();
    let path = "/v1/responses";
    let ask = |turns: usize, over: &Value| {
        let base = json!({"input": messages(turns), "max_output_tokens": 3});
        with(&base, over)
    };
    let auto = json!({"truncation": "auto"});
    for (turns, left) in [(2, 402), (3, 402), (20, 402)] {
        let reply = post(rig.addr, path, &ask(turns, &auto));
        assert_eq!(count(&reply, "/usage/input_tokens"), left, "{turns}");
        assert_eq!(reply.json()["truncation"], "auto");
        let counted = post(rig.addr, "/v1/responses/input_tokens", &ask(turns, &auto));
        assert_eq!(count(&counted, "/input_tokens"), left, "{turns}");
    }
    // Half of the context is left for the answer, and no more.
    let long = json!({"truncation": "auto", "max_output_tokens": 100_000});
    let reply = post(rig.addr, path, &ask(2, &long));
    assert_eq!(count(&reply, "/usage/input_tokens"), 202);
    for over in [json!({}), json!({"truncation": "disabled"})] {
        let reply = post(rig.addr, path, &ask(2, &over));
        assert_eq!(count(&reply, "/usage/input_tokens"), 402);
        assert_eq!(reply.json()["truncation"], "disabled");
        let reply = post(rig.addr, path, &ask(3, &over));
        check_rejected(&reply, "input");
        assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
        let message = reply.json()["error"]["message"].to_string();
        assert!(
            message.contains("602") && message.contains("512"),
            "{message}"
        );
    }
    // The last message does not fit: nothing that may be dropped is left.
    let reply = post(
        rig.addr,
        path,
        &with(&ask(0, &auto), &json!({"input": "x".repeat(600)})),
    );
    check_rejected(&reply, "input");
    rig.wait_until_empty();
}

#[test]
fn instructions_and_earlier_responses_are_truncated_too() {
    let rig = Rig::start();
    let path = "/v1/responses";
    let ask = |over: &Value| {
        let base = json!({"max_output_tokens": 3, "truncation": "auto"});
        post(rig.addr, path, &with(&base, over))
    };
    let first = ask(&json!({"input": messages(2)}));
    let id = first.json()["id"].clone();
    let instructions = "y".repeat(400);
    let next = json!({"input": "next", "previous_response_id": id, "instructions": instructions});
    // The instructions, an older turn's "hi" with its answer, and "next": the turns of 200 tokens are gone.
    let left = count(&ask(&next), "/usage/input_tokens");
    assert!((404..=420).contains(&left), "{left}");
    rig.wait_until_empty();
}

#[test]
fn last_tokens_of_a_prompt_are_kept() {
    let rig = Rig::start();
    let text = "x".repeat(600);
    let chat = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 4});
    let plain = json!({"prompt": text, "max_tokens": 4});
    for (path, base) in [("/v1/chat/completions", &chat), ("/v1/completions", &plain)] {
        for (tokens, left) in [(5, 5), (508, 508), (-1, 508)] {
            let over = json!({"truncate_prompt_tokens": tokens});
            let reply = post(rig.addr, path, &with(base, &over));
            assert_eq!(
                count(&reply, "/usage/prompt_tokens"),
                left,
                "{path} {tokens}"
            );
        }
        for tokens in [0, -2, 513] {
            let over = json!({"truncate_prompt_tokens": tokens});
            let reply = post(rig.addr, path, &with(base, &over));
            check_rejected(&reply, "truncate_prompt_tokens");
        }
        let field = if path.contains("chat") {
            "messages"
        } else {
            "prompt"
        };
        check_rejected(&post(rig.addr, path, base), field);
    }
    let over = json!({"prompt": "abcdef", "truncate_prompt_tokens": 3, "echo": true});
    let reply = post(rig.addr, "/v1/completions", &with(&plain, &over));
    let text = reply.json()["choices"][0]["text"].clone();
    assert!(text.as_str().expect("text").starts_with("def"), "{text}");
    rig.wait_until_empty();
}

#[test]
fn ollama_truncates_unless_that_is_turned_off() {
    let rig = Rig::start();
    let options = json!({"num_predict": 3});
    let chat = json!({"messages": messages(3), "stream": false, "options": options});
    let generate = json!({"prompt": "x".repeat(600), "stream": false, "options": options});
    for (path, base, left) in [("/api/chat", &chat, 402), ("/api/generate", &generate, 509)] {
        for over in [json!({}), json!({"truncate": true})] {
            let reply = post(rig.addr, path, &with(base, &over));
            assert_eq!(count(&reply, "/prompt_eval_count"), left, "{path} {over}");
        }
        let reply = post(rig.addr, path, &with(base, &json!({"truncate": false})));
        assert_eq!(reply.head.status, 400, "{path}: {}", reply.body);
        assert_eq!(reply.json()["code"], "context_length_exceeded", "{path}");
        let reply = post(rig.addr, path, &with(base, &json!({"truncate": "yes"})));
        assert_eq!(reply.head.status, 400, "{path}: {}", reply.body);
    }
    rig.wait_until_empty();
}
