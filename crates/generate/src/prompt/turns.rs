//! Turns of a conversation that truncation may drop.

use std::collections::HashSet;
use std::ops::Range;
use text::Message;

/// Parts of a conversation that may be dropped, oldest first: whole turns before the last user message, then the older
/// steps after that message (an assistant's message with the results of the tool calls).
///
/// The last user message, the last message with the step it belongs to, and instructions are in no part that is dropped.
#[derive(Debug)]
pub(super) struct DroppableTurns {
    /// Messages of each part, in order.
    turns: Vec<Range<usize>>,
}

impl DroppableTurns {
    /// The parts of a conversation.
    pub(super) fn of(messages: &[Message]) -> Self {
        let last_user = messages.iter().rposition(|message| message.role == "user");
        let starts_part = |i: usize| match messages[i].role.as_str() {
            "user" => true,
            "tool" | "system" | "developer" => false,
            _ => last_user.is_none_or(|last| i > last),
        };
        let mut bounds: Vec<usize> = (0..messages.len())
            .filter(|&i| i == 0 || starts_part(i))
            .collect();
        bounds.push(messages.len());
        let stays = |part: &Range<usize>| {
            part.end == messages.len()
                || last_user.is_some_and(|last| part.contains(&last))
                || messages[part.clone()].iter().all(is_instruction)
        };
        let parts = bounds.windows(2).map(|pair| pair[0]..pair[1]);
        Self {
            turns: parts.filter(|part| !stays(part)).collect(),
        }
    }

    /// Number of parts.
    pub(super) fn count(&self) -> usize {
        self.turns.len()
    }

    /// The conversation without the first `dropped` parts. A result whose tool call was dropped is dropped, too.
    pub(super) fn kept(&self, messages: &[Message], dropped: usize) -> Vec<Message> {
        let mut is_dropped = vec![false; messages.len()];
        for i in self.turns.iter().take(dropped).flat_map(Range::clone) {
            is_dropped[i] = !is_instruction(&messages[i]);
        }
        let (mut gone, mut called) = (HashSet::new(), HashSet::new());
        for (message, &is_dropped) in messages.iter().zip(&is_dropped) {
            let ids = if is_dropped { &mut gone } else { &mut called };
            ids.extend(call_ids(message));
        }
        let is_orphan = |message: &Message| {
            let id = message.rest.get("tool_call_id").and_then(|id| id.as_str());
            message.role == "tool" && id.is_some_and(|id| gone.contains(id) && !called.contains(id))
        };
        let kept = messages.iter().zip(&is_dropped);
        let kept = kept.filter(|(message, is_dropped)| !**is_dropped && !is_orphan(message));
        kept.map(|(message, _)| message.clone()).collect()
    }
}

/// Whether a message instructs the model: never dropped.
fn is_instruction(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

/// Ids of the tool calls in a message.
fn call_ids(message: &Message) -> impl Iterator<Item = &str> {
    let calls = message
        .rest
        .get("tool_calls")
        .and_then(|calls| calls.as_array());
    let calls = calls.into_iter().flatten();
    calls.filter_map(|call| call.get("id")?.as_str())
}

#[cfg(test)]
mod tests;
