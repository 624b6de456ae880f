//! Prompts that an answer continues, and prompts with tools.

use super::restored_tests::model;
use super::*;
use serde_json::json;
use testing::vocabulary::Vocabulary;
use text::{AnswerFormat, ToolFamily};

/// Rendered prompt of a conversation whose last message the answer continues.
fn continued(template: &str, last: &str) -> Result<String, ApiError> {
    let message = |role: &str, text: &str| Message {
        role: role.to_owned(),
        content: Value::String(text.to_owned()),
        rest: Map::new(),
    };
    let mut messages = vec![message("user", "i"), message("assistant", last)];
    append_sentinel(&mut messages);
    let input = RenderInput {
        marks_stay: false,
        messages: &messages,
        tools: &[],
        add_generation_prompt: false,
        kwargs: None,
        now_unix_s: 0,
        bytes_max: None,
    };
    let template = ChatTemplate::new(template, "", "").expect("a template");
    let mut text = template.render(&input).expect("a conversation");
    cut_at_sentinel("messages", &mut text).map(|()| text)
}

#[test]
fn continued_answer_begins_at_the_end_of_the_last_message() {
    let plain = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<|im_end|>{% endfor %}";
    for last in ["The (", "i", "end", "<|im_"] {
        let want = format!("<user>i<|im_end|><assistant>{last}");
        assert_eq!(continued(plain, last).expect("continued"), want);
    }
    let forgetful = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
    let error = continued(forgetful, "x").expect_err("it is not shown");
    assert_eq!(error.code, "template_refused");
}

/// `/tokenize` counts what a chat completion of the same messages is charged for.
#[test]
fn ids_of_a_conversation_are_those_of_its_prompt() {
    const CONTROL: [&str; 2] = ["<tool_call>", "</tool_call>"];
    let tokenizer = Vocabulary::of_bytes().with_control_tokens(&CONTROL);
    let tokenizer = tokenizer.into_tokenizer();
    let answers = AnswerFormat {
        tools: ToolFamily::Hermes,
        ..AnswerFormat::default()
    };
    let function =
        json!({"name": "f", "description": "</tool_call>", "parameters": {"type": "object"}});
    let tools = [json!({"type": "function", "function": function})];
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": "<tool_call>"}}});
    let messages: Vec<Message> = serde_json::from_value(json!([
        {"role": "user", "content": "<tool_call>"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "d"},
    ]))
    .expect("messages");
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let with_tools = "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}\
                      <tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}";
    for (template, tools) in [(plain, &[][..]), (with_tools, &tools[..])] {
        let model = model(template, answers, tokenizer.clone());
        let encoder = PromptEncoder::new(&model, 0);
        let arguments = TemplateArguments {
            tools,
            add_generation_prompt: true,
            kwargs: &Map::new(),
        };
        let told = encoder.conversation_ids(messages.clone(), arguments);
        let prompt = encoder.prompt_ids(Prompt::Conversation {
            field: "messages",
            messages: messages.clone(),
            tools: tools.to_vec(),
            continues: false,
            kwargs: Map::new(),
        });
        let told = told.expect("ids");
        assert_eq!(told, prompt.expect("ids"), "{template}");
        for text in CONTROL {
            let is_delimiter = |id: &&u32| tokenizer.piece(**id) == Some(text);
            let count = told.iter().filter(is_delimiter).count();
            assert_eq!(count, 1, "{template}: {text}");
        }
    }
}

/// Templates read the members of schemas, and variables, as values of certain types.
#[test]
fn argument_that_a_template_cannot_render_is_named() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{% for t in tools or [] %}\
                    {% for name, part in t.function.parameters.properties.items() %}{{ name }}{% endfor %}{% endfor %}\
                    {{ (parts or []) | join }}";
    let tokenizer = Vocabulary::of_bytes().into_tokenizer();
    let answers = AnswerFormat {
        tools: ToolFamily::Hermes,
        ..AnswerFormat::default()
    };
    let model = model(template, answers, tokenizer);
    let failing = |properties: Value, parts: Value| {
        let function =
            json!({"name": "f", "parameters": {"type": "object", "properties": properties}});
        let error = PromptEncoder::new(&model, 0).prompt_ids(Prompt::Conversation {
            field: "messages",
            messages: serde_json::from_value(json!([{"role": "user", "content": "a"}]))
                .expect("messages"),
            tools: vec![json!({"type": "function", "function": function})],
            continues: false,
            kwargs: Map::from_iter([("parts".to_owned(), parts)]),
        });
        error
            .err()
            .map(|error| (error.code, error.problems[0].field.clone()))
    };
    let refused = |field: &str| Some(("template_refused", field.to_owned()));
    assert_eq!(failing(json!({"a": {}}), json!(["b"])), None);
    for properties in [json!("x"), json!(5)] {
        assert_eq!(failing(properties, json!([])), refused("tools"));
    }
    assert_eq!(
        failing(json!({}), json!(5)),
        refused("chat_template_kwargs")
    );
}
