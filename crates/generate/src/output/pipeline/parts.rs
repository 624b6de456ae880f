//! The parts of an answer on their way to one reader: collected while tokens are folded, told in order.
//! Neighbours of one kind are one. Buffers are kept: in the steady state nothing is allocated.

use crate::output::event::Kind;
use crate::output::parser_config::CallIds;
use crate::output::position::Position;
use text::Part;

/// One part that is certain, and where it stands.
pub struct Told<'a> {
    /// The part.
    pub said: Said<'a>,
    /// Where a reader is that has it.
    pub reached: Position,
    /// Tokens folded up to its end.
    pub read: u64,
    /// The reader has it already.
    pub is_known: bool,
    /// Entries of log-probabilities up to its end, of those that were not cleared.
    pub entries: usize,
}

/// What a part says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Content or reasoning.
    Text(Kind, &'a str),
    /// Beginning of a tool call.
    CallStart {
        /// Number of the call within the choice.
        index: u32,
        /// Id of the call.
        id: &'a str,
        /// Name of the tool.
        name: &'a str,
    },
    /// Arguments, or a part of them.
    CallArgs {
        /// Number of the call within the choice.
        index: u32,
        /// A part of the JSON text.
        fragment: &'a str,
    },
    /// End of a tool call.
    CallEnd {
        /// Number of the call within the choice.
        index: u32,
    },
}

/// Parts that are certain and not told yet.
pub struct Parts {
    ids: CallIds,
    /// What the reader was told before.
    known: Position,
    text: String,
    slots: Vec<Slot>,
    /// Whole steps so far, parts of the next, tokens folded, calls begun.
    steps: u64,
    parts: u64,
    read: u64,
    calls: u32,
    /// Tokens that some part came from, and those of them that were thought.
    said: u64,
    thought: u64,
}

/// One part; its text goes up to where the next one's begins.
#[derive(Clone, Copy)]
struct Slot {
    kind: SlotKind,
    start: usize,
    reached: Position,
    read: u64,
    is_known: bool,
    entries: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    Text(Kind),
    /// The text is the id, of this many bytes, and the name.
    Start(u32, usize),
    Args(u32),
    End(u32),
}

impl Parts {
    /// Of an answer whose reader was told `known`; `steps` came before its first token.
    pub fn new(ids: CallIds, known: Position, steps: u64) -> Self {
        Self {
            ids,
            known,
            text: String::new(),
            slots: Vec::new(),
            steps,
            parts: 0,
            read: 0,
            calls: 0,
            said: 0,
            thought: 0,
        }
    }

    /// A token is folded from here on.
    pub fn begin_token(&mut self) {
        self.read += 1;
    }

    /// Takes the next part of the open step. There are so many entries by now.
    pub fn add(&mut self, part: Part<'_>, entries: usize) {
        let kind = match part {
            Part::Text(_) => SlotKind::Text(Kind::Text),
            Part::Reasoning(_) => SlotKind::Text(Kind::Reasoning),
            Part::ToolStart { index, .. } => SlotKind::Start(index, 0),
            Part::ToolArgs { index, .. } => SlotKind::Args(index),
            Part::ToolEnd { index } => SlotKind::End(index),
        };
        self.slot(kind, entries);
        // A mark is counted with what follows it.
        let tokens = self.read - std::mem::replace(&mut self.said, self.read);
        if kind == SlotKind::Text(Kind::Reasoning) {
            self.thought += tokens;
        }
        match part {
            Part::Text(text) | Part::Reasoning(text) => self.text.push_str(text),
            Part::ToolStart { index, id, name } => {
                self.calls += 1;
                let start = self.text.len();
                match id {
                    Some(id) => self.text.push_str(id),
                    None => self.ids.write(index, &mut self.text),
                }
                let id = self.text.len() - start;
                if let Some(slot) = self.slots.last_mut() {
                    slot.kind = SlotKind::Start(index, id);
                }
                self.text.push_str(name);
            }
            Part::ToolArgs { fragment, .. } => self.text.push_str(fragment),
            Part::ToolEnd { .. } => {}
        }
    }

    /// Entries that no part has are given to one more, of no text.
    pub fn add_entries(&mut self, entries: usize) {
        if entries > self.slots.last().map_or(0, |slot| slot.entries) {
            self.add(Part::Text(""), entries);
        }
    }

    /// The open step is over: who has its last part has all of it.
    pub fn end_step(&mut self) {
        self.steps += 1;
        let has_part = std::mem::take(&mut self.parts) > 0;
        if let Some(last) = self.slots.last_mut().filter(|_| has_part) {
            last.reached = Position::whole(self.steps);
        }
    }

    /// Calls begun so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Tokens of reasoning so far.
    pub fn thought(&self) -> u64 {
        self.thought
    }

    /// Whether there is anything the reader does not have.
    pub fn has_news(&self) -> bool {
        self.slots.last().is_some_and(|slot| !slot.is_known)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Told<'_>> {
        self.slots.iter().enumerate().map(|(at, slot)| {
            let end = self.slots.get(at + 1).map_or(self.text.len(), |s| s.start);
            let text = &self.text[slot.start..end];
            let said = match slot.kind {
                SlotKind::Text(kind) => Said::Text(kind, text),
                SlotKind::Start(index, id) => {
                    let (id, name) = text.split_at(id);
                    Said::CallStart { index, id, name }
                }
                SlotKind::Args(index) => Said::CallArgs {
                    index,
                    fragment: text,
                },
                SlotKind::End(index) => Said::CallEnd { index },
            };
            Told {
                said,
                reached: slot.reached,
                read: slot.read,
                is_known: slot.is_known,
                entries: slot.entries,
            }
        })
    }

    /// Forgets them. Gives how many entries they had.
    pub fn clear(&mut self) -> usize {
        let entries = self.slots.last().map_or(0, |slot| slot.entries);
        self.text.clear();
        self.slots.clear();
        entries
    }

    /// One more, or the last one again where this is more of it.
    fn slot(&mut self, kind: SlotKind, entries: usize) {
        self.parts += 1;
        let reached = Position {
            steps: self.steps,
            parts: self.parts,
        };
        let is_known = reached <= self.known;
        let (read, start) = (self.read, self.text.len());
        let slot = Slot {
            kind,
            start,
            reached,
            read,
            is_known,
            entries,
        };
        let goes_on = matches!(kind, SlotKind::Text(_) | SlotKind::Args(_));
        match self.slots.last_mut() {
            Some(last) if goes_on && last.kind == kind && last.is_known == is_known => {
                *last = Slot {
                    start: last.start,
                    ..slot
                };
            }
            _ => self.slots.push(slot),
        }
    }
}
