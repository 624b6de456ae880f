//! Parts of an answer on their way to one reader: the parser appends parts while tokens are folded, and each part gets
//! its position here. Adjacent parts of one kind are joined. Buffers are kept, so that a warm stream allocates nothing.

use crate::output::parser_config::CallIds;
use crate::output::position::Position;
use std::ops::Range;
use text::{AnswerParts, Part};

/// A final part and the position of that part.
pub struct PlacedPart<'a> {
    /// The part.
    pub part: Part<&'a str>,
    /// Position of a reader that has the part.
    pub position: Position,
    /// Tokens folded up to the end of the part.
    pub read: u64,
    /// Whether the reader already has the part.
    pub is_known: bool,
    /// Log-probability entries up to the end of the part, of those not yet cleared.
    pub entries: usize,
}

/// Final parts that were not yet emitted.
pub struct PlacedParts {
    ids: CallIds,
    /// Position of the reader.
    known: Position,
    parts: AnswerParts,
    /// Position of each part.
    places: Vec<PartPlace>,
    /// Ids of calls for which the model wrote none.
    call_ids: String,
    /// Complete steps, parts of the open step, tokens folded, calls started.
    steps: u64,
    step_parts: u64,
    read: u64,
    calls: u32,
    /// Tokens with a part, and tokens of reasoning among them.
    placed: u64,
    reasoning: u64,
}

/// Position of one part.
#[derive(Clone)]
struct PartPlace {
    position: Position,
    read: u64,
    is_known: bool,
    entries: usize,
    /// Range of the generated id of a call.
    call_id: Range<usize>,
}

impl PlacedParts {
    /// Parts of an answer for a reader at `known`; `steps` precede the first token.
    pub fn new(ids: CallIds, known: Position, steps: u64) -> Self {
        Self {
            ids,
            known,
            parts: AnswerParts::default(),
            places: Vec::new(),
            call_ids: String::new(),
            steps,
            step_parts: 0,
            read: 0,
            calls: 0,
            placed: 0,
            reasoning: 0,
        }
    }

    /// Begins the next token.
    pub fn begin_token(&mut self) {
        self.read += 1;
    }

    /// The buffer that the parser appends to; then [`place_new`](Self::place_new).
    pub fn buffer(&mut self) -> &mut AnswerParts {
        &mut self.parts
    }

    /// Parts that the parser appended and that have no place yet.
    pub fn unplaced(&self) -> impl DoubleEndedIterator<Item = Part<&str>> + ExactSizeIterator {
        (self.places.len()..self.parts.len()).map(|index| self.parts.get(index))
    }

    /// Places the parts that the parser appended to the open step, of which `entries` entries are known by now.
    pub fn place_new(&mut self, entries: usize) {
        while self.places.len() < self.parts.len() {
            self.place_next(entries);
        }
    }

    /// Appends a part without text for entries that no part has.
    pub fn add_entries(&mut self, entries: usize) {
        if entries > self.places.last().map_or(0, |place| place.entries) {
            self.parts.push_empty_content();
            self.place_new(entries);
        }
    }

    /// Ends the open step: the position of the last part is the end of the step.
    pub fn end_step(&mut self) {
        self.steps += 1;
        let has_part = std::mem::take(&mut self.step_parts) > 0;
        if let Some(last) = self.places.last_mut().filter(|_| has_part) {
            last.position = Position::whole(self.steps);
        }
    }

    /// Calls started so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Tokens of reasoning so far.
    pub fn reasoning_tokens(&self) -> u64 {
        self.reasoning
    }

    /// Whether there is a part that the reader does not have.
    pub fn has_news(&self) -> bool {
        self.places.last().is_some_and(|place| !place.is_known)
    }

    /// All parts in order.
    pub fn iter(&self) -> impl Iterator<Item = PlacedPart<'_>> {
        self.parts.iter().zip(&self.places).map(|(part, place)| {
            let part = match part {
                Part::CallStart {
                    index,
                    id: None,
                    name,
                } => Part::CallStart {
                    index,
                    id: Some(&self.call_ids[place.call_id.clone()]),
                    name,
                },
                part => part,
            };
            PlacedPart {
                part,
                position: place.position,
                read: place.read,
                is_known: place.is_known,
                entries: place.entries,
            }
        })
    }

    /// Removes all parts; returns the number of their entries.
    pub fn clear(&mut self) -> usize {
        let entries = self.places.last().map_or(0, |place| place.entries);
        self.parts.clear();
        self.places.clear();
        self.call_ids.clear();
        entries
    }

    /// Places the first part without a position, or joins the part to the preceding one. `entries`: entries up to its end.
    pub fn place_next(&mut self, entries: usize) {
        let index = self.places.len();
        let call_id = self.count_part(index);
        self.step_parts += 1;
        let position = Position {
            steps: self.steps,
            parts: self.step_parts,
        };
        let is_known = position <= self.known;
        let place = PartPlace {
            position,
            read: self.read,
            is_known,
            entries,
            call_id,
        };
        match self.places.last_mut() {
            Some(last) if last.is_known == is_known && self.parts.join(index) => *last = place,
            _ => self.places.push(place),
        }
    }

    /// Counts a part and the tokens of that part; returns the range of a generated call id.
    fn count_part(&mut self, index: usize) -> Range<usize> {
        // Tokens of delimiters count with the part that follows.
        let tokens = self.read - std::mem::replace(&mut self.placed, self.read);
        let start = self.call_ids.len();
        match self.parts.get(index) {
            Part::Reasoning(_) => self.reasoning += tokens,
            Part::CallStart { index, id, .. } => {
                self.calls += 1;
                if id.is_none() {
                    self.ids.write(index, &mut self.call_ids);
                }
            }
            _ => {}
        }
        start..self.call_ids.len()
    }
}
