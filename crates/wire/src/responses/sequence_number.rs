//! Sequence numbers, and the stream positions that they stand for.
//!
//! A choice is sent as items, one after the other, each with events that start and end the item. The number after a
//! delta is the number of steps up to the end of the delta, plus one for each other event before, so the number does
//! not depend on how many tokens an event covers. Every item but the first skips one number: the item may start, and
//! have its first delta, in the step of the last delta of the item before.

use crate::cursor::{Cursor, TerminalMarker, invalid_cursor};
use generate::error::ApiError;
use generate::output::choice_reader as replay;
use generate::output::event::{DeltaKind, Event, ToolCallPart};
use generate::output::position::Position;
use generate::stream_source::StreamSource;
use std::sync::Arc;

/// Number of `response.created`; `response.in_progress` has the next number.
pub const CREATED: u64 = 0;
/// Offset of the numbers of item events.
const OPENING: u64 = 1;

/// Type of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A message.
    Message,
    /// Reasoning of the model.
    Reasoning,
    /// A call of a function, or of a custom tool.
    Call,
}

impl ItemKind {
    fn of(kind: DeltaKind) -> Self {
        match kind {
            DeltaKind::Text => Self::Message,
            DeltaKind::Reasoning => Self::Reasoning,
        }
    }

    /// Number of events that start the item: the item, and its content part if there is one.
    fn start_events(self) -> u64 {
        match self {
            Self::Message | Self::Reasoning => 2,
            Self::Call => 1,
        }
    }

    /// Number of events that end the item: its text or arguments, its content part if there is one, and the item.
    fn end_events(self) -> u64 {
        self.start_events() + 1
    }
}

/// Progress of one choice: its items and its share of the sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoiceProgress {
    /// The open item.
    pub open: Option<ItemKind>,
    /// Number of items that have started.
    pub items: usize,
    at: u64,
    /// Difference between `at` and the steps up to the last delta.
    offset: u64,
}

impl ChoiceProgress {
    /// The item that starts before this event, if any.
    pub fn starting_item(&self, event: &Event<'_>) -> Option<ItemKind> {
        match event {
            Event::Delta(delta) if delta.text.is_empty() => None,
            Event::Delta(delta) => {
                Some(ItemKind::of(delta.kind)).filter(|&item| self.open != Some(item))
            }
            Event::ToolCall(call) => {
                matches!(call.part, ToolCallPart::Start { .. }).then_some(ItemKind::Call)
            }
            // An answer without output is an empty message.
            Event::ChoiceEnded { .. } => (self.items == 0).then_some(ItemKind::Message),
            _ => None,
        }
    }

    /// Whether this event is a delta of the open item.
    pub fn continues_item(&self, event: &Event<'_>) -> bool {
        match event {
            Event::Delta(delta) => self.open == Some(ItemKind::of(delta.kind)),
            Event::ToolCall(call) => matches!(call.part, ToolCallPart::Args(_)),
            _ => false,
        }
    }

    /// Whether this event ends the open item.
    pub fn ends_item(&self, event: &Event<'_>) -> bool {
        let ends = match event {
            Event::ToolCall(call) => call.part == ToolCallPart::End,
            Event::ChoiceEnded { .. } => true,
            _ => false,
        };
        ends && self.open.is_some()
    }

    /// Starts an item.
    pub fn start_item(&mut self, item: ItemKind) {
        self.offset += u64::from(self.items > 0);
        self.items += 1;
        self.open = Some(item);
    }

    /// Counts an event that starts or ends an item.
    pub fn count_event(&mut self) {
        self.at += 1;
        self.offset += 1;
    }

    /// Counts a delta that ends at a position.
    pub fn count_delta(&mut self, position: Position) {
        self.at = position.begun() + self.offset;
    }

    /// Counts all frames that are written for an event.
    pub fn count_frames(&mut self, event: &Event<'_>) {
        if let Some(item) = self.starting_item(event) {
            self.end_item();
            self.start_item(item);
            (0..item.start_events()).for_each(|_| self.count_event());
        }
        if let Some(position) = event.position().filter(|_| self.continues_item(event)) {
            self.count_delta(position);
        }
        if let Event::ChoiceEnded { .. } = event {
            self.count_end();
        } else if self.ends_item(event) {
            self.end_item();
        }
    }

    /// Counts all frames that are written for the end of the choice.
    pub fn count_end(&mut self) {
        if self.items == 0 {
            self.start_item(ItemKind::Message);
            (0..ItemKind::Message.start_events()).for_each(|_| self.count_event());
        }
        self.end_item();
    }

    /// Counts the events that end the open item, if there is one.
    pub fn end_item(&mut self) {
        if let Some(item) = self.open.take() {
            (0..item.end_events()).for_each(|_| self.count_event());
        }
    }
}

/// The sequence number after the events of all choices so far.
pub fn sequence_number(tracks: &[ChoiceProgress]) -> u64 {
    OPENING + tracks.iter().map(|track| track.at).sum::<u64>()
}

/// The cursor of a client that has received all events up to the number `after`, of a response with one choice.
/// `None`: before the first delta. Events after the cursor whose numbers are not greater than `after` must still be
/// left out.
///
/// # Errors
/// A number that no event of the stream has.
pub fn cursor_after(source: &Arc<StreamSource>, after: u64) -> Result<Option<Cursor>, ApiError> {
    let (mut track, mut position) = (ChoiceProgress::default(), Position::default());
    let mut passed = false;
    let ended = replay::each(source, 0, &mut |event: &Event<'_>| {
        if passed {
            return;
        }
        let mut before = track;
        track.count_frames(event);
        if sequence_number(&[track]) <= after {
            position = event.position().unwrap_or(position);
            return;
        }
        passed = true;
        if let Some(item) = before.starting_item(event) {
            before.end_item();
            before.start_item(item);
            (0..item.start_events()).for_each(|_| before.count_event());
        }
        // The event may cover several tokens, some of which the client has received.
        if before.continues_item(event) && sequence_number(&[before]) < after {
            position = Position::whole(after - OPENING - before.offset);
        }
    });
    if !passed && ended.is_none() && sequence_number(&[track]) < after && after > OPENING {
        return Err(invalid_cursor());
    }
    let cursor = Cursor {
        positions: vec![position],
        terminal: TerminalMarker::None,
    };
    Ok(Some(cursor).filter(|_| position.begun() > 0))
}

/// The number after the events of the first `steps` steps of a response with one choice.
pub fn number_at(source: &StreamSource, steps: u64) -> u64 {
    let (mut track, mut found) = (ChoiceProgress::default(), None);
    replay::each(source, 0, &mut |event: &Event<'_>| {
        if found.is_some() {
            return;
        }
        let mut before = track;
        track.count_frames(event);
        if event.position().is_none_or(|place| place.begun() <= steps) {
            return;
        }
        let number = sequence_number(&[before]);
        if let Some(item) = before.starting_item(event) {
            before.end_item();
            before.start_item(item);
            (0..item.start_events()).for_each(|_| before.count_event());
        }
        // The event may cover steps on both sides.
        let within = OPENING + before.offset + steps;
        found = Some(if before.continues_item(event) {
            number.max(within)
        } else {
            number
        });
    });
    found.unwrap_or_else(|| sequence_number(&[track]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::output::event::{Delta, Logprobs, PartOrigin, Usage};
    use stream::{End, Stop};
    use testing::small_vocabulary::tokenizer;

    /// The numbers after each delta, given by kind and position.
    fn numbers(deltas: &[(DeltaKind, (u64, u64))]) -> Vec<u64> {
        let tokenizer = tokenizer();
        let at = |(steps, parts)| PartOrigin {
            choice: 0,
            logprobs: Logprobs {
                tokenizer: &tokenizer,
                entries: &[],
                top: &[],
                top_n: 0,
            },
            usage: Usage::default(),
            position: Position { steps, parts },
            first: 0,
            tokens: 0,
        };
        let mut track = ChoiceProgress::default();
        let mut all = Vec::new();
        for &(kind, position) in deltas {
            let at = at(position);
            track.count_frames(&Event::Delta(Delta {
                kind,
                text: "x",
                origin: at,
            }));
            all.push(sequence_number(&[track]));
        }
        track.count_frames(&Event::ChoiceEnded {
            choice: 0,
            end: End::Stop(Stop::Eos),
            usage: Usage::default(),
            tokens: 0,
            position: Position::default(),
        });
        all.push(sequence_number(&[track]));
        all
    }

    #[test]
    fn sequence_number_is_independent_of_token_grouping() {
        use DeltaKind::{Reasoning, Text};
        // Message items after 2 and after 3 tokens.
        assert_eq!(numbers(&[(Text, (1, 0)), (Text, (2, 0))]), [4, 5, 8]);
        assert_eq!(numbers(&[(Text, (2, 0))]), [5, 8]);
        // The third token ends the reasoning and begins the content.
        let whole = [(Reasoning, (2, 1)), (Text, (5, 0))];
        let cut = [
            (Reasoning, (1, 0)),
            (Reasoning, (2, 1)),
            (Text, (3, 0)),
            (Text, (5, 0)),
        ];
        let (whole, cut) = (numbers(&whole), numbers(&cut));
        assert_eq!(whole, [cut[1], cut[3], cut[4]]);
        assert!(cut.is_sorted_by(|a, b| a < b), "{cut:?}");
        assert!(
            cut[2] > cut[1] + 5,
            "three ends and two beginnings between: {cut:?}"
        );
        assert_eq!(numbers(&[]), [6], "an empty message");
    }
}
