//! Streams over a WebSocket, checked as any other stream. The messages do not depend on the protocol of the request.

use super::ways::checked;
use crate::support::Rig;
use crate::support::automaton::{Closes, Item, Rules, Story};
use crate::support::dialects::{DIALECTS, Dialect, Fate, JOBS};
use crate::support::framing::{Why, error};
use crate::support::talk::Talk;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The `request` of the first command, which the reply repeats.
const REQUEST: &str = "first";

/// A connection attached to one stream.
pub(crate) struct Socket {
    talk: Talk,
    /// The reply to the first command, once read.
    answer: Option<Value>,
}

impl Socket {
    /// Opens a stream. `fields` are the header fields of the same request over HTTP.
    pub(crate) fn open(
        rig: &Rig,
        dialect: &Dialect,
        resumable: bool,
        mut body: Value,
        fields: &str,
    ) -> Self {
        let field = |name: &str| {
            let mut lines = fields
                .split("\r\n")
                .filter_map(|line| line.split_once(": "));
            lines
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value.to_owned())
        };
        if let Some(ms) = field("request-timeout-ms") {
            body["deadline_ms"] = json!(ms.parse::<u64>().expect("milliseconds"));
        }
        let mut message = json!({
            "type": "open", "dialect": dialect.name, "resumable": resumable, "body": body,
        });
        if let Some(acks) = field("x-stream-acks") {
            message["acks"] = json!(acks);
        }
        Self::say(rig, message)
    }

    /// Attaches to a stream after a cursor; `None`: from the beginning of the stream.
    pub(crate) fn attach(rig: &Rig, id: &str, after: Option<&str>) -> Self {
        let mut message = json!({"type": "attach", "stream": id});
        if let Some(after) = after {
            message["after"] = json!(after);
        }
        Self::say(rig, message)
    }

    fn say(rig: &Rig, mut message: Value) -> Self {
        let mut talk = Talk::with(rig);
        message["request"] = json!(REQUEST);
        talk.say(&message);
        Self { talk, answer: None }
    }

    fn answer(&mut self) -> &Value {
        let Self { talk, answer } = self;
        answer.get_or_insert_with(|| talk.answer(REQUEST))
    }

    /// Waits for the stream id; `None` for a rejected request.
    pub(crate) fn id(&mut self) -> Option<String> {
        self.answer()["stream"].as_str().map(str::to_owned)
    }

    /// Takes the next message of the stream.
    pub(crate) fn next(&mut self) -> Value {
        let id = self.id().expect("it follows a stream");
        self.talk.wait("a message", |m| m["stream"] == *id)
    }

    /// All messages of the stream up to the end; nothing may follow.
    pub(crate) fn messages(mut self) -> Result<Vec<Value>, Why> {
        let id = self.id().ok_or("it follows no stream")?;
        let messages = self.talk.whole(&id);
        let mut late = self.talk.left_over().into_iter();
        match late.find(|message| message["stream"] == *id) {
            None => Ok(messages),
            Some(late) => Err(format!("after the ending: {late}")),
        }
    }

    /// Reads the stream to the end, which must be `fate`.
    pub(crate) fn told(mut self, fate: Fate) -> Result<Story, Why> {
        let answer = self.answer();
        if answer["type"] == "error" {
            return refused(answer, fate);
        }
        let messages = self.messages()?;
        let told = checked(RULES, &items(&messages)?, (JOBS.streamed)(fate));
        told.map_err(|why| format!("{why}\n{messages:?}"))
    }
}

/// Rules for one choice: the end is the last message.
const RULES: Rules = rules(1);

/// Rules for this many choices.
pub(crate) const fn rules(choices: u64) -> Rules {
    Rules {
        choices,
        closes: Closes::Never,
        counts: true,
        counts_errors: true,
    }
}

/// A rejected request has the error of the OpenAI protocols.
fn refused(answer: &Value, fate: Fate) -> Result<Story, Why> {
    let (status, words) = (DIALECTS[0].answered)(fate);
    let again = answer["retry_after_ms"].is_u64();
    if again != (status == 503) {
        return Err(format!("when to come back: {answer}"));
    }
    checked(RULES, &[error(answer)], words)
}

/// The items of the messages of one stream.
pub(crate) fn items(messages: &[Value]) -> Result<Vec<Item>, Why> {
    let mut items = Vec::new();
    // Index of the next token of each choice, also after a reconnection.
    let mut next = BTreeMap::new();
    for message in messages {
        let choice = message["choice"].as_u64().unwrap_or(0);
        let word = || {
            message["reason"]
                .as_str()
                .ok_or("no reason")
                .map(str::to_owned)
        };
        match message["type"].as_str() {
            Some("queued" | "backpressure" | "slow_consumer" | "parked" | "resumed") => {
                items.push(Item::Sign);
            }
            Some("started") => items.push(Item::Opening),
            Some("token") => {
                let next = next.entry(choice).or_insert(0);
                if message["i"] != *next {
                    return Err(format!("not token {next}: {message}"));
                }
                *next += message["n"].as_u64().unwrap_or(1);
                let text = message["t"].as_str().ok_or("no text")?.to_owned();
                items.push(Item::Text { choice, text });
            }
            Some("choice_ended") => items.push(Item::End {
                choice,
                word: word()?,
                tokens: None,
            }),
            Some("ended") => ended(message, word()?, &mut items)?,
            _ => return Err(format!("no such message: {message}")),
        }
    }
    Ok(items)
}

/// The message `ended`: the end of a single choice; several choices have their own ends before.
fn ended(message: &Value, word: String, items: &mut Vec<Item>) -> Result<(), Why> {
    let tokens = message["usage"]["completion_tokens"].as_u64();
    let tokens = tokens.ok_or("no count")?;
    let several = items.iter().any(|item| matches!(item, Item::End { .. }));
    match word.as_str() {
        "ERROR" => items.extend([Item::Figures(tokens), error(&message["error"])]),
        _ if several => items.push(Item::Usage(tokens)),
        _ => items.push(Item::End {
            choice: 0,
            word,
            tokens: Some(tokens),
        }),
    }
    Ok(())
}
