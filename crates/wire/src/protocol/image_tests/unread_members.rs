//! Images in members and items that a protocol does not read: errors that name them, and say where images belong.

use super::*;

/// Members in which an API, a client or a server has images.
const MEMBERS: [&str; 9] = [
    "images",
    "image",
    "image_url",
    "image_data",
    "multimodal_data",
    "attachments",
    "experimental_attachments",
    "files",
    "source",
];

/// A row: the protocol, a body, where in it an object with a text stands, as a pointer and as a path of an error, the members
/// with images that are read there, and what the error says about them.
type Place = (
    Protocol,
    Value,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
);

/// Objects with a text in each protocol: messages, parts, results of tools, prompts, options.
#[expect(clippy::too_many_lines, reason = "a table")]
fn places_of_texts() -> Vec<Place> {
    let of_role = |role: &str, content: Value| json!({"role": role, "content": content});
    let user = |content: Value| of_role("user", content);
    let alone = "an image is a part of its own";
    let (in_chat, in_responses) = (
        "images are parts of content (image_url)",
        "images are parts of content and output (input_image)",
    );
    let in_blocks = "images are blocks of content (image)";
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "a"});
    let input_text = json!({"type": "input_text", "text": "a"});
    let used = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "a"});
    let part = user(json!([text("a")]));
    let parts = json!({"role": "user", "parts": [text("a")]});
    let chat = |message: &Value| json!({"messages": [message]});
    let blocks = |messages: Value| json!({"max_tokens": 9, "messages": messages});
    let (asked, tool) = (user(json!("a")), of_role("tool", json!("a")));
    let (message, first) = ("/messages/0", "messages[0]");
    let (content, first_part) = ("/messages/0/content/0", "messages[0].content[0]");
    vec![
        (Protocol::Chat, chat(&asked), message, first, &[], in_chat),
        (Protocol::Chat, chat(&tool), message, first, &[], in_chat),
        (Protocol::Chat, chat(&part), content, first_part, &[], alone),
        (Protocol::Job, chat(&part), message, first, &[], in_chat),
        (Protocol::Job, chat(&part), content, first_part, &[], alone),
        (
            Protocol::Messages,
            blocks(json!([part])),
            message,
            first,
            &[],
            in_blocks,
        ),
        (
            Protocol::Messages,
            blocks(json!([part])),
            content,
            first_part,
            &[],
            alone,
        ),
        (
            Protocol::Messages,
            blocks(json!([
                asked,
                of_role("assistant", json!([used])),
                user(json!([result]))
            ])),
            "/messages/2/content/0",
            "messages[2].content[0]",
            &[],
            in_blocks,
        ),
        (
            Protocol::Responses,
            json!({"input": [asked]}),
            "/input/0",
            "input[0]",
            &[],
            in_responses,
        ),
        (
            Protocol::Responses,
            json!({"input": [user(json!([input_text]))]}),
            "/input/0/content/0",
            "input[0].content[0]",
            &[],
            alone,
        ),
        (
            Protocol::Responses,
            json!({"input": [asked, call, output]}),
            "/input/2",
            "input[2]",
            &[],
            in_responses,
        ),
        (
            Protocol::OllamaChat,
            chat(&asked),
            message,
            first,
            &["images"],
            "images are base64 in images",
        ),
        (
            Protocol::OllamaChat,
            json!({"messages": [asked], "options": {}}),
            "/options",
            "options",
            &[],
            "images stand next to the text",
        ),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "a", "options": {}}),
            "/options",
            "options",
            &[],
            "images stand next to the text",
        ),
        (
            Protocol::AiSdkUi,
            chat(&parts),
            message,
            first,
            &["experimental_attachments"],
            "images are parts (file)",
        ),
        (
            Protocol::AiSdkUi,
            chat(&parts),
            "/messages/0/parts/0",
            "messages[0].parts[0]",
            &[],
            alone,
        ),
        (
            Protocol::LlamaCompletion,
            json!({"prompt": {"prompt_string": "a"}}),
            "/prompt",
            "prompt",
            &["multimodal_data"],
            "images are base64 in multimodal_data",
        ),
        (
            Protocol::Infill,
            json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]}),
            "/input_extra/0",
            "input_extra[0]",
            &[],
            "only text is",
        ),
    ]
}

/// Promise (Images): an image in a member that another API has is a 400 that names the member and the place of images, in
/// messages, parts, results, prompts and options of every protocol; members without an image change nothing.
#[test]
fn members_of_other_apis_with_images_are_refused() {
    for (protocol, body, pointer, path, read, instead) in places_of_texts() {
        let with = |name: &str, value: Value| {
            let mut body = body.clone();
            body.pointer_mut(pointer).expect(pointer)[name] = value;
            parse(protocol, &body, true)
        };
        let plain = parse(protocol, &body, true);
        let plain = plain.unwrap_or_else(|error| panic!("{protocol:?} {path}: {}", error.message));
        for name in MEMBERS.into_iter().filter(|name| !read.contains(name)) {
            let place = format!("{protocol:?} {path}.{name}");
            let source = json!({"type": "base64", "media_type": "image/png", "data": DATA});
            let values = match name {
                "source" => vec![source],
                _ => vec![source, json!(URL), json!([DATA]), json!({"url": URL})],
            };
            for value in values {
                let error = with(name, value).expect_err(&place);
                let want = format!("{path}.{name}: is not read here: {instead}");
                assert_eq!(error.message, want, "{place}");
            }
            for nothing in [
                json!(null),
                json!(""),
                json!([]),
                json!([""]),
                json!({}),
                json!(true),
            ] {
                let request =
                    with(name, nothing).unwrap_or_else(|error| panic!("{}", error.message));
                assert_eq!(request.prompts, plain.prompts, "{place}");
                assert_eq!(
                    request.stream_options.ignored_fields.names(),
                    None,
                    "{place}"
                );
            }
        }
    }
}

#[test]
fn same_words_in_names_metadata_and_arguments_are_no_images() {
    let arguments = json!({"image": URL, "files": [DATA]});
    let call = json!({"id": "c", "type": "function", "function": {"name": "image", "arguments": arguments.to_string()}});
    let used = json!({"type": "tool_use", "id": "c", "name": "files", "input": arguments});
    let found = json!({"type": "search_result", "source": "https://a/b", "title": "t", "content": [text("a")]});
    let written = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}});
    let of_mcp = json!({"type": "mcp_call", "id": "m", "name": "f", "image": URL, "output": "a"});
    for (protocol, body) in [
        (
            Protocol::Chat,
            json!({"metadata": {"image": "a"}, "messages": [
                {"role": "user", "name": "images", "metadata": {"files": [DATA]}, "content": "a", "source": {"app": "a"}},
                {"role": "assistant", "tool_calls": [call]},
            ]}),
        ),
        (
            Protocol::Messages,
            json!({"max_tokens": 9, "messages": [
                {"role": "user", "content": [found, written]}, {"role": "assistant", "content": [used]}, {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "a"}]},
            ]}),
        ),
        (
            Protocol::Responses,
            json!({"metadata": {"image": "a"}, "image": {"context_compression": "auto"}, "input": [
                {"role": "user", "content": "a"}, of_mcp,
                {"type": "function_call", "call_id": "c", "name": "files", "arguments": arguments.to_string()},
            ]}),
        ),
        (Protocol::AiSdkUi, of_tool_output(&arguments)),
    ] {
        let request = parse(protocol, &body, true);
        let request = request.unwrap_or_else(|error| panic!("{protocol:?}: {}", error.message));
        assert!(request.images.is_empty(), "{protocol:?}");
        assert_eq!(
            request.stream_options.ignored_fields.names(),
            None,
            "{protocol:?}"
        );
    }
}

/// A part that stands among the items of the Responses API is an error, also next to a message.
#[test]
fn parts_among_items_are_refused() {
    let message = json!({"role": "user", "content": "a"});
    for part in [
        json!({"type": "input_image", "image_url": URL}),
        json!({"type": "input_image", "file_id": "f"}),
        json!({"type": "input_file", "file_data": URL}),
        json!({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}),
        json!({"type": "image_url", "image_url": {"url": URL}}),
        json!({"type": "image", "source": {"type": "base64", "data": DATA}}),
        json!({"type": "file", "mediaType": "image/png", "url": URL}),
        json!({"type": "input_text", "text": "a"}),
    ] {
        for takes_images in [true, false] {
            let body = json!({"input": [message, part]});
            let error = parse(Protocol::Responses, &body, takes_images).expect_err("no item");
            let want = "input[1]: is a part, not an item: it belongs in the content of a message";
            assert_eq!(error.message, want, "{part}");
        }
    }
    let body = json!({"input": "a", "image": URL});
    let error = parse(Protocol::Responses, &body, true).expect_err("options");
    assert_eq!(error.problems[0].field, "image");
}

/// Images in members of an earlier answer are left out and named, too.
#[test]
fn images_beside_answers_are_left_out() {
    let said = json!({"role": "assistant", "content": "b", "image": DATA, "attachments": [URL]});
    let asked = json!({"role": "user", "content": "a"});
    let again = json!({"role": "user", "content": "c"});
    let answer = json!({"role": "assistant", "parts": [text("b")], "experimental_attachments": [{"url": URL}]});
    let parts = json!({"role": "user", "parts": [text("a")]});
    for (protocol, body, names) in [
        (
            Protocol::Chat,
            json!({"messages": [asked, said]}),
            "messages.image, messages.attachments",
        ),
        (
            Protocol::OllamaChat,
            json!({"messages": [asked, said]}),
            "messages.image, messages.attachments",
        ),
        (
            Protocol::Messages,
            json!({"max_tokens": 9, "messages": [asked, said, again]}),
            "messages.image, messages.attachments",
        ),
        (
            Protocol::Responses,
            json!({"input": [asked, said]}),
            "input.image, input.attachments",
        ),
        (
            Protocol::AiSdkUi,
            json!({"messages": [parts, answer]}),
            "messages.experimental_attachments",
        ),
    ] {
        let request = parse(protocol, &body, true);
        let request = request.unwrap_or_else(|error| panic!("{protocol:?}: {}", error.message));
        assert_eq!(contents(&request)[1], "b", "{protocol:?}");
        let ignored = request.stream_options.ignored_fields;
        assert_eq!(ignored.names(), Some(names), "{protocol:?}");
    }
}
