//! What an answer must be: one ending, and every token unless that says otherwise.

use super::Outcome;
use crate::support::automaton::{Item, Story, accept};
use crate::support::dialects::Dialect;
use crate::support::framing::Event;
use serde_json::Value;

/// The events of a body.
pub(super) fn events(dialect: &Dialect, body: &str) -> Vec<Event> {
    (dialect.events)(body).unwrap_or_else(|why| panic!("{}: {why}: {body}", dialect.name))
}

/// Takes a whole stream: exactly one ending, and nothing after it.
pub(super) fn story(dialect: &Dialect, events: &[Event]) -> Story {
    let items = (dialect.frames)(events);
    checked(
        dialect,
        &items.unwrap_or_else(|why| panic!("{}: {why}: {events:?}", dialect.name)),
    )
}

/// The same of what it says.
pub(super) fn checked(dialect: &Dialect, items: &[Item]) -> Story {
    accept(dialect.rules(1), items)
        .unwrap_or_else(|why| panic!("{}: {why}: {items:?}", dialect.name))
}

/// Of an answer whose client did all it should: all its tokens, or it waited in vain, or its client came too late.
pub(super) fn outcome(story: &Story, tokens: usize) -> Outcome {
    let cancelled = story.ends.get(&0).is_some_and(|word| word == "CANCELLED");
    match &story.error {
        None if cancelled => Outcome::Gone,
        None => {
            assert_eq!(
                story.text().len(),
                tokens,
                "each token is a letter: {story:?}"
            );
            assert_eq!(story.tokens, Some(tokens as u64), "{story:?}");
            Outcome::Done
        }
        Some((_, message)) => Outcome::of_words(message)
            .unwrap_or_else(|| panic!("it had no reason to end so: {story:?}")),
    }
}

/// Of a streamed answer that its client read to its end.
pub(super) fn read(dialect: &Dialect, body: &str, tokens: usize) -> Outcome {
    let outcome = outcome(&story(dialect, &events(dialect, body)), tokens);
    assert_ne!(outcome, Outcome::Gone, "its client was there: {body}");
    outcome
}

/// The place that was named last.
pub(super) fn last_place(events: &[Event]) -> Option<&str> {
    events.iter().rev().find_map(|event| match event {
        Event::Data { id, .. } => id.as_deref(),
        Event::Comment => None,
    })
}

/// The text of some events, wherever they begin, whatever the dialect.
pub(super) fn text(events: &[Event]) -> String {
    events.iter().filter_map(piece).collect()
}

fn piece(event: &Event) -> Option<String> {
    let Event::Data { data, .. } = event else {
        return None;
    };
    let json: Value = serde_json::from_str(data).ok()?;
    let kind = json["type"].as_str().unwrap_or_default();
    let piece = match kind {
        "token" => &json["t"],
        "content_block_delta" => &json["delta"]["text"],
        "response.output_text.delta" | "text-delta" => &json["delta"],
        "" => [
            &json["choices"][0]["delta"]["content"],
            &json["choices"][0]["text"],
            &json["message"]["content"],
            &json["response"],
            &json["content"],
        ]
        .into_iter()
        .find(|piece| piece.is_string())?,
        _ => return None,
    };
    piece.as_str().map(str::to_owned)
}

/// Whether events say that it ended badly, and how. For those that begin in the middle.
pub(super) fn bad_ending(events: &[Event]) -> Option<Outcome> {
    events.iter().find_map(|event| {
        let Event::Data { data, .. } = event else {
            return None;
        };
        let json: Value = serde_json::from_str(data).ok()?;
        let failed = json["type"] == "response.failed" || json["type"] == "error";
        let cancelled = json["stop_reason"] == "CANCELLED" || json["type"] == "abort";
        let says = (failed || cancelled || !json["error"].is_null()).then_some(data)?;
        let outcome = Outcome::of_words(says);
        Some(outcome.unwrap_or_else(|| panic!("it had no reason to end so: {says}")))
    })
}
