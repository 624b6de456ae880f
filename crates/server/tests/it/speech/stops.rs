//! Stop strings and log-probabilities of an answer with reasoning and calls, in every dialect.

use super::dialects::{DIALECTS, Dialect};
use super::forced::streamed;
use super::transcripts::{SCRIPT, hermes};
use crate::support::client::post;
use crate::support::{Rig, config};
use serde_json::{Value, json};

/// A stop string as each dialect asks for it.
fn stop(dialect: &Dialect, text: &str) -> Value {
    match dialect.name {
        "anthropic.messages" => json!({"stop_sequences": [text]}),
        "ollama.chat" => json!({"options": {
            "temperature": 0, "num_predict": 900, "repeat_penalty": 1, "stop": [text],
        }}),
        _ => json!({"stop": [text]}),
    }
}

#[test]
fn stop_strings_act_on_content_only() {
    let rig = Rig::echoing(hermes(), config());
    for dialect in &DIALECTS {
        // In the reasoning and in the arguments.
        let story = streamed(&rig, dialect, SCRIPT, &stop(dialect, "city"));
        let seen = (&*story.reasoning, &*story.text, story.calls.len());
        assert_eq!(seen, ("hm, a city", "I look.", 2), "{}", dialect.name);
        let story = streamed(&rig, dialect, SCRIPT, &stop(dialect, "ook"));
        let seen = (&*story.reasoning, &*story.text, story.calls.len());
        assert_eq!(seen, ("hm, a city", "I l", 0), "{}", dialect.name);
    }
}

fn joined_tokens(entries: &Value) -> String {
    let entries = entries.as_array().expect("entries");
    let tokens = entries
        .iter()
        .map(|entry| entry["token"].as_str().expect("a token"));
    tokens.collect()
}

#[test]
fn log_probabilities_are_those_of_the_content() {
    let rig = Rig::echoing(hermes(), config());
    let of = |name: &str, over: Value| {
        let dialect = DIALECTS.iter().find(|dialect| dialect.name == name);
        let dialect = dialect.expect("a dialect");
        let mut body = dialect.body(SCRIPT, &over);
        body["stream"] = json!(false);
        post(rig.addr, dialect.path, &body).json()
    };
    let chat = of("openai.chat", json!({"logprobs": true}));
    let entries = &chat["choices"][0]["logprobs"]["content"];
    assert_eq!(joined_tokens(entries), "I look.", "{chat}");
    let include = json!({"include": ["message.output_text.logprobs"]});
    let response = of("openai.responses", include);
    let mut items = response["output"].as_array().expect("items").iter();
    let message = items.rfind(|item| item["type"] == "message");
    let entries = &message.expect("a message")["content"][0]["logprobs"];
    assert_eq!(joined_tokens(entries), "I look.", "{response}");
    rig.wait_until_empty();
}
