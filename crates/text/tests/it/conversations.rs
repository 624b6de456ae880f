//! Conversations as clients send them, over templates that render only some: no text is lost, and no template refuses.
//!
//! Promise (Text): in conversations of every shape, over templates that render only some shapes and over public ones,
//! no text is lost and no conversation is rejected.

mod control_texts;
mod sent;

use sent::{calling_conversations, conversations, said};
use serde_json::{Value, json};
use std::path::Path;
use testing::program::note_skipped_test;
use testing::vocabulary::Vocabulary;
use text::{
    AnswerFormat, ChatTemplate, GenericTools, Message, RenderInput, TemplateError, Tokenizer,
};

const TURN: &str = "{{- '<' ~ m.role ~ '>' ~ (m.content or '') ~ '</>' }}";

/// Templates, each with one habit of published ones. `@` stands for the turn of the message `m`.
const TEMPLATES: [(&str, &str); 13] = [
    (
        "other roles are left out",
        "{%- for m in messages %}{%- if m.role in ['system', 'user', 'assistant', 'tool'] %}@{%- endif %}{%- endfor %}",
    ),
    (
        "a system message comes first, other roles raise",
        "{%- for m in messages %}{%- if m.role == 'system' and not loop.first %}{{- raise_exception('first') }}\
         {%- elif m.role not in ['system', 'user', 'assistant', 'tool'] %}{{- raise_exception('role') }}{%- endif %}@{%- endfor %}",
    ),
    (
        "only the first system message is rendered",
        "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}\
         {%- for m in messages %}{%- if m.role != 'system' %}@{%- endif %}{%- endfor %}",
    ),
    (
        "no system role, strict turns",
        "{%- if messages[0].role == 'system' %}{{- raise_exception('system') }}{%- endif %}\
         {%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('turns') }}{%- endif %}\
         @{%- endfor %}",
    ),
    (
        "a user message is demanded",
        "{%- if not messages | selectattr('role', 'equalto', 'user') | list %}{{- raise_exception('user') }}{%- endif %}\
         {%- for m in messages %}@{%- endfor %}",
    ),
    (
        "calls in tags, arguments as objects",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}@{%- for c in m.tool_calls or [] %}\
         {{- c.function.name }}{%- for k, v in c.function.arguments | items %}{{- k ~ '=' ~ v }}{%- endfor %}{%- endfor %}{%- endfor %}",
    ),
    (
        "arguments as text",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}@{%- for c in m.tool_calls or [] %}\
         {{- c.function.name + c.function.arguments }}{%- endfor %}{%- endfor %}",
    ),
    (
        "one call at a time, without text next to the call",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}{%- if 'tool_calls' in m %}\
         {%- if m.tool_calls | length != 1 %}{{- raise_exception('one call') }}{%- endif %}{{- m.tool_calls[0].function | tojson }}\
         {%- else %}@{%- endif %}{%- endfor %}",
    ),
    (
        "only the first call is rendered",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}@{%- if m.tool_calls %}\
         {{- m.tool_calls[0].function | tojson }}{%- endif %}{%- endfor %}",
    ),
    (
        "ids of nine characters",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}@{%- for c in m.tool_calls or [] %}\
         {%- if c.id is not defined or c.id | length != 9 %}{{- raise_exception('ids') }}{%- endif %}\
         {{- '[' ~ c.id ~ ']' ~ c.function | tojson }}{%- endfor %}{%- if m.role == 'tool' %}\
         {%- if m.tool_call_id is not defined or m.tool_call_id | length != 9 %}{{- raise_exception('ids') }}{%- endif %}\
         {{- '[' ~ m.tool_call_id ~ ']' }}{%- endif %}{%- endfor %}",
    ),
    (
        "calls are left out",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}\
         {%- for m in messages %}{%- if m.role in ['user', 'assistant'] %}@{%- endif %}{%- endfor %}",
    ),
    (
        "the system message is in the user message that ends the conversation",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}\
         {%- for m in messages %}{%- if m.role == 'user' and loop.last and messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}\
         {%- if m.role != 'system' %}@{%- for c in m.tool_calls or [] %}{{- c.function | tojson }}{%- endfor %}{%- endif %}{%- endfor %}",
    ),
    (
        "arguments as text, some results raise",
        "{%- if tools %}{{- tools | tojson }}{%- endif %}{%- for m in messages %}\
         {%- if m.role == 'tool' and 'refused' in m.content %}{{- raise_exception('result') }}{%- endif %}@\
         {%- for c in m.tool_calls or [] %}{{- c.function.name + c.function.arguments }}{%- endfor %}{%- endfor %}",
    ),
];

fn tools() -> [Value; 1] {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    [
        json!({"type": "function", "function": {"name": "weather", "description": "weather_now", "parameters": parameters}}),
    ]
}

/// The prompt of a conversation.
fn prompt(
    template: &ChatTemplate,
    source: &str,
    messages: &Value,
    tools: &[Value],
) -> Result<String, TemplateError> {
    let tokenizer = Vocabulary::of_bytes().into_tokenizer();
    prompt_for(&tokenizer, template, source, messages, tools)
}

/// The prompt of a conversation for this vocabulary.
fn prompt_for(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    source: &str,
    messages: &Value,
    tools: &[Value],
) -> Result<String, TemplateError> {
    let answers = AnswerFormat::detect(source).with_json_fallback();
    let generic = GenericTools {
        support: template.capabilities(answers).tools,
        family: answers.tools,
        tools,
        once: false,
    };
    let messages: Vec<Message> = serde_json::from_value(messages.clone()).expect("messages");
    let escaped = messages
        .into_iter()
        .map(|message| message.with_escaped_text(tokenizer));
    let messages = template.fit_messages(escaped.collect(), &generic, tokenizer);
    let render = |messages: &[Message]| {
        template.render(&RenderInput {
            messages,
            tools,
            add_generation_prompt: true,
            ..RenderInput::default()
        })
    };
    render(&messages).or_else(|_| render(&ChatTemplate::plain_turns(messages, answers.tools)))
}

/// Texts of a conversation.
fn texts(conversation: &Value) -> Vec<String> {
    let written = conversation.to_string();
    let starts = written
        .match_indices("T-")
        .map(|(at, _)| written[at..at + 3].to_owned());
    starts.collect()
}

/// What is wrong with the prompts of a template.
fn faults(label: &str, source: &str) -> Vec<String> {
    let template = ChatTemplate::new(source, "<s>", "</s>").expect("a template");
    let rows = conversations().into_iter().map(|row| (row, false));
    let rows = rows.chain(calling_conversations().into_iter().map(|row| (row, true)));
    let mut faults = Vec::new();
    for ((name, conversation), calls) in rows {
        let tools = tools();
        let tools = if calls { &tools[..] } else { &[] };
        match prompt(&template, source, &conversation, tools) {
            Ok(prompt) => {
                let lost = texts(&conversation);
                let lost: Vec<_> = lost.iter().filter(|text| !prompt.contains(*text)).collect();
                if calls && !prompt.contains("weather_now") {
                    faults.push(format!("{label}: {name}: no tools in {prompt:?}"));
                }
                if !lost.is_empty() {
                    faults.push(format!("{label}: {name}: no {lost:?} in {prompt:?}"));
                }
            }
            Err(error) => faults.push(format!("{label}: {name}: {error}")),
        }
    }
    faults
}

fn own_source(source: &str) -> String {
    source.replace('@', TURN)
}

#[test]
fn no_template_of_a_habit_loses_text_or_refuses() {
    let faults: Vec<_> = TEMPLATES
        .iter()
        .flat_map(|(label, source)| faults(label, &own_source(source)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_public_template_loses_text_or_refuses() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/templates");
    let Ok(files) = std::fs::read_dir(&folder) else {
        note_skipped_test("there is no ../shared/testdata/templates beside the project");
        return;
    };
    let mut all = Vec::new();
    for file in files {
        let path = file.expect("a file").path();
        let source = std::fs::read_to_string(&path).expect("a template");
        all.extend(faults(
            &path.file_name().expect("a name").to_string_lossy(),
            &source,
        ));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Template's label, conversation, prompt.
fn placed_turns() -> Vec<(&'static str, Value, &'static str)> {
    let m = |role: &str, text: &str| json!({"role": role, "content": text});
    vec![
        (
            "other roles are left out",
            json!([m("developer", "A"), m("user", "B")]),
            "<system>A</><user>B</>",
        ),
        (
            "a system message comes first, other roles raise",
            json!([
                m("system", "A"),
                m("developer", "B"),
                m("user", "C"),
                m("assistant", "D"),
                m("system", "E"),
                m("user", "F")
            ]),
            "<system>A\n\nB</><user>C</><assistant>D</><user>E\n\nF</>",
        ),
        (
            "only the first system message is rendered",
            json!([m("user", "A"), m("system", "B")]),
            "<user>A\n\nB</>",
        ),
        (
            "no system role, strict turns",
            json!([
                m("system", "A"),
                m("user", "B"),
                m("user", "C"),
                m("assistant", "D"),
                m("assistant", "E"),
                m("user", "F")
            ]),
            "<user>A\n\nB\n\nC</><assistant>D\n\nE</><user>F</>",
        ),
        (
            "no system role, strict turns",
            json!([m("assistant", "A"), m("user", "B")]),
            "<user></><assistant>A</><user>B</>",
        ),
        (
            "a user message is demanded",
            json!([
                m("system", "A"),
                m("assistant", "B"),
                m("system", "C"),
                m("user", "D")
            ]),
            "<system>A</><assistant>B</><system>C</><user>D</>",
        ),
    ]
}

#[test]
fn turns_go_where_a_reader_expects() {
    for (label, messages, want) in placed_turns() {
        let (_, source) = TEMPLATES
            .iter()
            .find(|(name, _)| *name == label)
            .expect("a template");
        let source = own_source(source);
        let template = ChatTemplate::new(&source, "<s>", "</s>").expect("a template");
        assert_eq!(
            prompt(&template, &source, &messages, &[]).as_deref(),
            Ok(want),
            "{label}"
        );
    }
}

/// A conversation that the template renders as sent has the prompt of the template alone.
#[test]
fn well_formed_conversations_stay_as_sent() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "b"}}});
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]);
    for label in [
        "calls in tags, arguments as objects",
        "only the first call is rendered",
    ] {
        let (_, source) = TEMPLATES
            .iter()
            .find(|(name, _)| *name == label)
            .expect("a template");
        let source = own_source(source);
        let template = ChatTemplate::new(&source, "<s>", "</s>").expect("a template");
        let sent: Vec<Message> = serde_json::from_value(messages.clone()).expect("messages");
        let alone = template.render(&RenderInput {
            messages: &sent,
            tools: &tools(),
            add_generation_prompt: true,
            ..RenderInput::default()
        });
        assert_eq!(
            prompt(&template, &source, &messages, &tools()),
            alone,
            "{label}"
        );
    }
}

#[test]
fn call_and_result_have_one_id() {
    let (label, source) = TEMPLATES[9];
    assert_eq!(label, "ids of nine characters");
    let source = own_source(source);
    let template = ChatTemplate::new(&source, "<s>", "</s>").expect("a template");
    for (name, conversation) in calling_conversations() {
        let prompt = prompt(&template, &source, &conversation, &[]).expect(name);
        let ids = prompt.split('[').filter_map(|rest| rest.get(..9));
        let ids: Vec<&str> = ids
            .filter(|id| id.chars().all(char::is_alphanumeric))
            .collect();
        let calls = prompt.matches("\"name\":").count();
        if calls == 1 {
            assert_eq!(
                (ids.len(), ids.first()),
                (2, ids.last()),
                "{name}: {prompt}"
            );
        }
    }
}

#[test]
fn merged_messages_keep_their_reasoning() {
    let (label, source) = TEMPLATES[3];
    assert_eq!(label, "no system role, strict turns");
    let source = own_source(source);
    for name in ["reasoning_content", "reasoning", "thinking"] {
        let shown = format!("(m.{name} or '') ~ (m.content or '')");
        let source = source.replace("(m.content or '')", &shown);
        let template = ChatTemplate::new(&source, "<s>", "</s>").expect("a template");
        let answer = |reasoning: Option<&str>, text: &str| {
            let mut message = said("assistant", text);
            message[name] = json!(reasoning);
            message
        };
        for (first, second, want) in [
            (Some("R"), Some("S"), "R\n\nS"),
            (None, Some("S"), "S"),
            (Some(""), Some("S"), "S"),
            (Some("R"), None, "R"),
        ] {
            let messages = json!([said("user", "U"), answer(first, "A"), answer(second, "B")]);
            let prompt = prompt(&template, &source, &messages, &[]).expect(name);
            let want = format!("<user>U</><assistant>{want}A\n\nB</>");
            assert_eq!(prompt, want, "{name}: {first:?}, {second:?}");
        }
    }
}
