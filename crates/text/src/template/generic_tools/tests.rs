//! Prompts for models without tool support, whose example calls the family's parser reads.
//!
//! Promise (Structured output): where a chat template does not support tools, definitions, earlier calls and results
//! are rendered into the conversation in the parser's form: 13 families, every API, streamed and non-streaming; a
//! model's description says which, and whether it reasons.
//! Also held by `text/src/template/capabilities.rs`, `server/tests/it/speech/generic.rs`,
//! `millrace/tests/it/models.rs :: tool_support_is_detected_from_templates`.

use super::*;
use crate::tokenizer::tests::bpe_spec;
use crate::{
    AnswerFormat, AnswerParser, AnswerParts, ChatTemplate, Part, ReasoningFamily, RenderInput,
    ToolSchemas,
};
use std::sync::Arc;

fn tools() -> Vec<Value> {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let weather =
        json!({"name": "weather", "description": "The weather", "parameters": parameters});
    vec![
        json!({"type": "function", "function": weather}),
        json!({"type": "function", "function": {"name": "now"}}),
    ]
}

fn told(family: ToolFamily, place: GenericPlace, once: bool, messages: &Value) -> Vec<Message> {
    let tools = tools();
    let generic = GenericTools {
        support: ToolSupport::Generic(place),
        family,
        tools: &tools,
        once,
    };
    let messages: Vec<Message> = serde_json::from_value(messages.clone()).expect("messages");
    generic.add_tools(
        messages,
        &Tokenizer::from_vocab(bpe_spec()).expect("a tokenizer"),
    )
}

/// The calls in an answer that comes in these pieces.
fn read<'t>(family: ToolFamily, pieces: impl IntoIterator<Item = &'t str>) -> Vec<(String, Value)> {
    let format = AnswerFormat {
        tools: family,
        reasoning: ReasoningFamily::None,
    };
    let schemas = Arc::new(ToolSchemas::new(&tools()));
    let mut parser = AnswerParser::new(format, Some(&schemas), false);
    let (mut calls, mut parts) = (Vec::<(String, String)>::new(), AnswerParts::default());
    for piece in pieces {
        parser.push(piece, &mut parts);
    }
    parser.finish(&mut parts);
    parts.drain_into(|part| match part {
        Part::CallStart { name, .. } => calls.push((name.to_owned(), String::new())),
        Part::CallArguments { fragment, .. } => {
            calls.last_mut().expect("an open call").1.push_str(fragment);
        }
        _ => {}
    });
    let read = calls
        .into_iter()
        .map(|(name, arguments)| (name, serde_json::from_str(&arguments).expect("arguments")));
    read.collect()
}

#[test]
fn shown_calls_are_parsed() {
    let weather = json!({"city": "Bad \"Ems\"\nsouth", "days": 3});
    let (weather, none) = (weather.as_object().expect("an object"), Map::new());
    for (name, family) in ToolFamily::all() {
        if matches!(family, ToolFamily::None | ToolFamily::Harmony) {
            continue;
        }
        for calls in [
            &[("weather", weather)][..],
            &[("weather", weather), ("now", &none)],
        ] {
            let written = written_calls(family, calls);
            let want: Vec<(String, Value)> = calls
                .iter()
                .map(|(name, arguments)| ((*name).to_owned(), Value::Object((*arguments).clone())))
                .collect();
            // Every cut into two pieces, and the pieces of every size.
            for at in (0..=written.len()).filter(|at| written.is_char_boundary(*at)) {
                let (first, second) = written.split_at(at);
                let got = read(family, [first, second]);
                assert_eq!(got, want, "{name}, cut at {at}: {written}");
                let letters: Vec<char> = written.chars().collect();
                let pieces = letters
                    .chunks(at.max(1))
                    .map(|piece| piece.iter().collect());
                let pieces: Vec<String> = pieces.collect();
                let got = read(family, pieces.iter().map(String::as_str));
                assert_eq!(got, want, "{name}, in pieces of {at}: {written}");
            }
        }
    }
}

#[test]
fn definitions_are_inserted_into_first_rendered_message() {
    let user = json!({"role": "user", "content": "hi"});
    let system = json!({"role": "system", "content": "Be brief."});
    for (label, place, messages, roles, begins) in [
        (
            "a message of their own",
            GenericPlace::System,
            json!([user]),
            &["system", "user"][..],
            "You can call",
        ),
        (
            "after what is there",
            GenericPlace::System,
            json!([system, user]),
            &["system", "user"],
            "Be brief.\n\nYou can call",
        ),
        (
            "the user's",
            GenericPlace::User,
            json!([user]),
            &["user"],
            "You can call",
        ),
    ] {
        let told = told(ToolFamily::Json, place, false, &messages);
        let said: Vec<&str> = told.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(said, roles, "{label}");
        let first = told[0].content.as_str().expect("text");
        assert!(first.starts_with(begins), "{label}: {first}");
        assert!(
            first.contains(
                "{\"name\": \"weather\", \"description\": \"The weather\", \"parameters\": {"
            ),
            "{first}"
        );
        assert!(
            first.contains("\n{\"name\": \"FUNCTION\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}"),
            "{first}"
        );
        assert!(first.contains("To call several"), "{first}");
    }
    let once = told(ToolFamily::Hermes, GenericPlace::User, true, &json!([user]));
    let once = once[0].content.as_str().expect("text");
    assert!(
        once.contains("<tool_call>\n{\"name\": \"FUNCTION\"") && !once.contains("several"),
        "{once}"
    );
    assert!(once.ends_with("\n\nhi"), "{once}");
}

#[test]
fn earlier_calls_and_results_become_alternating_turns() {
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [
            {"id": "a", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
            {"id": "b", "function": {"name": "now", "arguments": {}}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "{\"sky\": \"clear\"}"},
        {"role": "tool", "name": "now", "content": "noon"},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": "Sunny."},
    ]);
    let told = told(ToolFamily::Json, GenericPlace::System, false, &messages);
    let said: Vec<(&str, &str)> = told[1..]
        .iter()
        .map(|message| {
            (
                message.role.as_str(),
                message.content.as_str().expect("text"),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("user", "Weather?"),
            (
                "assistant",
                "Let me see.\n\n[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"now\", \"arguments\": {}}]"
            ),
            (
                "user",
                "{\"tool_response\": {\"function\": \"weather\", \"result\": \"{\\\"sky\\\": \\\"clear\\\"}\"}}\n\n\
                 {\"tool_response\": {\"function\": \"now\", \"result\": \"noon\"}}\n\nWell?"
            ),
            ("assistant", "Sunny."),
        ]
    );
    assert!(
        told.iter()
            .all(|message| !message.rest.contains_key("tool_calls"))
    );
}

#[test]
fn phi4_tools_are_a_field_of_the_system_message() {
    let source = "{% for m in messages %}{{ m.content }}{% if 'tools' in m %}<|tool|>{{ m['tools'] }}{% endif %}{% endfor %}";
    let template = ChatTemplate::new(source, "", "").expect("a template");
    let tools = tools();
    let generic = GenericTools {
        support: ToolSupport::SystemMessage,
        family: ToolFamily::Phi4,
        tools: &tools,
        once: false,
    };
    let user = serde_json::from_value(json!({"role": "user", "content": "hi"})).expect("a message");
    let told = generic.add_tools(
        vec![user],
        &Tokenizer::from_vocab(bpe_spec()).expect("a tokenizer"),
    );
    let input = RenderInput {
        messages: &told,
        ..RenderInput::default()
    };
    let text = template.render(&input).expect("a prompt");
    assert!(
        text.starts_with("<|tool|>[{\"name\": \"weather\"") && text.ends_with("hi"),
        "{text}"
    );
}

#[test]
fn control_tokens_in_definitions_are_escaped() {
    let tokenizer = Tokenizer::from_vocab(bpe_spec()).expect("a tokenizer");
    let control = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_control(id));
    let text = control
        .filter_map(|id| tokenizer.piece(id))
        .find(|text| text.len() > 2);
    let text = text.expect("a control token").to_owned();
    let id = tokenizer.id_of(&text).expect("it is a token");
    let tools = [json!({"function": {"name": "f", "description": text}})];
    let generic = GenericTools {
        support: ToolSupport::Generic(GenericPlace::System),
        family: ToolFamily::Json,
        tools: &tools,
        once: true,
    };
    let told = generic.add_tools(Vec::new(), &tokenizer);
    let said = told[0].content.as_str().expect("text");
    let ids = tokenizer.encode_rendered(said).expect("ids");
    assert!(said.contains(&text) && !ids.contains(&id), "{said}");
}
