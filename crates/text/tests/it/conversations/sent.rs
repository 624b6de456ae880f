//! Conversations as clients send them.

use serde_json::{Value, json};

/// Conversations whose texts begin with `T-`: each must be in the prompt.
pub(super) fn conversations() -> Vec<(&'static str, Value)> {
    let m = |role: &str, text: &str| json!({"role": role, "content": text});
    let (system, user, said) = (
        |text| m("system", text),
        |text| m("user", text),
        |text| m("assistant", text),
    );
    vec![
        ("a user", json!([user("T-a")])),
        ("a developer", json!([m("developer", "T-a"), user("T-b")])),
        (
            "a system and a developer message",
            json!([system("T-a"), m("developer", "T-b"), user("T-c")]),
        ),
        (
            "two system messages",
            json!([system("T-a"), system("T-b"), user("T-c")]),
        ),
        (
            "a system message in the middle",
            json!([user("T-a"), said("T-b"), system("T-c"), user("T-d")]),
        ),
        (
            "two in the middle",
            json!([
                system("T-a"),
                user("T-b"),
                system("T-c"),
                system("T-d"),
                said("T-e"),
                user("T-f")
            ]),
        ),
        (
            "a system message at the end",
            json!([user("T-a"), system("T-b")]),
        ),
        (
            "a system message behind an answer",
            json!([user("T-a"), said("T-b"), system("T-c")]),
        ),
        ("a system message alone", json!([system("T-a")])),
        ("two users", json!([user("T-a"), user("T-b")])),
        (
            "two answers",
            json!([user("T-a"), said("T-b"), said("T-c"), user("T-d")]),
        ),
        ("an answer first", json!([said("T-a"), user("T-b")])),
        (
            "instructions, then an answer",
            json!([system("T-a"), said("T-b"), user("T-c")]),
        ),
        (
            "instructions, and an answer at the end",
            json!([system("T-a"), user("T-b"), said("T-c")]),
        ),
        (
            "no calls",
            json!([user("T-a"), {"role": "assistant", "content": "T-b", "tool_calls": []}, user("T-c")]),
        ),
    ]
}

pub(super) fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn with_id(mut message: Value, name: &str, id: Option<&str>) -> Value {
    if let Some(id) = id {
        message[name] = json!(id);
    }
    message
}

pub(super) fn call(arguments: &Value, id: Option<&str>) -> Value {
    let function = json!({"name": "weather", "arguments": arguments});
    with_id(json!({"type": "function", "function": function}), "id", id)
}

pub(super) fn calls(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

pub(super) fn result(text: &str, id: Option<&str>) -> Value {
    with_id(said("tool", text), "tool_call_id", id)
}

/// Conversations with tool calls.
pub(super) fn calling_conversations() -> Vec<(&'static str, Value)> {
    let mut rows = argument_forms();
    rows.extend(call_orders());
    rows.extend(texts_next_to_calls());
    rows.extend(first_calls());
    rows.push(instructed_call());
    rows
}

/// Conversations that begin with a call, or have only instructions.
fn first_calls() -> Vec<(&'static str, Value)> {
    let called = || calls(&[call(&json!({"city": "T-b"}), Some("call_1"))]);
    let answered = || result("T-c", Some("call_1"));
    vec![
        (
            "a call first",
            json!([called(), answered(), said("user", "T-d")]),
        ),
        ("a call and a result alone", json!([called(), answered()])),
        (
            "instructions and a call",
            json!([said("system", "T-a"), called(), answered()]),
        ),
        ("instructions alone", json!([said("system", "T-a")])),
        (
            "an answer first, then a call",
            json!([said("assistant", "T-a"), called(), answered()]),
        ),
    ]
}

/// Text next to calls in one message.
fn texts_next_to_calls() -> Vec<(&'static str, Value)> {
    let with_text = |text: Value, called: &[Value]| {
        let mut message = calls(called);
        message["content"] = text;
        message
    };
    let one = |text: Value| with_text(text, &[call(&json!({"city": "T-c"}), Some("call_1"))]);
    let two = [
        call(&json!({"city": "T-c"}), Some("call_1")),
        call(&json!({"city": "T-d"}), Some("call_2")),
    ];
    vec![
        (
            "text next to a call",
            json!([
                said("user", "T-a"),
                one(json!("T-b")),
                result("T-d", Some("call_1"))
            ]),
        ),
        (
            "text next to two calls, an answer, and a call again",
            json!([
                said("user", "T-a"),
                with_text(json!("T-b"), &two),
                result("T-e", Some("call_1")),
                result("T-f", Some("call_2")),
                said("assistant", "T-g"),
                said("user", "T-h"),
                one(json!("T-i")),
                result("T-j", Some("call_1")),
            ]),
        ),
        (
            "text next to calls in a row",
            json!([
                said("user", "T-a"),
                one(json!("T-b")),
                result("T-d", Some("call_1")),
                one(json!("T-e")),
                result("T-f", Some("call_1")),
            ]),
        ),
        (
            "null next to a call",
            json!([
                said("user", "T-a"),
                one(Value::Null),
                result("T-d", Some("call_1"))
            ]),
        ),
    ]
}

/// Arguments and ids in every form.
fn argument_forms() -> Vec<(&'static str, Value)> {
    let short = |arguments: Value, id: &str| {
        json!([
            said("user", "T-a"),
            calls(&[call(&arguments, Some(id))]),
            result("T-z", Some(id))
        ])
    };
    let mut no_arguments = short(Value::Null, "call_abc123");
    let function = no_arguments[1]["tool_calls"][0]["function"].as_object_mut();
    function.expect("a function").shift_remove("arguments");
    vec![
        ("no arguments", no_arguments),
        ("an object", short(json!({"city": "T-b"}), "call_abc123")),
        ("a plain id", short(json!({"city": "T-b"}), "abcdefgh1")),
        ("a text", short(json!("{\"city\": \"T-b\"}"), "call_abc123")),
        (
            "a text that was cut",
            short(json!("{\"city\": \"T-b"), "call_abc123"),
        ),
        ("a list", short(json!("[\"T-b\"]"), "call_abc123")),
        ("an empty list", short(json!("[]"), "call_abc123")),
        ("null", short(Value::Null, "call_abc123")),
        ("null as text", short(json!("null"), "call_abc123")),
        ("words", short(json!("T-b"), "call_abc123")),
    ]
}

/// Instructions, and a result at the end.
fn instructed_call() -> (&'static str, Value) {
    (
        "instructions before a call",
        json!([
            said("system", "T-a"),
            said("user", "T-b"),
            calls(&[call(&json!({"city": "T-c"}), Some("call_1"))]),
            result("T-d", Some("call_1")),
        ]),
    )
}

/// Calls and results in every order.
fn call_orders() -> Vec<(&'static str, Value)> {
    vec![
        (
            "no ids",
            json!([
                said("user", "T-a"),
                calls(&[call(&json!({"city": "T-b"}), None)]),
                result("T-c", None)
            ]),
        ),
        (
            "two calls, results in the other order, an answer",
            json!([
                said("user", "T-a"),
                calls(&[
                    call(&json!({"city": "T-b"}), Some("call_1")),
                    call(&json!({"city": "T-c"}), Some("call_2"))
                ]),
                result("T-e", Some("call_2")),
                result("T-d", Some("call_1")),
                said("assistant", "T-f"),
                said("user", "T-g"),
            ]),
        ),
        (
            "a user behind a result",
            json!([
                said("user", "T-a"),
                calls(&[call(&json!({"city": "T-b"}), Some("call_1"))]),
                result("T-c", Some("call_1")),
                said("user", "T-d"),
            ]),
        ),
        (
            "a result that a template refuses",
            json!([
                said("user", "T-a"),
                calls(&[call(&json!({"city": "T-b"}), Some("call_1"))]),
                result("T-c refused", Some("call_1")),
            ]),
        ),
        (
            "an instruction behind a result",
            json!([
                said("user", "T-a"),
                calls(&[call(&json!({"city": "T-b"}), Some("call_1"))]),
                result("T-c", Some("call_1")),
                said("system", "T-d"),
            ]),
        ),
        (
            "a result without a call",
            json!([
                said("user", "T-a"),
                result("T-b", Some("call_9")),
                said("user", "T-c")
            ]),
        ),
    ]
}
