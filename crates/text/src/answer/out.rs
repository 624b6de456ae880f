//! Parts on their way out: collected while a piece of text is read, then told in order. Its buffers
//! are kept, so that in the steady state nothing is allocated.

use super::part::{Part, PartSink};

/// Parts that are certain and not told yet.
#[derive(Debug, Default)]
pub(super) struct Out {
    text: String,
    slots: Vec<Slot>,
    /// Calls begun so far.
    calls: u32,
    open: bool,
    /// Calls that broke off, and beginnings of calls that were none.
    broken: u32,
    /// The text ended in a call.
    cut: bool,
    /// Bytes that the machines looked at.
    looked: u64,
    /// Text is dropped: the answer has to be calls and nothing else.
    drops_text: bool,
}

/// One part; its text goes up to where the next one's begins.
#[derive(Clone, Copy, Debug)]
struct Slot {
    kind: Kind,
    start: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    /// A call begins: the text is the id, of this many bytes, and the name.
    Start(usize),
    Args,
    End,
}

impl Out {
    /// Drops text from now on.
    pub(super) fn drop_text(&mut self) {
        self.drops_text = true;
    }

    /// Where more of what the user is told goes.
    pub(super) fn text(&mut self) -> &mut String {
        self.more(Kind::Text)
    }

    /// Where more of what the model thinks goes.
    pub(super) fn reasoning(&mut self) -> &mut String {
        self.more(Kind::Reasoning)
    }

    /// Where more of the open call's arguments goes.
    pub(super) fn args(&mut self) -> &mut String {
        debug_assert!(self.open, "arguments belong to a call");
        self.more(Kind::Args)
    }

    /// A call begins.
    pub(super) fn start(&mut self, name: &str, id: &str) {
        debug_assert!(!self.open, "one call at a time");
        self.slot(Kind::Start(id.len()));
        self.text.push_str(id);
        self.text.push_str(name);
        (self.open, self.calls) = (true, self.calls + 1);
    }

    /// The open call is over.
    pub(super) fn end(&mut self) {
        debug_assert!(self.open, "only what began can end");
        self.slot(Kind::End);
        self.open = false;
    }

    /// Whether a call has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Changes whenever something becomes certain.
    pub(super) fn mark(&self) -> (usize, bool) {
        (self.text.len(), self.open)
    }

    /// Something that looked like a call was none, or broke off.
    pub(super) fn broke(&mut self) {
        self.broken += 1;
    }

    /// How often that happened.
    pub(super) fn broken(&self) -> u32 {
        self.broken
    }

    /// The text is over, and a call was not.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether that happened.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// So many bytes were looked at, or looked at again: who reads anything a second time says so here.
    pub(super) fn look(&mut self, bytes: usize) {
        self.looked += bytes as u64;
    }

    /// How many in all.
    pub(super) fn looked(&self) -> u64 {
        self.looked
    }

    /// Tells everything and forgets it.
    pub(super) fn tell(&mut self, sink: &mut (impl PartSink + ?Sized)) {
        let begun = |slot: &&Slot| matches!(slot.kind, Kind::Start(_));
        let new = self.slots.iter().filter(begun).count();
        let mut next = self.calls - u32::try_from(new).unwrap_or(self.calls);
        for (at, slot) in self.slots.iter().enumerate() {
            let end = self.slots.get(at + 1).map_or(self.text.len(), |s| s.start);
            let text = &self.text[slot.start..end];
            let index = next.saturating_sub(1);
            match slot.kind {
                Kind::Start(id) => {
                    let (id, name) = text.split_at(id);
                    let (index, id) = (next, Some(id).filter(|id| !id.is_empty()));
                    next += 1;
                    sink.part(Part::ToolStart { index, id, name });
                }
                Kind::End => sink.part(Part::ToolEnd { index }),
                _ if text.is_empty() => {}
                Kind::Text if self.drops_text => {}
                Kind::Text => sink.part(Part::Text(text)),
                Kind::Reasoning => sink.part(Part::Reasoning(text)),
                Kind::Args => sink.part(Part::ToolArgs {
                    index,
                    fragment: text,
                }),
            }
        }
        self.text.clear();
        self.slots.clear();
    }

    fn more(&mut self, kind: Kind) -> &mut String {
        if self.slots.last().is_none_or(|slot| slot.kind != kind) {
            self.slot(kind);
        }
        &mut self.text
    }

    fn slot(&mut self, kind: Kind) {
        let start = self.text.len();
        self.slots.push(Slot { kind, start });
    }
}
