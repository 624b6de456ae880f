//! Messages and content blocks, and the messages for the chat template.

use super::{bad_fields, message};
use generate::request::Prompt;
use serde_json::{Value, json};

/// Messages for the chat template, and whether the answer continues the last one.
fn got(over: &Value) -> (Value, bool) {
    let mut request = message(over).unwrap_or_else(|e| panic!("{over}: {}", e.message));
    match request.prompts.remove(0) {
        Prompt::Conversation {
            messages,
            continues,
            ..
        } => (serde_json::to_value(messages).expect("JSON"), continues),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_become_those_of_chat_templates() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let rows = [
        (
            "a system prompt of blocks",
            json!({"system": [text("a"), text("b")]}),
            json!([{"role": "system", "content": "a\nb"}, {"role": "user", "content": "hi"}]),
        ),
        (
            "turns of one role are one",
            json!({"messages": [
                {"role": "user", "content": "a"},
                {"role": "user", "content": [text("b"), text("c")]},
                {"role": "assistant", "content": "d"},
                {"role": "user", "content": "e"},
            ]}),
            json!([
                {"role": "user", "content": "a\nb\nc"},
                {"role": "assistant", "content": "d"},
                {"role": "user", "content": "e"},
            ]),
        ),
        (
            "a system turn on the way",
            json!({"messages": [
                {"role": "user", "content": "a"},
                {"role": "system", "content": [text("b")]},
            ]}),
            json!([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]),
        ),
    ];
    for (case, over, want) in rows {
        assert_eq!(got(&over), (want, false), "{case}");
    }
}

#[test]
fn tool_calls_results_and_reasoning_are_kept() {
    let over = json!({"messages": [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
             "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}]},
            {"type": "text", "text": "So?"},
        ]},
    ]});
    let call = |id: &str, name: &str, arguments: Value| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    let want = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [
            call("toolu_1", "weather", json!({"city": "Rome"})), call("toolu_2", "time", json!({})),
        ]},
        {"role": "tool", "content": "sun", "tool_call_id": "toolu_1", "name": "weather"},
        {"role": "tool", "content": "no\nclock", "tool_call_id": "toolu_2", "name": "time", "is_error": true},
        {"role": "user", "content": "So?"},
    ]);
    assert_eq!(got(&over), (want, false));
}

#[test]
fn last_assistant_message_is_continued() {
    let ends = |content: Value| {
        json!({"messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": content},
        ]})
    };
    let (messages, continues) = got(&ends(json!("The answer is (")));
    assert_eq!(messages[1]["content"], "The answer is (");
    assert!(continues);
    // An empty last message is dropped.
    let (messages, continues) = got(&ends(json!("")));
    assert_eq!(messages.as_array().map(Vec::len), Some(1));
    assert!(!continues);
}

/// The text in place of an image would be the beginning of the answer.
#[test]
fn image_in_the_prefix_of_an_answer_is_an_error() {
    let image = json!({"type": "image", "source": {"type": "base64", "data": "QUJD"}});
    let text = json!({"type": "text", "text": "b"});
    let turn = |role: &str, content: Value| json!({"role": role, "content": content});
    let answers = |more: Vec<Value>| {
        let turns = [
            turn("user", json!("a")),
            turn("assistant", json!([text, image])),
        ];
        json!({"messages": turns.into_iter().chain(more).collect::<Vec<_>>()})
    };
    for more in [vec![], vec![turn("assistant", json!("c"))]] {
        let error = message(&answers(more)).expect_err("an image");
        assert_eq!(bad_fields(&error), ["messages[1].content[1]"], "{error:?}");
    }
    let more = vec![turn("user", json!("c")), turn("assistant", json!("d"))];
    let (messages, continues) = got(&answers(more));
    let left = "b\n(an image, which this model cannot read)";
    assert_eq!((&messages[1]["content"], continues), (&json!(left), true));
}

#[test]
fn invalid_block_is_named() {
    let user = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let assistant = |block: Value| json!({"messages": [{"role": "assistant", "content": [block]}]});
    let rows = [
        (json!({"messages": null}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": ["hi"]}), "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
        (
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": 3}]}),
            "messages[0].content",
        ),
        (json!({"system": 3}), "system"),
        (json!({"system": [{"type": "image"}]}), "system[0]"),
        (user(json!("x")), "messages[0].content[0].type"),
        (user(json!({"text": "x"})), "messages[0].content[0].type"),
        (user(json!({"type": "text"})), "messages[0].content[0].text"),
        (
            user(json!({"type": "image", "source": {}})),
            "messages[0].content[0]",
        ),
        (user(json!({"type": "document"})), "messages[0].content[0]"),
        (
            user(json!({"type": "tool_use", "id": "1", "name": "f", "input": {}})),
            "messages[0].content[0].type",
        ),
        (
            user(json!({"type": "tool_result", "tool_use_id": "1"})),
            "messages[0].content[0].tool_use_id",
        ),
        (
            assistant(json!({"type": "tool_use", "id": "1", "name": "f", "input": {}})),
            "messages",
        ),
        (
            assistant(json!({"type": "thinking", "signature": "x"})),
            "messages[0].content[0].thinking",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": "a "}]}),
            "messages",
        ),
    ];
    for (over, want) in rows {
        let error = message(&over).expect_err(want);
        assert_eq!(bad_fields(&error), [want], "{over}");
    }
}

#[test]
fn texts_in_other_blocks_are_used() {
    let document = |source: Value| json!({"type": "document", "title": "T", "source": source});
    let text = json!({"type": "text", "media_type": "text/plain", "data": "hello"});
    let found = json!({"type": "search_result", "source": "https://a", "title": "t", "content": [{"type": "text", "text": "x"}]});
    for (block, want) in [
        (document(text), "T\nhello"),
        (document(json!({"type": "content", "content": "a"})), "T\na"),
        (
            document(json!({"type": "content", "content": [{"type": "text", "text": "a"}]})),
            "T\na",
        ),
        (found, "t\nhttps://a\nx"),
        (json!({"type": "tool_reference", "tool_name": "f"}), "f"),
    ] {
        let said = json!({"messages": [{"role": "user", "content": [block]}]});
        assert_eq!(got(&said).0[0]["content"], want, "{block}");
        let result = json!({"type": "tool_result", "tool_use_id": "1", "content": [block]});
        let said = json!({"messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": null}]},
            {"role": "user", "content": [result]},
        ]});
        assert_eq!(got(&said).0[1]["content"], want, "{block}");
    }
}

/// Blocks of an answer, the name and the result of the call that they become, and what is left out.
type ServerRow = (
    Vec<Value>,
    Option<(&'static str, &'static str)>,
    Option<&'static str>,
);

fn server_rows() -> Vec<ServerRow> {
    let call =
        |kind: &str, name: &str| json!({"type": kind, "id": "1", "name": name, "input": {"a": 1}});
    let result =
        |kind: &str, content: Value| json!({"type": kind, "tool_use_id": "1", "content": content});
    let done = json!({"type": "bash_code_execution_result", "stdout": "x", "return_code": 0});
    let page = json!([{"type": "web_search_result", "url": "u", "encrypted_content": "e"}]);
    let text = json!([{"type": "text", "text": "x"}]);
    vec![
        (
            vec![call("mcp_tool_use", "f"), result("mcp_tool_result", text)],
            Some(("f", "x")),
            None,
        ),
        (
            vec![
                call("server_tool_use", "bash"),
                result("bash_code_execution_tool_result", done),
            ],
            Some((
                "bash",
                r#"{"type":"bash_code_execution_result","stdout":"x","return_code":0}"#,
            )),
            None,
        ),
        (
            vec![
                call("server_tool_use", "web_search"),
                result("web_search_tool_result", page),
            ],
            Some(("web_search", r#"[{"type":"web_search_result","url":"u"}]"#)),
            None,
        ),
        // A call without a result, a result without a call, and a block of a later API.
        (
            vec![
                result("tool_search_tool_result", json!([])),
                call("server_tool_use", "web_search"),
                json!({"type": "hologram", "frames": []}),
            ],
            None,
            Some("messages.tool_search_tool_result, messages.hologram, messages.server_tool_use"),
        ),
    ]
}

#[test]
fn blocks_of_server_tools_are_used_or_left_out() {
    for (blocks, want, left_out) in server_rows() {
        let mut content = blocks.clone();
        content.push(json!({"type": "text", "text": "a"}));
        let over = json!({"messages": [
            {"role": "assistant", "content": content},
            {"role": "user", "content": "b"},
        ]});
        let (messages, _) = got(&over);
        let turns = messages.as_array().expect("messages");
        let said = turns.len() - 2;
        assert_eq!(turns[said]["content"], "a", "{over}");
        let call = &turns[0]["tool_calls"][0]["function"];
        let found = call["name"].as_str().zip(turns[1]["content"].as_str());
        assert_eq!(found.filter(|_| said > 0), want, "{over}");
        let ignored = message(&over)
            .expect("a request")
            .stream_options
            .ignored_fields;
        assert_eq!(ignored.names(), left_out, "{over}");
    }
}

#[test]
fn block_with_a_text_is_used_and_an_answer_may_be_empty() {
    let summary = json!({"type": "compaction", "content": "c"});
    let over = json!({"messages": [
        {"role": "assistant", "content": [summary]}, {"role": "user", "content": "b"},
    ]});
    assert_eq!(got(&over).0[0]["content"], "c");
    let over = json!({"messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": null}, {"role": "user", "content": "b"},
    ]});
    assert_eq!(got(&over).0[0]["content"], "a\nb");
}

#[test]
fn billing_line_is_no_part_of_the_system_prompt() {
    let line = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;";
    let text = |text: &str| json!({"type": "text", "text": text});
    let user = json!({"role": "user", "content": "hi"});
    let instructed = json!([{"role": "system", "content": "a\nb"}, user]);
    for (case, system, want) in [
        (
            "a string",
            json!(format!("{line}\na\nb")),
            instructed.clone(),
        ),
        (
            "blocks",
            json!([text(line), text("a"), text("b")]),
            instructed,
        ),
        ("nothing else", json!([text(line)]), json!([user])),
    ] {
        let want = (want, false);
        assert_eq!(got(&json!({"system": system})), want, "{case}");
    }
    let asked = json!({"messages": [{"role": "user", "content": line}]});
    assert_eq!(got(&asked).0[0]["content"], line);
}
