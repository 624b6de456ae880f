//! Tests of items of other APIs and of references to items.

use super::super::request::parse;
use crate::fields::Fields;
use crate::request_parser::ParseContext;
use crate::request_parser::tests::parsed_request;
use crate::stored_request::History;
use generate::error::ApiError;
use generate::request::Prompt;
use serde_json::{Value, json};
use stream::StreamId;

/// A row: items, the call of the model, the text of its result, and what is left out.
type Row = (
    Value,
    Option<(&'static str, Value)>,
    &'static str,
    Option<&'static str>,
);

#[expect(clippy::too_many_lines, reason = "a row for each kind of item")]
fn rows() -> Vec<Row> {
    let shell = json!({"type": "exec", "command": ["ls"]});
    let patch = json!({"type": "delete_file", "path": "a"});
    let done = json!([{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
    vec![
        (
            json!([
                {"type": "local_shell_call", "id": "l", "call_id": "1", "action": shell, "status": "completed"},
                {"type": "local_shell_call_output", "id": "1", "output": "x"},
            ]),
            Some(("local_shell", shell.clone())),
            "x",
            None,
        ),
        (
            // Codex gives the result as that of a function.
            json!([
                {"type": "local_shell_call", "call_id": "1", "action": shell, "status": "completed"},
                {"type": "function_call_output", "call_id": "1", "output": "x"},
            ]),
            Some(("local_shell", shell)),
            "x",
            None,
        ),
        (
            json!([
                {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}},
                {"type": "shell_call_output", "call_id": "1", "output": done},
            ]),
            Some(("shell", json!({"commands": ["ls"]}))),
            r#"[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#,
            None,
        ),
        (
            json!([
                {"type": "apply_patch_call", "call_id": "1", "operation": patch},
                {"type": "apply_patch_call_output", "call_id": "1", "status": "completed"},
            ]),
            Some(("apply_patch", patch)),
            "completed",
            None,
        ),
        (
            json!([{"type": "mcp_call", "id": "m", "server_label": "s", "name": "f", "arguments": "{\"a\":1}", "output": "x", "error": null}]),
            Some(("f", json!({"a": 1}))),
            "x",
            None,
        ),
        (
            json!([{"type": "code_interpreter_call", "id": "c", "container_id": "k", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}]),
            Some((
                "code_interpreter",
                json!({"container_id": "k", "code": "1"}),
            )),
            r#"[{"type":"logs","logs":"1"}]"#,
            None,
        ),
        (
            json!([
                {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
                {"type": "compaction", "encrypted_content": "x"},
                {"type": "computer_call", "call_id": "1", "action": {"type": "click"}},
                {"type": "web_search_call", "id": "w", "action": {"type": "search"}},
                {"type": "shell_call_output", "call_id": "9", "output": "x"},
            ]),
            None,
            "",
            Some(
                "input.mcp_list_tools, input.compaction, input.shell_call_output, input.computer_call, input.web_search_call",
            ),
        ),
    ]
}

#[test]
fn items_of_other_tools_are_used_or_left_out() {
    for (items, call, result, left_out) in rows() {
        let mut input = items.as_array().expect("items").clone();
        input.insert(0, json!({"role": "user", "content": "a"}));
        let body = json!({"input": input}).to_string();
        let request = parsed_request(parse, body.as_bytes()).expect("a request");
        let [Prompt::Conversation { messages, .. }] = &request.prompts[..] else {
            panic!("{:?}", request.prompts);
        };
        let made = messages
            .get(1)
            .map(|message| &message.rest["tool_calls"][0]["function"]);
        let made = made.map(|call| {
            (
                call["name"].as_str().unwrap_or_default(),
                call["arguments"].clone(),
            )
        });
        assert_eq!(made, call, "{items}");
        let said = messages
            .get(2)
            .map_or(&Value::Null, |message| &message.content);
        assert_eq!(said.as_str().unwrap_or_default(), result, "{items}");
        assert_eq!(
            request.stream_options.ignored_fields.names(),
            left_out,
            "{items}"
        );
    }
}

#[test]
fn input_of_which_nothing_is_left_is_rejected() {
    let body = json!({"input": [{"type": "compaction"}], "instructions": "i"}).to_string();
    let error = parsed_request(parse, body.as_bytes()).expect_err("nothing is left");
    assert_eq!(error.problems[0].field, "input");
}

const STREAM: &str = "0123456789abcdef0123456789abcdef";

struct Stored([String; 2]);

impl History for Stored {
    fn id(&self) -> Option<StreamId> {
        None
    }

    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.iter().map(String::as_str))
    }
}

fn stored(id: &str) -> Result<Box<dyn History>, ApiError> {
    if id != format!("resp_{STREAM}") {
        return Err(ApiError::bad_request("not_found", "unknown"));
    }
    let said = json!({"type": "message", "id": format!("msg_{STREAM}"), "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]});
    let call = json!({"type": "function_call", "id": format!("fc_{STREAM}_1"), "call_id": "1", "name": "f", "arguments": "{}"});
    Ok(Box::new(Stored([said.to_string(), call.to_string()])))
}

#[test]
fn referenced_item_takes_the_place_of_its_reference() {
    let context = ParseContext {
        history: &stored,
        ..ParseContext::of_vocab(300)
    };
    let reference = |id: String| json!({"type": "item_reference", "id": id});
    let asked = |last: String| {
        let body = json!({"input": [
            {"role": "user", "content": "a"}, {"type": null, "id": format!("msg_{STREAM}")}, reference(last),
            {"type": "function_call_output", "call_id": "1", "output": "x"},
        ]});
        parse(Fields::parse(body.to_string().as_bytes())?, &context)
    };
    let parsed = asked(format!("fc_{STREAM}_1")).expect("a request");
    let [Prompt::Conversation { messages, .. }] = &parsed.request.prompts[..] else {
        panic!("{:?}", parsed.request.prompts);
    };
    let said: Vec<_> = messages.iter().map(|message| &message.content).collect();
    assert_eq!(said, ["a", "hi", "x"]);
    assert_eq!(messages[1].rest["tool_calls"][0]["function"]["name"], "f");
    let stored = parsed.stored_request.expect("a stored request").items;
    assert_eq!(stored[2]["type"], "function_call");
    for id in [format!("fc_{STREAM}_2"), "msg_x".to_owned(), "1".to_owned()] {
        let error = asked(id).expect_err("no item");
        assert_eq!(error.problems[0].field, "input[2].id");
    }
}
