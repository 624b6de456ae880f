//! Parts of conversations, and what stays without the oldest of them.
//!
//! Promise (Text): a truncated conversation keeps its instructions, its last user message and its last message, has
//! no result without its call, and keeps as many turns as leave room for the answer.
//! Also held by `generate/src/prompt/truncated/tests.rs`, `server/tests/it/truncation.rs`.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Messages named by letter and number: `s` system, `d` developer, `u` user, `a` assistant, `c1` an assistant's call 1, `t1`
/// the result of call 1.
fn conversation(words: &str) -> Vec<Message> {
    let message = |word: &str| {
        let (role, id) = word.split_at(1);
        let (role, rest) = match role {
            "s" => ("system", json!({})),
            "d" => ("developer", json!({})),
            "u" => ("user", json!({})),
            "c" => ("assistant", json!({"tool_calls": [{"id": id}]})),
            "t" => ("tool", json!({"tool_call_id": id})),
            _ => ("assistant", json!({})),
        };
        Message {
            role: role.to_owned(),
            content: Value::String(word.to_owned()),
            rest: rest.as_object().cloned().unwrap_or_else(Map::new),
        }
    };
    words.split_whitespace().map(message).collect()
}

fn words(messages: &[Message]) -> String {
    let words: Vec<&str> = messages
        .iter()
        .filter_map(|message| message.content.as_str())
        .collect();
    words.join(" ")
}

#[test]
fn oldest_turns_are_dropped_first() {
    for (whole, kept) in [
        ("", &[""][..]),
        ("u1", &["u1"]),
        ("s u1", &["s u1"]),
        ("s u1 a1 u2", &["s u1 a1 u2", "s u2"]),
        (
            "s u1 a1 u2 a2 d u3",
            &["s u1 a1 u2 a2 d u3", "s u2 a2 d u3", "s d u3"],
        ),
        // A greeting before the first user message.
        ("s a0 u1 a1 u2", &["s a0 u1 a1 u2", "s u1 a1 u2", "s u2"]),
        // Calls and results of a turn go together.
        ("u1 c1 t1 a1 u2", &["u1 c1 t1 a1 u2", "u2"]),
        // One turn with many calls: older steps go, the last one stays.
        (
            "s u1 c1 t1 c2 t2 t2 c3 t3",
            &[
                "s u1 c1 t1 c2 t2 t2 c3 t3",
                "s u1 c2 t2 t2 c3 t3",
                "s u1 c3 t3",
            ],
        ),
        // A result after the next user message has no call left.
        ("u1 c1 u2 t1 a1", &["u1 c1 u2 t1 a1", "u2 a1"]),
        // No user message at all.
        ("s a1 a2 c3 t3", &["s a1 a2 c3 t3", "s a2 c3 t3", "s c3 t3"]),
        // An answer that goes on.
        ("u1 a1 u2 a2", &["u1 a1 u2 a2", "u2 a2"]),
    ] {
        let messages = conversation(whole);
        let turns = DroppableTurns::of(&messages);
        let found: Vec<String> = (0..=turns.count())
            .map(|dropped| words(&turns.kept(&messages, dropped)))
            .collect();
        assert_eq!(found, kept, "{whole}");
    }
}

proptest! {
    #[test]
    fn what_must_stay_stays(
        messages in prop::collection::vec(prop::sample::select(vec![
            "s", "d", "u", "a", "c1", "c2", "c3", "t1", "t2", "t3",
        ]), 1..30)
    ) {
        let messages = conversation(&messages.join(" "));
        let turns = DroppableTurns::of(&messages);
        let mut longest = messages.len();
        for dropped in 0..=turns.count() {
            let kept = turns.kept(&messages, dropped);
            let of_role = |messages: &[Message], roles: &[&str]| {
                messages.iter().filter(|m| roles.contains(&&*m.role)).count()
            };
            let instructions = ["system", "developer"];
            prop_assert_eq!(of_role(&kept, &instructions), of_role(&messages, &instructions));
            prop_assert_eq!(of_role(&kept, &["user"]).min(1), of_role(&messages, &["user"]).min(1));
            // A result of a call that was there has its call still.
            let ids = |messages: &[Message]| -> HashSet<String> {
                messages.iter().flat_map(call_ids).map(str::to_owned).collect()
            };
            let (called, before) = (ids(&kept), ids(&messages));
            for message in kept.iter().filter(|message| message.role == "tool") {
                let id = message.rest["tool_call_id"].as_str().expect("an id");
                prop_assert!(called.contains(id) || !before.contains(id), "{}", words(&kept));
            }
            prop_assert!(kept.len() <= longest);
            longest = kept.len();
        }
    }
}
