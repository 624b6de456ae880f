//! Parsers of the Responses API's `tools`, `tool_choice` and `parallel_tool_calls`.
//!
//! The functions of a namespace, and custom tools, whose input is a text, are offered to the model as functions. Tools of
//! other types run at OpenAI: they are left out, and the response's header names their types.

use crate::fields::{self, Fields, JsonObject, RawJson};
use crate::tool_definitions::{
    ParsedChoice, STRING_MESSAGE, TOOL_NAME_MESSAGE, custom_function, description, leave_out_tool,
    parse_tool_choice, parse_tool_list, tool_name,
};
use generate::tools::{OfferedTool, TOOLS_MAX, ToolChoice, Tools, is_tool_name};
use serde_json::{Map, Value, json};

/// Error message for an invalid `tool_choice`.
const TOOL_CHOICE_MESSAGE: &str = "must be none, auto, required, {\"type\": \"function\" or \"custom\", \"name\": ..}, or \
    {\"type\": \"allowed_tools\", \"mode\": .., \"tools\": ..}";

/// Parses the tools into OpenAI's chat format, which chat templates expect. `parser` has the tools of the conversation's items.
/// Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>, mut parser: ToolParser) -> Tools {
    let mut tools = parse_tool_list(fields, ".name", |fields, path, raw| {
        parser.parse_entry(fields, path, raw)
    });
    let is_given = |name: &str| tools.iter().any(|tool| tool["function"]["name"] == name);
    let mut added = std::mem::take(&mut parser.added);
    added.retain(|(name, _)| !is_given(name));
    tools.extend(added.into_iter().map(|(_, tool)| tool));
    if tools.len() > TOOLS_MAX {
        fields.reject(
            "tools",
            format!("must be at most {TOOLS_MAX}, with those in input"),
        );
        return Tools::default();
    }
    let choice = parse_tool_choice(fields, TOOL_CHOICE_MESSAGE, |choice| {
        let kind = choice.text("type")?;
        let name = choice.text("name");
        name.filter(|_| matches!(&*kind, "function" | "custom"))
    });
    let tools = parser.offered_choice(choice).of_tools(fields, tools);
    Tools {
        offered: parser.changed,
        ..tools
    }
}

/// Name of the function for a tool, and its definition.
type Definition = (String, Value);

/// Tools that were parsed, beside the definitions that are returned.
#[derive(Debug, Default)]
pub(crate) struct ToolParser {
    /// Tools that are offered in another form.
    changed: Vec<OfferedTool>,
    /// Tools of the conversation's items, each once.
    added: Vec<Definition>,
}

impl ToolParser {
    /// Adds the tools of an item `additional_tools`, by which a client changes its tools in the course of a conversation.
    pub(crate) fn add_item(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        item: &JsonObject<'_>,
    ) -> Option<()> {
        let raws = item
            .get("tools")
            .and_then(|raw| fields::as_list(raw, TOOLS_MAX));
        let Some(raws) = raws else {
            let error_message = format!("must be a list of at most {TOOLS_MAX} tools");
            fields.reject(format!("{path}.tools"), error_message);
            return None;
        };
        for (i, raw) in raws.into_iter().enumerate() {
            for (name, tool) in self.parse_entry(fields, &format!("{path}.tools[{i}]"), raw) {
                // A later item replaces the tools of an earlier one.
                self.added.retain(|(earlier, _)| *earlier != name);
                self.added.push((name, tool));
            }
        }
        Some(())
    }

    /// The functions of one entry of the list.
    fn parse_entry(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        raw: RawJson<'_>,
    ) -> Vec<Definition> {
        let Some(tool) = fields::as_object(raw) else {
            fields.reject(path, "must be an object with a type and a name");
            return Vec::new();
        };
        let kind = tool.text("type");
        match kind.as_deref() {
            Some("namespace") => self.parse_namespace(fields, path, &tool),
            _ => {
                let parsed = self.parse_tool(fields, path, &tool, None);
                parsed.into_iter().collect()
            }
        }
    }

    /// The functions of a namespace. The description of the namespace precedes that of its first function.
    fn parse_namespace(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        namespace: &JsonObject<'_>,
    ) -> Vec<Definition> {
        let name = tool_name(fields, path, namespace);
        let words = description(fields, path, namespace);
        let raws = namespace
            .get("tools")
            .map(|raw| fields::as_list(raw, TOOLS_MAX));
        let Some(Some(raws)) = raws else {
            let error_message = format!("must be a list of at most {TOOLS_MAX} tools");
            fields.reject(format!("{path}.tools"), error_message);
            return Vec::new();
        };
        let (Some(name), Some(words)) = (name, words) else {
            return Vec::new();
        };
        let mut tools = Vec::new();
        for (i, raw) in raws.into_iter().enumerate() {
            let path = format!("{path}.tools[{i}]");
            let Some(tool) = fields::as_object(raw) else {
                fields.reject(path, "must be an object with a type and a name");
                continue;
            };
            tools.extend(self.parse_tool(fields, &path, &tool, Some(&name)));
        }
        if let (Some((_, first)), Some(words)) = (tools.first_mut(), words) {
            let own = first["function"]["description"]
                .as_str()
                .unwrap_or_default();
            let both = format!("{words}\n\n{own}");
            first["function"]["description"] = Value::from(both.trim());
        }
        tools
    }

    /// A function, or a custom tool as a function. `None` on errors, and for a tool that is left out.
    fn parse_tool(
        &mut self,
        fields: &mut Fields<'_>,
        path: &str,
        tool: &JsonObject<'_>,
        namespace: Option<&str>,
    ) -> Option<Definition> {
        let is_custom = match tool.text("type").as_deref() {
            Some("function") => false,
            Some("custom") => true,
            Some(kind) => {
                leave_out_tool(fields, &format!("{path}.type"), kind);
                return None;
            }
            None => {
                fields.reject(format!("{path}.type"), STRING_MESSAGE);
                return None;
            }
        };
        let name = tool_name(fields, path, tool)?;
        let mut function = if is_custom {
            custom_function(fields, path, tool)?
        } else {
            plain_function(fields, path, tool)?
        };
        let offered = OfferedTool::new(namespace, &name, is_custom);
        let name = offered.function.to_string();
        if !is_tool_name(&name) {
            let error_message = format!("is too long with its namespace: {TOOL_NAME_MESSAGE}");
            fields.reject(format!("{path}.name"), error_message);
            return None;
        }
        function.insert("name".to_owned(), Value::from(&*name));
        self.changed
            .retain(|earlier| earlier.function != offered.function);
        if offered.is_changed() {
            self.changed.push(offered);
        }
        Some((name, json!({"type": "function", "function": function})))
    }

    /// The choice by the names that the model knows. A client may leave out the namespace.
    fn offered_choice(&self, choice: ParsedChoice) -> ParsedChoice {
        let offered = |name: String| {
            let tool = self.changed.iter().find(|tool| *tool.name == *name);
            tool.map_or(name, |tool| tool.function.to_string())
        };
        ParsedChoice {
            choice: match choice.choice {
                ToolChoice::Named(name) => ToolChoice::Named(offered(name)),
                other => other,
            },
            allowed: choice
                .allowed
                .map(|names| names.into_iter().map(offered).collect()),
        }
    }
}

/// A function without its name.
fn plain_function(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'_>,
) -> Option<Map<String, Value>> {
    let mut function = Map::new();
    if let Some(text) = description(fields, path, tool)? {
        function.insert("description".to_owned(), Value::from(text));
    }
    if let Some(raw) = tool.get("parameters") {
        let Some(schema) = fields::schema_object(raw) else {
            fields.reject(format!("{path}.parameters"), fields::SCHEMA_MESSAGE);
            return None;
        };
        function.insert("parameters".to_owned(), schema);
    }
    if let Some(raw) = tool.get("strict") {
        let Some(strict) = fields::parse_value::<Option<bool>>(raw) else {
            fields.reject(format!("{path}.strict"), "must be true or false");
            return None;
        };
        function.insert("strict".to_owned(), Value::Bool(strict == Some(true)));
    }
    Some(function)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use crate::request_parser::tests::parsed_request;
    use generate::request::Prompt;
    use serde_json::{Value, json};

    fn request(choice: &Value) -> Value {
        let functions = json!([
            {"type": "function", "name": "spawn", "description": "One.", "parameters": null},
            {"type": "function", "name": "wait"},
        ]);
        let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: A"});
        json!({"input": "a", "tool_choice": choice, "tools": [
            {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar},
            {"type": "namespace", "name": "agents", "description": "Agents.", "tools": functions},
        ]})
    }

    #[test]
    fn tools_are_offered_as_functions() {
        let body = request(&json!("auto")).to_string();
        let request = parsed_request(parse, body.as_bytes()).expect("a request");
        let [Prompt::Conversation { tools, .. }] = &request.prompts[..] else {
            panic!("{:?}", request.prompts);
        };
        let told = tools.iter().map(|tool| {
            let function = &tool["function"];
            let text = |name: &str| function[name].as_str().unwrap_or_default().to_owned();
            (text("name"), text("description"))
        });
        let told: Vec<_> = told.collect();
        let want = [
            (
                "patch",
                "Edits.\n\nThe input must match this grammar (lark):\nstart: A",
            ),
            ("agents__spawn", "Agents.\n\nOne."),
            ("agents__wait", ""),
        ];
        let want = want.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(told, want);
        assert_eq!(
            tools[0]["function"]["parameters"]["required"],
            json!(["input"])
        );
        let ignored = request.stream_options.ignored_fields;
        assert_eq!(ignored.names(), Some("tools.format"));
    }

    #[test]
    fn chosen_tool_is_the_one_that_the_client_names() {
        for (choice, called) in [
            (json!({"type": "custom", "name": "patch"}), Some("patch")),
            (
                json!({"type": "function", "name": "wait"}),
                Some("agents__wait"),
            ),
            (
                json!({"type": "function", "name": "agents__wait"}),
                Some("agents__wait"),
            ),
            (json!({"type": "function", "name": "other"}), None),
            // A hosted tool cannot be forced.
            (json!({"type": "web_search"}), None),
        ] {
            let body = request(&choice).to_string();
            let parsed = parsed_request(parse, body.as_bytes()).ok();
            let names = parsed.map(|request| {
                let constrained = request.params.constrained_tools;
                constrained
                    .into_iter()
                    .map(|tool| tool.name)
                    .collect::<Vec<_>>()
            });
            let want = called.map(|name| vec![name.to_owned()]);
            assert_eq!(names, want, "{choice}");
        }
    }

    #[test]
    fn only_allowed_tools_are_offered() {
        let spawn = json!({"type": "function", "name": "spawn"});
        let patch = json!({"type": "custom", "name": "patch"});
        let hosted = json!({"type": "web_search"});
        for (mode, allowed, want) in [
            ("auto", json!([spawn, hosted]), &["agents__spawn"][..]),
            ("required", json!([patch]), &["patch"]),
        ] {
            let choice = json!({"type": "allowed_tools", "mode": mode, "tools": allowed});
            let body = request(&choice).to_string();
            let request = parsed_request(parse, body.as_bytes()).expect("a request");
            let [Prompt::Conversation { tools, .. }] = &request.prompts[..] else {
                panic!("{:?}", request.prompts);
            };
            let names = tools.iter().map(|tool| tool["function"]["name"].as_str());
            assert_eq!(names.flatten().collect::<Vec<_>>(), want, "{choice}");
            assert_eq!(request.params.tool_calling.required, mode == "required");
        }
    }

    #[test]
    fn tools_of_items_are_offered_with_the_others() {
        let items = json!([
            {"type": "additional_tools", "role": "developer", "tools": [
                {"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "custom", "name": "exec"}]},
                {"type": "function", "name": "a", "description": "first"},
            ]},
            {"role": "user", "content": "b"},
            {"type": "additional_tools", "tools": [
                {"type": "function", "name": "a", "description": "second"},
                {"type": "function", "name": "b", "description": "of the item"},
            ]},
        ]);
        let given = json!([{"type": "function", "name": "b", "description": "of the request"}]);
        let body = json!({"input": items, "tools": given}).to_string();
        let request = parsed_request(parse, body.as_bytes()).expect("a request");
        let [
            Prompt::Conversation {
                tools, messages, ..
            },
        ] = &request.prompts[..]
        else {
            panic!("{:?}", request.prompts);
        };
        assert_eq!(messages.len(), 1, "{messages:?}");
        let told = tools.iter().map(|tool| {
            let text = |name: &str| tool["function"][name].as_str().unwrap_or_default();
            (text("name"), text("description"))
        });
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            [
                ("b", "of the request"),
                ("functions__exec", ""),
                ("a", "second")
            ]
        );
        let offered = &request.stream_options.offered_tools;
        assert_eq!(offered.len(), 1, "{offered:?}");
        assert!(offered[0].is_custom && offered[0].namespace.as_deref() == Some("functions"));
    }

    #[test]
    fn invalid_tool_of_a_namespace_is_named() {
        for (tool, field) in [
            (json!({"type": "namespace", "name": "n"}), "tools[0].tools"),
            (json!({"type": "namespace", "tools": []}), "tools[0].name"),
            (
                json!({"type": "namespace", "name": "n", "tools": [1]}),
                "tools[0].tools[0]",
            ),
            (
                json!({"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": " "}]}),
                "tools[0].tools[0].name",
            ),
            (
                json!({"type": "custom", "name": "c", "description": 1}),
                "tools[0].description",
            ),
            (json!({"name": "c"}), "tools[0].type"),
        ] {
            let body = json!({"input": "a", "tools": [tool]}).to_string();
            let error = parsed_request(parse, body.as_bytes()).expect_err("an error");
            assert!(error.message.contains(field), "{field}: {}", error.message);
        }
    }
}
