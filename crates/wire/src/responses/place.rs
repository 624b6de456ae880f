//! Sequence numbers, and the places in a stream that they mean.
//!
//! A choice is told as items, one after the other, each with events that begin and end it. Its position after
//! a delta is the number of steps the delta ends in, and one more for each other event before it. So it does
//! not depend on how many tokens an event stands for. An item that is not the first leaves one number out:
//! it may begin and have its first delta in the step in which the one before it had its last.

use crate::cursor::{Closing, Cursor, invalid_cursor};
use generate::error::ApiError;
use generate::output::event::{Event, Kind, ToolCallPart};
use generate::output::position::Position;
use generate::output::replay;
use generate::stream_source::StreamSource;
use std::sync::Arc;

/// `response.created`; `response.in_progress` has the next.
pub const CREATED: u64 = 0;
/// The number of a response's first event about an item, but for positions.
const OPENING: u64 = 1;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A message.
    Message,
    /// Reasoning of the model.
    Reasoning,
    /// A function call.
    Call,
}

impl Item {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Message,
            Kind::Reasoning => Self::Reasoning,
        }
    }

    /// Events that begin it: the item; its part, where it has one.
    fn openings(self) -> u64 {
        match self {
            Self::Message | Self::Reasoning => 2,
            Self::Call => 1,
        }
    }

    /// Events that end it: its text or arguments; its part, where it has one; the item.
    fn closings(self) -> u64 {
        self.openings() + 1
    }
}

/// How far the telling of one choice is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// The item that is being told.
    pub open: Option<Item>,
    /// Items that have begun.
    pub items: usize,
    at: u64,
    /// What `at` is beyond the steps of the last delta.
    beyond: u64,
}

impl Track {
    /// The item that has to begin before this event.
    pub fn begins(&self, event: &Event<'_>) -> Option<Item> {
        match event {
            Event::Delta(delta) if delta.text.is_empty() => None,
            Event::Delta(delta) => {
                Some(Item::of(delta.kind)).filter(|&item| self.open != Some(item))
            }
            Event::ToolCall(call) => {
                matches!(call.part, ToolCallPart::Start { .. }).then_some(Item::Call)
            }
            // An answer without output is an empty message.
            Event::ChoiceEnded { .. } => (self.items == 0).then_some(Item::Message),
            _ => None,
        }
    }

    /// Whether this event is more of the item that is open.
    pub fn goes_on(&self, event: &Event<'_>) -> bool {
        match event {
            Event::Delta(delta) => self.open == Some(Item::of(delta.kind)),
            Event::ToolCall(call) => matches!(call.part, ToolCallPart::Args(_)),
            _ => false,
        }
    }

    /// Whether this event ends the item that is open.
    pub fn ends(&self, event: &Event<'_>) -> bool {
        let ends = match event {
            Event::ToolCall(call) => call.part == ToolCallPart::End,
            Event::ChoiceEnded { .. } => true,
            _ => false,
        };
        ends && self.open.is_some()
    }

    /// An item begins.
    pub fn begin(&mut self, item: Item) {
        self.beyond += u64::from(self.items > 0);
        self.items += 1;
        self.open = Some(item);
    }

    /// An event that begins or ends an item.
    pub fn next(&mut self) {
        self.at += 1;
        self.beyond += 1;
    }

    /// More of an item, up to there.
    pub fn delta(&mut self, reached: Position) {
        self.at = reached.begun() + self.beyond;
    }

    /// All that is told with this event.
    pub fn pass(&mut self, event: &Event<'_>) {
        if let Some(item) = self.begins(event) {
            self.close();
            self.begin(item);
            (0..item.openings()).for_each(|_| self.next());
        }
        if let Some(reached) = event.reached().filter(|_| self.goes_on(event)) {
            self.delta(reached);
        }
        if let Event::ChoiceEnded { .. } = event {
            self.end();
        } else if self.ends(event) {
            self.close();
        }
    }

    /// All that is told with the choice's end.
    pub fn end(&mut self) {
        if self.items == 0 {
            self.begin(Item::Message);
            (0..Item::Message.openings()).for_each(|_| self.next());
        }
        self.close();
    }

    /// The events that end the item that is open, if one is.
    pub fn close(&mut self) {
        if let Some(item) = self.open.take() {
            (0..item.closings()).for_each(|_| self.next());
        }
    }
}

/// The sequence number where choices are so far.
pub fn number(tracks: &[Track]) -> u64 {
    OPENING + tracks.iter().map(|track| track.at).sum::<u64>()
}

/// Where a client is that was told everything up to the event of this number, of a response with one
/// choice. `None`: before the first delta. What comes after that place and has no greater number is still
/// to be left out.
///
/// # Errors
/// No such number can have been told.
pub fn cursor(source: &Arc<StreamSource>, after: u64) -> Result<Option<Cursor>, ApiError> {
    let (mut track, mut reached) = (Track::default(), Position::default());
    let mut passed = false;
    let ended = replay::each(source, 0, &mut |event: &Event<'_>| {
        if passed {
            return;
        }
        let mut before = track;
        track.pass(event);
        if number(&[track]) <= after {
            reached = event.reached().unwrap_or(reached);
            return;
        }
        passed = true;
        if let Some(item) = before.begins(event) {
            before.close();
            before.begin(item);
            (0..item.openings()).for_each(|_| before.next());
        }
        // It may stand for several tokens, of which the client has some.
        if before.goes_on(event) && number(&[before]) < after {
            reached = Position::whole(after - OPENING - before.beyond);
        }
    });
    if !passed && ended.is_none() && number(&[track]) < after && after > OPENING {
        return Err(invalid_cursor());
    }
    let cursor = Cursor {
        reached: vec![reached],
        closing: Closing::Open,
    };
    Ok(Some(cursor).filter(|_| reached.begun() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::output::event::{At, Delta, Logprobs, Usage};
    use stream::{End, Stop};
    use testing::small_vocabulary::tokenizer;

    /// The numbers after each of these events: who says what, up to which step.
    fn numbers(said: &[(Kind, (u64, u64))]) -> Vec<u64> {
        let tokenizer = tokenizer();
        let at = |(steps, parts)| At {
            choice: 0,
            logprobs: Logprobs {
                tokenizer: &tokenizer,
                entries: &[],
                top: &[],
                top_n: 0,
            },
            usage: Usage::default(),
            reached: Position { steps, parts },
            first: 0,
            tokens: 0,
        };
        let mut track = Track::default();
        let mut all = Vec::new();
        for &(kind, reached) in said {
            let at = at(reached);
            track.pass(&Event::Delta(Delta {
                kind,
                text: "x",
                at,
            }));
            all.push(number(&[track]));
        }
        track.pass(&Event::ChoiceEnded {
            choice: 0,
            end: End::Stop(Stop::Eos),
            usage: Usage::default(),
            tokens: 0,
            reached: Position::default(),
        });
        all.push(number(&[track]));
        all
    }

    #[test]
    fn numbers_do_not_depend_on_how_tokens_were_grouped() {
        use Kind::{Reasoning, Text};
        // A message from 2 and 3 on.
        assert_eq!(numbers(&[(Text, (1, 0)), (Text, (2, 0))]), [4, 5, 8]);
        assert_eq!(numbers(&[(Text, (2, 0))]), [5, 8]);
        // The third token ends what is thought and begins what is said.
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
