//! A question about a picture through each protocol, where the model sees the picture itself.

use crate::encoders::body;
use crate::images::{BLUE, model, square};
use crate::support::Serving;
use crate::vision_proxy::socket::{Socket, text_of};
use crate::vision_proxy::{CHAT_TEMPLATE, Question};
use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;

const QUESTION: &str = "Which colour is the square?";
const NAME: &str = "millrace-mini-vision";
/// Tokens of an answer: more than it has.
const TOKENS: usize = 16;

/// The text of the events of a response, which are tokens of a job or parts of the AI SDK's message.
fn text_of_events(reply: &str) -> String {
    let events = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let text = |event: Value| {
        let text = event["t"].as_str().or_else(|| event["delta"].as_str());
        text.map(str::to_owned)
    };
    events.filter_map(text).collect()
}

/// The text of a whole response in this API.
fn text_of_response(name: &str, reply: &str) -> String {
    let place = match name {
        "chat" => "/choices/0/message/content",
        "responses" => "/output/0/content/0/text",
        "messages" => "/content/0/text",
        "ollama" => "/message/content",
        "generate" => "/response",
        "llama" => "/content",
        "job" => "/text",
        "ui" => "/parts/0/text",
        _ => panic!("no API: {name}"),
    };
    let answer = body(reply, 200);
    let text = answer.pointer(place).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{name}: {answer}"))
        .to_owned()
}

/// A conversation of Anthropic's in which a tool has given the picture.
fn of_a_tool(image: &[u8]) -> Value {
    let source =
        json!({"type": "base64", "media_type": "image/png", "data": STANDARD.encode(image)});
    let result = json!({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "source": source}]});
    json!({"model": NAME, "max_tokens": TOKENS, "temperature": 0, "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result, {"type": "text", "text": QUESTION}]},
    ]})
}

/// The answers to the question about a picture: the API of each, and its text.
fn answers(serving: &Serving, image: &[u8]) -> Vec<(&'static str, String)> {
    let question = Question {
        model: NAME,
        image,
        text: QUESTION,
        tokens: TOKENS,
        around: CHAT_TEMPLATE,
    };
    let requests = question.requests();
    let find = |wanted: &str| {
        let found = requests.iter().find(|(name, ..)| *name == wanted);
        found.unwrap().2.clone()
    };
    let ask = |(name, path, request): &(&'static str, &str, Value)| {
        let mut request = request.clone();
        request["stream"] = json!(false);
        let reply = serving.post(path, &request.to_string());
        (*name, text_of_response(name, &reply))
    };
    let mut answers: Vec<_> = requests.iter().map(ask).collect();
    let reply = serving.post("/v1/ai-sdk/chat", &find("ui").to_string());
    answers.push(("ui, streamed", text_of_events(&reply)));
    let job = serving.post("/v1/jobs", &find("job").to_string());
    let place = body(&job, 202)["sse_url"].as_str().unwrap().to_owned();
    answers.push((
        "a job in the background",
        text_of_events(&serving.get(&place)),
    ));
    let mut parts = find("chat");
    let fields = parts.as_object_mut().unwrap();
    fields.remove("stream_options");
    fields.insert("stream".to_owned(), json!(false));
    let reply = serving.post("/v1/inference", &parts.to_string());
    answers.push(("parts of a job's messages", text_of_response("job", &reply)));
    let reply = serving.post("/v1/messages", &of_a_tool(image).to_string());
    answers.push(("tool_result", text_of_response("messages", &reply)));
    let messages = Socket::open(serving).ask(&find("chat"));
    answers.push(("socket", text_of(&messages)));
    answers
}

/// Promise (Images): a question about a picture is answered right through every protocol: OpenAI's chat and Responses, Anthropic's
/// Messages, also about a picture in a tool's result, Ollama's chat and generate, the AI SDK's, llama.cpp's, jobs, and a
/// WebSocket.
#[test]
fn picture_is_seen_through_every_protocol() {
    let model = model();
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let red = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pictures/red-square.png");
    for (image, color) in [(fs::read(red).unwrap(), "red"), (square(BLUE), "blue")] {
        let answers = answers(&serving, &image);
        assert_eq!(answers.len(), 13);
        for (api, answer) in answers {
            assert_eq!(answer, format!("The square is {color}."), "{api}");
        }
    }
}

/// Promise (Images): an image of more bytes than another message may have comes over a WebSocket as over HTTP.
#[test]
fn large_image_is_seen_through_a_socket() {
    let model = model();
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let mut image = square(BLUE);
    image.resize(2 << 20, 0);
    let mut socket = Socket::open(&serving);
    for _ in 0..2 {
        let content = json!([
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", STANDARD.encode(&image))}},
            {"type": "text", "text": QUESTION},
        ]);
        let asked = json!({
            "model": NAME, "max_tokens": TOKENS, "temperature": 0,
            "messages": [{"role": "user", "content": content}],
        });
        assert_eq!(text_of(&socket.ask(&asked)), "The square is blue.");
    }
}

/// The prompt of `/apply-template` has a marker in the place of an image, as `/completion` takes it.
#[test]
fn applied_template_is_a_prompt_with_markers() {
    let model = model();
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let data = STANDARD.encode(square(BLUE));
    let content = json!([
        {"type": "image_url", "image_url": {"url": "https://example.com/not-fetched.png"}},
        {"type": "text", "text": QUESTION},
    ]);
    let messages = json!({"messages": [{"role": "user", "content": content}]});
    let applied = body(&serving.post("/apply-template", &messages.to_string()), 200);
    let prompt = applied["prompt"].as_str().unwrap();
    assert_eq!(prompt.matches("<__media__>").count(), 1, "{prompt}");
    let asked = json!({
        "prompt": {"prompt_string": prompt, "multimodal_data": [data]}, "n_predict": TOKENS, "temperature": 0,
    });
    let reply = serving.post("/completion", &asked.to_string());
    assert_eq!(text_of_response("llama", &reply), "The square is blue.");
}

/// Promise (Images): the count of a prompt with an image is that of the answer's usage.
#[test]
fn counts_of_tokens_have_the_rows_of_images() {
    let model = model();
    let serving = Serving::start(&["serve", &model, "--bind", "127.0.0.1:0"]);
    let image = square(BLUE);
    let question = Question {
        model: NAME,
        image: &image,
        text: QUESTION,
        tokens: TOKENS,
        around: CHAT_TEMPLATE,
    };
    for (api, count) in [
        ("responses", "/v1/responses/input_tokens"),
        ("messages", "/v1/messages/count_tokens"),
    ] {
        let requests = question.requests();
        let (_, path, request) = requests.iter().find(|(name, ..)| *name == api).unwrap();
        let mut counted = request.clone();
        let fields = counted.as_object_mut().unwrap();
        fields.retain(|name, _| ["model", "input", "messages"].contains(&&**name));
        // Before the answer, so that nothing of the image is known.
        let counted = body(&serving.post(count, &counted.to_string()), 200);
        let answer = body(&serving.post(path, &request.to_string()), 200);
        let usage = &answer["usage"];
        let cached = usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
        let tokens = usage["input_tokens"].as_u64().unwrap() + cached;
        assert_eq!(counted["input_tokens"], tokens, "{api}");
        assert!(tokens > 16, "{api}: the image alone has 16 rows: {tokens}");
    }
}
