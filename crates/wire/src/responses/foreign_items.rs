//! Items of tools that this server does not offer: an agent sends them back with the conversation in which another API gave
//! them.
//!
//! A call counts once its result is known: in an item of its own with the call's id (`shell_call`, `shell_call_output`), or
//! within the item (`mcp_call`). The model then reads both, like a function's. An item without a call, a result or a text is
//! left out, and named in the response's header.

use super::conversation::ConversationBuilder;
use crate::fields::{self, Fields, JsonObject};
use crate::shared::result_text::result_text;
use crate::shared::tool_calls::{parse_arguments, value_of_arguments};
use serde_json::{Map, Value};

/// Members of a call that are its arguments, the first that is given.
const ARGUMENTS: [&str; 5] = ["arguments", "action", "operation", "actions", "input"];
/// Members of a call that is its own result, the first that is given.
const RESULTS: [&str; 4] = ["output", "outputs", "results", "error"];
/// Members of a call that are neither.
const OF_THE_ITEM: [&str; 6] = ["type", "id", "call_id", "status", "name", "server_label"];

/// A call without a result so far.
#[derive(Debug)]
pub(super) struct PendingCall {
    id: String,
    name: String,
    arguments: Value,
    /// Path and kind of the item.
    place: (String, String),
}

impl ConversationBuilder {
    /// Adds an item of a kind without a parser, as far as this server can use the item.
    pub(super) fn add_foreign_item(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
        kind: &str,
    ) {
        let text = |name: &str| item.get(name).and_then(fields::as_text);
        let result = RESULTS.into_iter().find_map(|name| item.get(name));
        let is_result = kind.ends_with("_output");
        let id = text("call_id").or_else(|| text("id"));
        let place = (path.to_owned(), kind.to_owned());
        match (id, result) {
            (Some(id), _) if is_result => {
                let given = result.or_else(|| item.get("status"));
                if self.use_pending(&id) || self.turns.has_call(&id) {
                    let text = given.map(result_text).unwrap_or_default();
                    self.turns.add_result(id.into_owned(), text);
                } else {
                    leave_out(fields, &place);
                }
            }
            (Some(id), result) if kind.ends_with("_call") => {
                self.pending.push(PendingCall {
                    id: id.clone().into_owned(),
                    name: text("name").map_or_else(|| tool_name(kind), Into::into),
                    arguments: call_arguments(item),
                    place,
                });
                if let Some(result) = result {
                    self.use_pending(&id);
                    self.turns.add_result(id.into_owned(), result_text(result));
                }
            }
            _ => leave_out(fields, &place),
        }
    }

    /// Adds the call of this id that has waited for its result; whether there is one.
    pub(super) fn use_pending(&mut self, id: &str) -> bool {
        let at = self.pending.iter().rposition(|call| call.id == id);
        let call = at.map(|at| self.pending.remove(at));
        let is_found = call.is_some();
        if let Some(call) = call {
            self.turns.add_call(call.id, call.name, &call.arguments);
        }
        is_found
    }

    /// Leaves out the calls without a result.
    pub(super) fn drop_pending(&mut self, fields: &mut Fields<'_>) {
        for call in self.pending.drain(..) {
            leave_out(fields, &call.place);
        }
    }
}

fn leave_out(fields: &mut Fields<'_>, (path, kind): &(String, String)) {
    fields.leave_out(path, format!("input.{kind}"));
}

/// Name of the tool of an item without a name: `shell` for a `shell_call`.
fn tool_name(kind: &str) -> String {
    kind.strip_suffix("_call").unwrap_or(kind).to_owned()
}

/// The arguments of a call: those that are given as such, or the members that only this kind of item has.
fn call_arguments(item: &JsonObject<'_>) -> Value {
    let given = ARGUMENTS.into_iter().find_map(|name| item.get(name));
    if let Some(raw) = given {
        let mut arguments = value_of_arguments::<Value>(raw.get()).unwrap_or_default();
        parse_arguments(&mut arguments);
        return arguments;
    }
    let is_argument = |name: &str| !OF_THE_ITEM.contains(&name) && !RESULTS.contains(&name);
    let members = item.entries().filter(|(name, _)| is_argument(name));
    let value = |(name, raw)| Some((str::to_owned(name), fields::parse_value(raw)?));
    Value::Object(members.filter_map(value).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use crate::request_parser::tests::parsed_request;
    use generate::request::Prompt;
    use serde_json::{Value, json};

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
        let done =
            json!([{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
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
}
