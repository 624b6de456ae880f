//! Valid and invalid requests.

use super::request;
use crate::request_parser::tests::parsed_request;
use crate::shared::error_response::status_code;
use generate::error::ApiError;
use generate::request::{GenerateRequest, Prompt, PromptPiece};
use serde_json::{Value, json};
use text::Message;

fn chat(body: &Value) -> Result<GenerateRequest, ApiError> {
    parsed_request(request::parse_chat, body.to_string().as_bytes())
}

fn generate(body: &Value) -> Result<GenerateRequest, ApiError> {
    parsed_request(request::parse_generate, body.to_string().as_bytes())
}

fn fields(error: &ApiError) -> Vec<&str> {
    let mut fields: Vec<_> = error.problems.iter().map(|p| p.field.as_str()).collect();
    fields.sort_unstable();
    fields
}

fn messages(request: &GenerateRequest) -> &[Message] {
    match &request.prompts[..] {
        [Prompt::Conversation { messages, .. }] => messages,
        [Prompt::Continued { then, .. }] => match &**then {
            Prompt::Conversation { messages, .. } => messages,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn absent_fields_have_defaults() {
    let request = chat(&json!({"messages": [{"role": "user", "content": "hi"}]})).unwrap();
    assert!(request.stream_options.stream && !request.stream_options.return_context);
    let (params, sampling) = (&request.params, &request.params.sampling);
    assert_eq!((params.max_tokens, params.seed), (None, None));
    assert_eq!(
        (sampling.temperature, sampling.top_k, sampling.top_p),
        (1.0, 0, 1.0),
        "the model's defaults, of which there are none here"
    );
    assert_eq!(
        (sampling.repetition_penalty, sampling.penalty_window),
        (1.0, 64)
    );
    assert!(!sampling.logprobs);
    let request = generate(&json!({"prompt": "hi"})).unwrap();
    assert!(request.stream_options.stream && request.stream_options.return_context);
}

#[test]
fn options_are_parsed() {
    let options = json!({"temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 7, "num_predict": 9,
        "stop": ["a", "b"], "repeat_penalty": 1.5, "repeat_last_n": 16, "presence_penalty": 0.5,
        "frequency_penalty": 0.25, "typical_p": 0.7, "num_ctx": 4096, "num_gpu": 1, "num_thread": 4,
        "mirostat": 0, "unheard_of": {}});
    let body = json!({"messages": [], "options": options, "stream": false, "logprobs": true, "top_logprobs": 2,
        "keep_alive": "5m", "think": null, "format": "", "tools": []});
    let request = chat(&body).unwrap();
    assert!(!request.stream_options.stream);
    let params = &request.params;
    assert_eq!((params.max_tokens, params.seed), (Some(9), Some(7)));
    assert_eq!(params.stops, ["a", "b"]);
    let sampling = &params.sampling;
    let got = (sampling.temperature, sampling.top_k, sampling.top_p);
    assert_eq!(got, (0.0, 3, 0.5));
    assert_eq!((sampling.min_p, sampling.typical_p), (0.1, 0.7));
    let penalties = (sampling.presence_penalty, sampling.frequency_penalty);
    assert_eq!(penalties, (0.5, 0.25));
    let repetition = (sampling.repetition_penalty, sampling.penalty_window);
    assert_eq!(repetition, (1.5, 16));
    assert_eq!((sampling.logprobs, sampling.top_logprobs), (true, 2));
}

#[test]
fn format_is_parsed_to_response_format() {
    let parse_format = |format: Value| {
        generate(&json!({"prompt": "hi", "format": format}))
            .unwrap()
            .params
            .response_format
    };
    assert_eq!(parse_format(json!("")), None);
    assert_eq!(
        parse_format(json!("json")),
        Some(generate::request::any_object("format"))
    );
    let schema = json!({"type": "boolean"});
    let source = text::GrammarSource::JsonSchema(schema.clone());
    let field = "format".to_owned();
    assert_eq!(
        parse_format(schema),
        Some(generate::request::ResponseFormat { source, field })
    );
}

#[test]
fn special_option_values_have_ollamas_meaning() {
    let of = |options: Value| {
        let body = json!({"prompt": "hi", "options": options});
        generate(&body).unwrap().params
    };
    for endless in [-1, -2, 0] {
        assert_eq!(of(json!({"num_predict": endless})).max_tokens, None);
    }
    let more = json!({"prompt": "hi", "options": {"min_tokens": 4, "num_predict": 3}});
    let error = generate(&more).expect_err("more tokens than may be generated");
    assert_eq!(fields(&error), ["options.min_tokens"]);
    assert_eq!(of(json!({"seed": -1})).seed, None, "a fresh one");
    assert_eq!(of(json!({"seed": 0})).seed, Some(0));
    let all = of(json!({"repeat_last_n": -1})).sampling;
    assert_eq!((all.penalty_window, all.repetition_penalty), (0, 1.0));
    let none = json!({"repeat_last_n": 0, "repeat_penalty": 2, "presence_penalty": 1, "frequency_penalty": 1});
    let none = of(none).sampling;
    let penalties = (none.presence_penalty, none.frequency_penalty);
    assert_eq!((none.repetition_penalty, penalties), (1.0, (0.0, 0.0)));
    assert_eq!(of(json!({"top_p": 0})).sampling.top_k, 1, "the likeliest");
    assert_eq!(of(json!({"top_k": 0})).sampling.top_k, 0, "all");
}

#[test]
fn messages_become_those_of_chat_templates() {
    let body = json!({"messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "images": []},
        {"role": "assistant", "thinking": "hm", "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1}}},
            {"id": "call_1", "function": {"name": "g"}},
            {"function": {"name": "h", "arguments": "{\"x\": "}},
        ]},
        {"role": "tool", "content": "1", "tool_name": "f"},
    ]});
    let request = chat(&body).unwrap();
    let messages = messages(&request);
    let roles: Vec<_> = messages.iter().map(|m| m.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert_eq!(messages[2].content, "");
    let rest = json!({"reasoning_content": "hm", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"type": "function", "id": "call_1", "function": {"name": "g", "arguments": {}}},
        {"type": "function", "function": {"name": "h", "arguments": "{\"x\": "}},
    ]});
    assert_eq!(Value::Object(messages[2].rest.clone()), rest);
    assert_eq!(messages[3].rest["name"], "f");
}

#[test]
fn prompt_with_system_and_context_is_parsed() {
    let body = json!({"prompt": "p", "system": "s", "context": [1, 2, 299]});
    let request = generate(&body).unwrap();
    let turns: Vec<_> = messages(&request)
        .iter()
        .map(|m| (m.role.as_str(), m.content.as_str().unwrap()))
        .collect();
    assert_eq!(turns, [("system", "s"), ("user", "p")]);
    assert!(
        matches!(&request.prompts[..], [Prompt::Continued { context, .. }] if *context == [1, 2, 299])
    );
    let request = generate(&json!({"prompt": "p", "raw": true})).unwrap();
    assert_eq!(request.prompts, [Prompt::Text("p".to_owned())]);
    assert!(!request.stream_options.return_context);
    let body = json!({"prompt": "p", "template": "<u>{{ .Prompt }}</u>{{ .Response }}!"});
    let pieces = vec![
        PromptPiece::Template("<u>".to_owned()),
        PromptPiece::User("p".into()),
        PromptPiece::Template("</u>".to_owned()),
    ];
    let then = Box::new(Prompt::Pieces(pieces));
    let context = Vec::new();
    let prompts = generate(&body).unwrap().prompts;
    assert_eq!(prompts, [Prompt::Continued { context, then }]);
}

#[test]
fn think_sets_template_variables() {
    let kwargs = |think: Value| {
        let body = json!({"messages": [{"role": "user"}], "think": think});
        match chat(&body).unwrap().prompts.remove(0) {
            Prompt::Conversation { kwargs, .. } => Value::Object(kwargs),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(kwargs(Value::Null), json!({}));
    let off = json!({"enable_thinking": false, "thinking": false});
    assert_eq!(kwargs(json!(false)), off);
    let high = json!({"enable_thinking": true, "thinking": true, "reasoning_effort": "high"});
    assert_eq!(kwargs(json!("high")), high);
}

#[test]
fn all_invalid_fields_are_reported_at_once() {
    let body = json!({"messages": [{"role": "boss", "content": 7, "images": ["x"]}, 3], "stream": "yes",
        "format": 7, "tools": [{}], "think": "hard", "keep_alive": "soon", "images": ["x"],
        "options": {"temperature": 9, "num_predict": -3, "stop": [""], "repeat_last_n": 0.5, "seed": "x"}});
    let want = [
        "format",
        "images",
        "keep_alive",
        "messages[0].content",
        "messages[0].images[0]",
        "messages[0].role",
        "messages[1]",
        "options.num_predict",
        "options.repeat_last_n",
        "options.seed",
        "options.stop[0]",
        "options.temperature",
        "stream",
        "think",
        "tools[0].function",
    ];
    assert_eq!(fields(&chat(&body).expect_err("all wrong")), want);
}

#[test]
fn invalid_field_is_named() {
    let rows = [
        ("no suffix", json!({"suffix": 7}), "suffix"),
        (
            "system of a gap",
            json!({"suffix": "x", "system": "y"}),
            "system",
        ),
        ("a raw gap", json!({"suffix": "x", "raw": true}), "raw"),
        ("no option", json!({"options": 7}), "options"),
        ("no format", json!({"format": "xml"}), "format"),
        ("no id", json!({"context": [300]}), "context[0]"),
        ("raw", json!({"raw": true, "system": "s"}), "system"),
        ("raw", json!({"raw": true, "context": [1]}), "context"),
        (
            "a loop",
            json!({"template": "{{ range .Messages }}"}),
            "template",
        ),
        ("a number", json!({"system": 7}), "system"),
        ("alone", json!({"top_logprobs": 2}), "top_logprobs"),
    ];
    for (label, mut body, field) in rows {
        body["prompt"] = json!("hi");
        let error = generate(&body).expect_err(label);
        assert_eq!(fields(&error), [field], "{label}");
        assert_eq!(status_code(error.kind).as_u16(), 400);
    }
}

/// An image of four bytes.
const IMAGE: &str = "AAAAAA==";

#[test]
fn images_of_a_message_stand_before_its_text_or_where_it_says() {
    let image = |number: usize| json!({"type": "image", "image": number});
    let text = |text: &str| json!({"type": "text", "text": text});
    let body = json!({"messages": [
        {"role": "user", "content": "u", "images": [IMAGE]},
        {"role": "user", "content": "a[img-1]b[img-5]", "images": [IMAGE, IMAGE]},
        {"role": "tool", "content": "", "images": [IMAGE]},
        {"role": "user", "content": "[img-0]", "images": []},
    ]});
    let parsed = chat(&body).expect("a request");
    let [Prompt::Conversation { messages, .. }] = &parsed.prompts[..] else {
        panic!("{:?}", parsed.prompts)
    };
    let contents: Vec<&Value> = messages.iter().map(|message| &message.content).collect();
    let want = [
        json!([image(0), text("u")]),
        json!([image(1), text("a"), image(2), text("b[img-5]")]),
        json!([image(3)]),
        json!("[img-0]"),
    ];
    assert_eq!(contents, want.iter().collect::<Vec<_>>());
    let paths: Vec<&str> = parsed.images.iter().map(|image| &*image.path).collect();
    let want = [
        "messages[0].images[0]",
        "messages[1].images[0]",
        "messages[1].images[1]",
        "messages[2].images[0]",
    ];
    assert_eq!(paths, want);
}

#[test]
fn images_of_a_prompt_are_in_its_turn_in_its_template_or_in_the_raw_text() {
    use generate::request::PromptPiece::{Image, Template, User};
    let pieces = |over: Value| {
        let mut body = json!({"prompt": "a[img-0]b", "images": [IMAGE]});
        for (name, value) in over.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let parsed = generate(&body).expect("a request");
        assert!(
            !parsed.stream_options.return_context,
            "ids of images say nothing"
        );
        assert_eq!(parsed.images.len(), 1);
        parsed.prompts.into_iter().next().expect("a prompt")
    };
    let raw = vec![Template("a".into()), Image(0), Template("b".into())];
    assert_eq!(pieces(json!({"raw": true})), Prompt::Pieces(raw));
    let then = |prompt| Prompt::Continued {
        context: Vec::new(),
        then: Box::new(Prompt::Pieces(prompt)),
    };
    let of_template = |over: Value| {
        let mut all = over;
        all["template"] = json!("<u>{{ .Prompt }}</u>");
        pieces(all)
    };
    let (open, close) = (Template("<u>".into()), Template("</u>".into()));
    let want = vec![
        open.clone(),
        User("a".into()),
        Image(0),
        User("b".into()),
        close.clone(),
    ];
    assert_eq!(of_template(json!({})), then(want));
    let want = vec![open.clone(), Image(0), User("c".into()), close.clone()];
    assert_eq!(of_template(json!({"prompt": "c"})), then(want));
    let want = vec![Image(0), open, close];
    assert_eq!(of_template(json!({"prompt": ""})), then(want));
    let Prompt::Continued { then, .. } = pieces(json!({"system": "s"})) else {
        panic!("no turn")
    };
    let Prompt::Conversation { messages, .. } = *then else {
        panic!("no conversation")
    };
    let want = json!([{"type": "text", "text": "a"}, {"type": "image", "image": 0}, {"type": "text", "text": "b"}]);
    assert_eq!(messages[1].content, want);
}
