//! A request with images in each wire protocol: the messages or pieces for the prompt, and the paths of the images.

mod unread_members;

use super::*;
use crate::derived_model::RequestedModel;
use generate::model_handle::NO_ADAPTERS;
use generate::request::{GenerateRequest, PromptPiece};
use generate::sampling::SamplingDefaults;
use serde_json::{Value, json};
use text::Capabilities;

/// A file of three bytes, which no parser looks at.
const URL: &str = "data:image/png;base64,AAAA";
const DATA: &str = "AAAA";

fn parse(
    protocol: Protocol,
    body: &Value,
    takes_images: bool,
) -> Result<GenerateRequest, ApiError> {
    let model = RequestedModel {
        takes_images,
        fetches_images: false,
        id: "tiny",
        derived: None,
        adapters: &NO_ADAPTERS,
        sampling: SamplingDefaults::default(),
        stops: &[],
        capabilities: Capabilities::default(),
        vocab_size: 300,
    };
    let body = body.to_string();
    let none = |_: &str| Err(ApiError::bad_request("not_found", "nothing is stored"));
    let parsed = protocol.parse(Fields::parse(body.as_bytes())?, model, &none);
    parsed.map(|parsed| parsed.request)
}

fn image(number: usize) -> Value {
    json!({"type": "image", "image": number})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Contents of the messages of the only prompt.
fn contents(request: &GenerateRequest) -> Vec<Value> {
    fn messages(prompt: &Prompt) -> Vec<Value> {
        match prompt {
            Prompt::Conversation { messages, .. } => messages
                .iter()
                .map(|message| message.content.clone())
                .collect(),
            Prompt::Continued { then, .. } => messages(then),
            other => panic!("{other:?}"),
        }
    }
    messages(&request.prompts[0])
}

fn paths(request: &GenerateRequest) -> Vec<&str> {
    request.images.iter().map(|image| &*image.path).collect()
}

/// Promise (APIs): images come in the parts, blocks and fields that each API has for them, in results of tools as well.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn images_are_read_where_each_protocol_has_them() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let of_url = json!({"type": "image_url", "image_url": {"url": URL, "detail": "low"}});
    let source = json!({"type": "base64", "media_type": "image/png", "data": DATA});
    let rows = [
        (
            Protocol::Chat,
            json!({"messages": [
                {"role": "system", "content": ["s", of_url]},
                {"role": "user", "content": [of_url, text("a"), of_url, text("b"), text("c")]},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": [of_url]},
            ]}),
            vec![
                json!([text("s"), image(0)]),
                json!([image(1), text("a"), image(2), text("b"), text("c")]),
                json!(""),
                json!([image(3)]),
            ],
            vec![
                "messages[0].content[1]",
                "messages[1].content[0]",
                "messages[1].content[2]",
                "messages[3].content[0]",
            ],
        ),
        (
            Protocol::Job,
            json!({"messages": [{"role": "user", "content": [of_url, text("a")]}]}),
            vec![json!([image(0), text("a")])],
            vec!["messages[0].content[0]"],
        ),
        (
            Protocol::Responses,
            json!({"input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL, "detail": "high"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": URL}]},
                {"type": "computer_call", "call_id": "d", "action": {"type": "screenshot"}},
                {"type": "computer_call_output", "call_id": "d", "output": {"type": "computer_screenshot", "image_url": URL}},
                {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": [{"type": "input_image", "image_url": URL}]},
            ]}),
            vec![
                json!([text("a"), image(0)]),
                json!(""),
                json!([image(1)]),
                json!(""),
                json!([image(2)]),
                json!(""),
                json!([image(3)]),
            ],
            vec![
                "input[0].content[1]",
                "input[2].output[0]",
                "input[4].output",
                "input[5].output[0]",
            ],
        ),
        (
            Protocol::Messages,
            json!({"max_tokens": 9, "messages": [
                {"role": "user", "content": [text("a"), text("b"), {"type": "image", "source": source}, text("c")]},
                {"role": "user", "content": "d"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": source}, text("e")]}]},
                {"role": "assistant", "content": [
                    {"type": "mcp_tool_use", "id": "m", "name": "f", "input": {}},
                    {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "image", "source": source}]},
                ]},
                {"role": "user", "content": "g"},
            ]}),
            vec![
                json!([text("a\nb"), image(0), text("c"), text("d")]),
                json!(""),
                json!([image(1), text("e")]),
                json!(""),
                json!([image(2)]),
                json!("g"),
            ],
            vec![
                "messages[0].content[2]",
                "messages[3].content[0].content[0]",
                "messages[4].content[1].content[0]",
            ],
        ),
        (
            Protocol::OllamaChat,
            json!({"messages": [{"role": "user", "content": "a", "images": [DATA, URL]}]}),
            vec![json!([image(0), image(1), text("a")])],
            vec!["messages[0].images[0]", "messages[0].images[1]"],
        ),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "a", "images": [DATA]}),
            vec![json!([image(0), text("a")])],
            vec!["images[0]"],
        ),
        (
            Protocol::AiSdkUi,
            json!({"messages": [{"role": "user", "parts": [
                text("a"), {"type": "file", "mediaType": "image/png", "url": URL}, text("b"), {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,Yw=="},
            ]}]}),
            vec![json!([text("a"), image(0), text("b"), text("c")])],
            vec!["messages[0].parts[1]"],
        ),
        // Forms of earlier versions.
        (
            Protocol::AiSdkUi,
            json!({"messages": [{
                "role": "user", "parts": [{"type": "image", "image": URL}, text("a")],
                "experimental_attachments": [{"name": "b.png", "contentType": "image/png", "url": URL}],
            }]}),
            vec![json!([image(0), text("a"), image(1)])],
            vec![
                "messages[0].parts[0]",
                "messages[0].experimental_attachments[0]",
            ],
        ),
    ];
    for (protocol, body, want, places) in rows {
        let request = parse(protocol, &body, true)
            .unwrap_or_else(|error| panic!("{protocol:?}: {}", error.message));
        assert_eq!(contents(&request), want, "{protocol:?}");
        assert_eq!(paths(&request), places, "{protocol:?}");
        assert!(
            request.images.iter().all(|image| *image.bytes == [0, 0, 0]),
            "{protocol:?}"
        );
    }
}

/// A conversation of the AI SDK in which a tool has given this output.
fn of_tool_output(output: &Value) -> Value {
    let call = json!({"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}, "output": output});
    json!({"messages": [
        {"role": "user", "parts": [text("a")]},
        {"role": "assistant", "parts": [call]},
        {"role": "user", "parts": [text("b")]},
    ]})
}

/// Images in outputs of the AI SDK's tools are images: in its own parts, in lists, and in results of MCP.
#[test]
fn images_in_outputs_of_ui_tools_are_seen() {
    let both = json!([image(0), text("c")]);
    for (output, want, place) in [
        (
            json!({"type": "content", "value": [{"type": "media", "data": DATA, "mediaType": "image/png"}, text("c")]}),
            both.clone(),
            ".value[0]",
        ),
        (
            json!({"type": "content", "value": [{"type": "image-data", "data": DATA, "mediaType": "image/png"}, text("c"), {"type": "custom"}]}),
            both.clone(),
            ".value[0]",
        ),
        (
            json!({"type": "content", "value": [{"type": "file-data", "data": DATA, "mediaType": "Image/PNG"}, text("c")]}),
            both.clone(),
            ".value[0]",
        ),
        (
            json!({"content": [{"type": "image", "data": DATA, "mimeType": "image/png"}, text("c")], "isError": false}),
            both.clone(),
            ".content[0]",
        ),
        (
            json!([{"type": "image", "image": URL}, {"c": 1}]),
            json!([image(0), text("{\"c\":1}")]),
            "[0]",
        ),
    ] {
        let request = parse(Protocol::AiSdkUi, &of_tool_output(&output), true);
        let request = request.unwrap_or_else(|error| panic!("{output}: {}", error.message));
        assert_eq!(contents(&request)[2], want, "{output}");
        let place = format!("messages[1].parts[0].output{place}");
        assert_eq!(paths(&request), [place], "{output}");
        let request = parse(Protocol::AiSdkUi, &of_tool_output(&output), false);
        let request = request.expect("a request to a model that reads text only");
        let said = contents(&request)[2].to_string();
        assert!(said.contains("which this model cannot read"), "{said}");
    }
}

/// An output of an application's tool without the data of an image stays JSON, also where it has such names.
#[test]
fn outputs_of_ui_tools_without_images_are_text() {
    for output in [
        json!({"type": "text", "value": "a"}),
        json!([{"type": "image", "url": "https://a/b.png"}]),
        json!([{"type": "file", "name": "a.png"}]),
        json!({"content": [text("a")]}),
    ] {
        let request = parse(Protocol::AiSdkUi, &of_tool_output(&output), true);
        let said = &contents(&request.expect("a request"))[2];
        let said = said.as_str().expect("a text");
        assert_eq!(serde_json::from_str::<Value>(said).ok(), Some(output));
    }
}

/// Promise (Images): an image that is not read is a 400 with its field, never left out without a word.
#[test]
fn images_in_places_that_are_not_read_are_refused() {
    let screenshot = json!({"type": "computer_screenshot", "image_url": URL});
    let file = json!({"type": "file-id", "fileId": "f"});
    for (protocol, body, field) in [
        (
            Protocol::Chat,
            json!({"messages": [{"role": "user", "content": "a", "images": [DATA]}]}),
            "messages[0].images",
        ),
        (
            Protocol::AiSdkUi,
            json!({"messages": [{"role": "user", "parts": [{"type": "image_url", "image_url": URL}]}]}),
            "messages[0].parts[0].type",
        ),
        (
            Protocol::AiSdkUi,
            of_tool_output(&json!({"type": "content", "value": [file]})),
            "messages[1].parts[0].output.value[0]",
        ),
        (
            Protocol::Responses,
            json!({"input": [{"role": "user", "content": "a"}, {"type": "computer_call_output", "call_id": "c", "output": screenshot}]}),
            "input[1].call_id",
        ),
    ] {
        let error = parse(protocol, &body, true).expect_err("no image");
        assert_eq!(error.problems[0].field, field, "{}", error.message);
    }
}

#[test]
fn prompts_without_a_template_hold_pieces() {
    let text = |text: &str| PromptPiece::Template(text.to_owned());
    for (protocol, body, want) in [
        (
            Protocol::Job,
            json!({"prompt": "a[img-1]b", "images": [DATA, URL]}),
            vec![
                PromptPiece::Image(0),
                text("a"),
                PromptPiece::Image(1),
                text("b"),
            ],
        ),
        (
            Protocol::LlamaCompletion,
            json!({"prompt": {"prompt_string": "a<__media__>b", "multimodal_data": [DATA]}}),
            vec![text("a"), PromptPiece::Image(0), text("b")],
        ),
    ] {
        let request = parse(protocol, &body, true).expect("a request");
        assert_eq!(request.prompts, [Prompt::Pieces(want)], "{protocol:?}");
    }
    for (body, want) in [
        (
            json!({"prompt": [1], "images": [DATA]}),
            "images: needs a prompt that is a string",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a"}], "images": [DATA]}),
            "images: belongs to prompt: images are parts of messages",
        ),
    ] {
        let error = parse(Protocol::Job, &body, true).expect_err("no place");
        assert_eq!(error.message, want);
    }
    let suffix = json!({"prompt": "a", "suffix": "b", "images": [DATA]});
    let error = parse(Protocol::OllamaGenerate, &suffix, true).expect_err("a gap in text");
    assert_eq!(error.problems[0].field, "images");
}

#[test]
fn sound_video_and_files_are_refused_beside_images() {
    for part in [
        json!({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}),
        json!({"type": "video_url", "video_url": {"url": URL}}),
        json!({"type": "file", "file": {"filename": "f"}}),
    ] {
        let body = json!({"messages": [{"role": "user", "content": [part]}]});
        let error = parse(Protocol::Chat, &body, true).expect_err("no image");
        assert_eq!(error.problems[0].field, "messages[0].content[0]", "{part}");
        assert!(
            error.message.contains("not supported yet"),
            "{}",
            error.message
        );
    }
}

/// Images that no model gives are left out of earlier answers, and named.
#[test]
fn images_in_answers_are_left_out() {
    let of_url = json!({"type": "image_url", "image_url": URL});
    for (protocol, body, name) in [
        (
            Protocol::Chat,
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [of_url]}]}),
            "messages.image",
        ),
        (
            Protocol::AiSdkUi,
            json!({"messages": [
                {"role": "user", "parts": [text("a")]},
                {"role": "assistant", "parts": [{"type": "file", "mediaType": "image/png", "url": URL}]},
            ]}),
            "messages.image",
        ),
        (
            Protocol::Responses,
            json!({"input": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "input_image", "image_url": URL}]},
            ]}),
            "input.image",
        ),
    ] {
        let request = parse(protocol, &body, true).expect("a request");
        let left = json!("(an image, which this model cannot read)");
        assert_eq!(contents(&request)[1], left, "{protocol:?}");
        assert!(request.images.is_empty(), "{protocol:?}");
        assert_eq!(
            request.stream_options.ignored_fields.names(),
            Some(name),
            "{protocol:?}"
        );
    }
}

/// Images of Ollama's results and answers: a model that sees gets them, any other a note in their places, as in other APIs.
#[test]
fn images_of_results_in_ollama_do_not_end_a_conversation() {
    let call = json!({"function": {"name": "f", "arguments": {}}});
    let body = json!({"messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "images": [DATA], "tool_calls": [call]},
        {"role": "tool", "tool_name": "f", "content": "c[img-0]d", "images": [DATA, "no base64"]},
    ]});
    let note = "(an image, which this model cannot read)";
    let request = parse(Protocol::OllamaChat, &body, false).expect("a request");
    let want = [
        "a".to_owned(),
        format!("{note}\nb"),
        format!("{note}\nc\n{note}\nd"),
    ];
    assert_eq!(contents(&request), want.map(Value::from));
    assert!(request.images.is_empty());
    let ignored = request.stream_options.ignored_fields;
    assert_eq!(ignored.names(), Some("messages.image"));
    let mut seen = body;
    seen["messages"][2]["images"][1] = json!(URL);
    let request = parse(Protocol::OllamaChat, &seen, true).expect("a request");
    let want = [
        json!("a"),
        json!([image(0), text("b")]),
        json!([image(2), text("c"), image(1), text("d")]),
    ];
    assert_eq!(contents(&request), want);
    assert_eq!(request.stream_options.ignored_fields.names(), None);
}

#[test]
fn images_for_a_model_that_reads_text_only_are_named() {
    let body = json!({"messages": [{"role": "user", "content": "a", "images": ["not base64"]}]});
    let request = parse(Protocol::OllamaChat, &body, false).expect("a request");
    assert_eq!(paths(&request), ["messages[0].images[0]"]);
    assert!(request.images[0].bytes.is_empty());
    let error = parse(Protocol::OllamaChat, &body, true).expect_err("no base64");
    assert_eq!(
        error.message,
        "messages[0].images[0]: is not base64: its length is not that of any bytes, so it has been cut"
    );
}
