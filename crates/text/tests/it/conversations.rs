//! Conversations as clients send them, over templates that render only some: no text is lost, and no template refuses.

mod control_texts;

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
        "one call at a time, without text beside the call",
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

/// Conversations whose texts begin with `T-`: each must be in the prompt.
fn conversations() -> Vec<(&'static str, Value)> {
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

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn with_id(mut message: Value, name: &str, id: Option<&str>) -> Value {
    if let Some(id) = id {
        message[name] = json!(id);
    }
    message
}

fn call(arguments: &Value, id: Option<&str>) -> Value {
    let function = json!({"name": "weather", "arguments": arguments});
    with_id(json!({"type": "function", "function": function}), "id", id)
}

fn calls(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

fn result(text: &str, id: Option<&str>) -> Value {
    with_id(said("tool", text), "tool_call_id", id)
}

/// Conversations with tool calls.
fn calling_conversations() -> Vec<(&'static str, Value)> {
    let mut rows = argument_forms();
    rows.extend(call_orders());
    rows.extend(texts_beside_calls());
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
fn texts_beside_calls() -> Vec<(&'static str, Value)> {
    let beside = |text: Value, called: &[Value]| {
        let mut message = calls(called);
        message["content"] = text;
        message
    };
    let one = |text: Value| beside(text, &[call(&json!({"city": "T-c"}), Some("call_1"))]);
    let two = [
        call(&json!({"city": "T-c"}), Some("call_1")),
        call(&json!({"city": "T-d"}), Some("call_2")),
    ];
    vec![
        (
            "text beside a call",
            json!([
                said("user", "T-a"),
                one(json!("T-b")),
                result("T-d", Some("call_1"))
            ]),
        ),
        (
            "text beside two calls, an answer, and a call again",
            json!([
                said("user", "T-a"),
                beside(json!("T-b"), &two),
                result("T-e", Some("call_1")),
                result("T-f", Some("call_2")),
                said("assistant", "T-g"),
                said("user", "T-h"),
                one(json!("T-i")),
                result("T-j", Some("call_1")),
            ]),
        ),
        (
            "text beside calls in a row",
            json!([
                said("user", "T-a"),
                one(json!("T-b")),
                result("T-d", Some("call_1")),
                one(json!("T-e")),
                result("T-f", Some("call_1")),
            ]),
        ),
        (
            "null beside a call",
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
