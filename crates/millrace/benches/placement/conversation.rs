//! A conversation: a system prompt that others have too, then questions and answers.

use crate::event_reader::read_watched;
use crate::load::figures::Random;
use crate::load::now;
use serde_json::{Value, json};
use std::time::Duration;

/// System prompts of all conversations.
const SYSTEM_PROMPTS: usize = 6;
/// Words of the longest system prompt.
const SYSTEM_WORDS_MAX: usize = 240;
const TURNS_MAX: usize = 5;
const QUESTION_WORDS: usize = 24;
const ANSWER_TOKENS: usize = 24;
/// Silence after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(120);

const WORDS: [&str; 16] = [
    "river", "mill", "stone", "wheel", "grain", "water", "bridge", "meadow", "lantern", "harbor",
    "winter", "garden", "letter", "mountain", "window", "morning",
];

/// What one answer was like.
pub(crate) struct Turn {
    pub(crate) first_token: Duration,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

pub(crate) struct Conversation {
    messages: Vec<Value>,
    random: Random,
    turns_left: usize,
}

impl Conversation {
    /// The conversation of this number.
    pub(crate) fn new(number: u64) -> Self {
        let mut random = Random(number);
        // The lower of two numbers: some system prompts are used more than others.
        let mut skewed = || random.below(SYSTEM_PROMPTS);
        let system = skewed().min(skewed());
        let mut words = Random(0x5eed + system as u64);
        let count = SYSTEM_WORDS_MAX / 2 + words.below(SYSTEM_WORDS_MAX / 2);
        let text = sentence(&mut words, count);
        Self {
            messages: vec![json!({"role": "system", "content": text})],
            turns_left: 1 + random.below(TURNS_MAX),
            random,
        }
    }

    /// Asks the next question and reads the answer. `None`: the conversation is over, or the server has failed.
    pub(crate) fn take_turn(&mut self, gateway: &str) -> Option<Turn> {
        self.turns_left = self.turns_left.checked_sub(1)?;
        let question = sentence(&mut self.random, QUESTION_WORDS);
        self.messages
            .push(json!({"role": "user", "content": question}));
        let body = json!({
            "messages": self.messages, "stream": true, "max_tokens": ANSWER_TOKENS, "ignore_eos": true,
            "stream_options": {"include_usage": true},
        });
        let (sent, mut first_token) = (now(), None);
        let mut watch = |bytes: &[u8]| {
            if first_token.is_none() && bytes.windows(11).any(|part| part == b"\"content\":\"") {
                first_token = Some(sent.elapsed());
            }
            true
        };
        let head = "POST /v1/chat/completions HTTP/1.1";
        let reading = read_watched(gateway, head, &body.to_string(), PATIENCE, &mut watch);
        let events = reading.ok()?.events.into_iter();
        let events: Vec<Value> = events
            .filter_map(|event| serde_json::from_str(&event.data).ok())
            .collect();
        let text = events
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        let text: String = text.collect();
        self.messages
            .push(json!({"role": "assistant", "content": text}));
        let usage = &events
            .iter()
            .rev()
            .find(|event| event["usage"].is_object())?["usage"];
        let cached = &usage["prompt_tokens_details"]["cached_tokens"];
        Some(Turn {
            first_token: first_token?,
            prompt_tokens: usage["prompt_tokens"].as_u64()?,
            cached_tokens: cached.as_u64().unwrap_or(0),
        })
    }
}

fn sentence(random: &mut Random, words: usize) -> String {
    let words = (0..words).map(|_| WORDS[random.below(WORDS.len())]);
    words.collect::<Vec<_>>().join(" ")
}
