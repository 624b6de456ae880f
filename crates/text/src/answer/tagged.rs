//! The one machine for every family that marks its calls and thoughts in running text.
//!
//! # Law
//!
//! It is driven by characters: what it does at one depends on those before it and on nothing else.
//! So how the text was cut cannot matter. What it gives is final. Held back is only what is
//! ambiguous: the beginning of a marker, blanks that a marker may follow, a call's head until it is
//! certain to be a call.
//!
//! # States
//!
//! *Text* and *reasoning* look for markers; *between* is where calls are expected, after the marker
//! that opens a section of them and after each call; in a *body* one of the machines reads a call.
//! Whatever was read and is not represented by something given stands in `raw`. When a machine says
//! that a character cannot stand where it stands, a call that began ends there, `raw` becomes text,
//! and the character is read again as text: nothing is lost, and nothing is read three times.
//!
//! Blanks around markers belong to the markers: they are not told.

use super::body::Machine;
use super::escape::is_blank;
use super::flow::Flow;
use super::out::Out;
use super::schemas::ToolSchemas;
use super::syntax::{Body, Place, Syntax, Then, Thoughts};
use std::sync::Arc;

/// Bytes that may be held while it is not certain whether they are a call: more are text.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Blanks that are held because a marker may follow: more are told.
pub const BLANKS_HELD_MAX: usize = 256;
/// Characters of the longest marker.
pub(super) const MARKER_CHARS_MAX: usize = 48;

/// The machine.
#[derive(Debug)]
pub(super) struct Tagged {
    /// `None`: calls are not looked for.
    tools: Option<(&'static Syntax, Arc<ToolSchemas>)>,
    thoughts: Option<&'static Thoughts>,
    at: At,
    /// Where a call's failure leads back to.
    back: At,
    /// Nothing was said since the beginning, the reasoning or a call.
    fresh: bool,
    /// A marker came just before: blanks are dropped.
    lead: bool,
    /// Blanks, then the beginning of a marker.
    held: String,
    /// Bytes of those blanks.
    blanks: usize,
    raw: String,
    /// Nothing marks what is read as a call but what it says.
    bare: bool,
    /// A call was told, and nothing but blanks and markers came after it: what is held belongs to calls.
    after_call: bool,
    body: Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Text,
    Reasoning,
    Between,
    Body,
}

/// What a text is among the markers that count here.
enum Found {
    Marker(Then),
    Beginning,
    Nothing,
}

impl Tagged {
    /// At the beginning of an answer.
    pub(super) fn new(
        tools: Option<(&'static Syntax, Arc<ToolSchemas>)>,
        thoughts: Option<&'static Thoughts>,
        in_reasoning: bool,
    ) -> Self {
        let at = if in_reasoning {
            At::Reasoning
        } else {
            At::Text
        };
        Self {
            tools,
            thoughts,
            at,
            back: at,
            fresh: true,
            lead: in_reasoning,
            held: String::new(),
            blanks: 0,
            raw: String::new(),
            bare: false,
            after_call: false,
            body: Machine::None,
        }
    }

    /// Takes more text.
    pub(super) fn push(&mut self, text: &str, out: &mut Out) {
        for (at, c) in text.char_indices() {
            if self.is_plain() {
                return out.text().push_str(&text[at..]);
            }
            self.step(c, out);
        }
    }

    /// The text is over: gives what was held. The beginning of a further call is dropped, and so is what stands
    /// between calls: neither is content.
    pub(super) fn finish(&mut self, out: &mut Out) {
        let after_call = self.after_call;
        if self.at == At::Body || (self.at == At::Between && !self.raw.is_empty()) {
            if self.is_call(out) || after_call {
                out.cut();
            }
            if after_call {
                self.raw.clear();
            }
            self.give_up(out);
        }
        if after_call {
            self.held.clear();
        }
        if !self.held.is_empty() {
            let into = if self.at == At::Reasoning {
                out.reasoning()
            } else {
                out.text()
            };
            into.push_str(&self.held);
        }
        self.held.clear();
        self.blanks = 0;
    }

    /// Whether nothing can come any more but text.
    fn is_plain(&self) -> bool {
        let thinks = |thoughts: &Thoughts| self.fresh || !thoughts.drops.is_empty();
        self.at == At::Text
            && self.held.is_empty()
            && self.tools.is_none()
            && !self.thoughts.is_some_and(thinks)
    }

    fn step(&mut self, c: char, out: &mut Out) {
        out.look(c.len_utf8());
        match self.at {
            At::Body => self.in_body(c, out),
            At::Text | At::Reasoning | At::Between => self.scan(c, out),
        }
    }

    fn scan(&mut self, c: char, out: &mut Out) {
        if self.held.len() == self.blanks && is_blank(c) {
            return self.blank(c, out);
        }
        self.held.push(c);
        out.look(self.held.len() - self.blanks);
        match self.find(&self.held[self.blanks..]) {
            Found::Marker(then) => self.hit(then, c, out),
            Found::Beginning => {}
            Found::Nothing if self.at == At::Between => {
                self.leave(out);
                self.settle(out);
            }
            Found::Nothing => self.settle(out),
        }
    }

    fn blank(&mut self, c: char, out: &mut Out) {
        if self.at == At::Between {
            if !self.raw.is_empty() {
                self.raw.push(c);
            }
            if self.raw.len() > HEAD_BYTES_MAX {
                self.fall(out);
            }
            return;
        }
        if self.lead {
            return;
        }
        self.held.push(c);
        self.blanks += 1;
        if self.blanks > BLANKS_HELD_MAX {
            self.say_held(self.blanks, out);
        }
    }

    /// What the text is, among the markers that count here.
    fn find(&self, text: &str) -> Found {
        let mut begins = false;
        let mut look = |marker: &str| {
            begins |= marker.starts_with(text);
            begins && marker == text
        };
        let thinking = self.at == At::Reasoning;
        if let Some(thoughts) = self.thoughts.filter(|_| self.at != At::Between) {
            if thinking && thoughts.closes.iter().any(|text| look(text)) {
                return Found::Marker(Then::Answer);
            }
            if self.fresh && thoughts.opens.iter().any(|text| look(text)) {
                return Found::Marker(Then::Think);
            }
            if !thinking && thoughts.drops.iter().any(|text| look(text)) {
                return Found::Marker(Then::Drop);
            }
        }
        let tools = self.tools.as_ref();
        if let Some((syntax, _)) = tools.filter(|(syntax, _)| !thinking || syntax.ends_reasoning) {
            let counts = |place| match place {
                Place::Anywhere => true,
                Place::Start => self.at == At::Between || (self.at == At::Text && self.fresh),
                Place::Between => self.at == At::Between,
            };
            for marker in syntax.markers.iter().filter(|marker| counts(marker.place)) {
                if look(marker.text) {
                    return Found::Marker(marker.then);
                }
            }
        }
        if begins {
            Found::Beginning
        } else {
            Found::Nothing
        }
    }

    /// A marker is whole; `c` was its last character.
    fn hit(&mut self, then: Then, c: char, out: &mut Out) {
        if matches!(self.at, At::Text | At::Reasoning) {
            self.back = self.at;
            self.raw.clear();
        }
        if self.raw.is_empty() {
            self.bare = is_bare(then);
        }
        match then {
            Then::Call(body) | Then::CallHere(body) => {
                self.raw.push_str(&self.held);
                let schemas = self.tools.as_ref().map(|(_, schemas)| schemas);
                self.body = Machine::new(body, schemas);
                self.at = At::Body;
            }
            Then::Section if self.at == At::Between && self.raw.is_empty() => {}
            Then::Section => {
                self.raw.push_str(&self.held);
                self.at = At::Between;
            }
            Then::Close if self.raw.is_empty() => self.go(At::Text),
            // A section without calls.
            Then::Close => {
                self.raw.push_str(&self.held);
                self.fall(out);
            }
            Then::Think => self.go(At::Reasoning),
            Then::Answer => self.go(At::Text),
            Then::Drop => self.lead = true,
        }
        self.held.clear();
        self.blanks = 0;
        if let Then::CallHere(_) = then {
            self.raw.pop();
            self.in_body(c, out);
        }
    }

    fn go(&mut self, at: At) {
        self.at = at;
        self.after_call &= at == At::Text;
        (self.fresh, self.lead) = (true, true);
    }

    /// Where calls were expected comes something else.
    fn leave(&mut self, out: &mut Out) {
        if self.raw.is_empty() {
            self.go(At::Text);
            return;
        }
        // Its blanks were taken into `raw`.
        let held = std::mem::take(&mut self.held);
        self.fall(out);
        self.held = held;
    }

    fn in_body(&mut self, c: char, out: &mut Out) {
        let before = out.mark();
        let flow = self.body.step(c, out);
        if out.mark() != before {
            self.raw.clear();
            self.after_call = true;
        } else if matches!(flow, Flow::More | Flow::Done) {
            self.raw.push(c);
        }
        match flow {
            Flow::More if self.raw.len() <= HEAD_BYTES_MAX => {}
            Flow::More => self.fall(out),
            Flow::Done | Flow::DoneBefore => {
                self.raw.clear();
                self.at = At::Between;
                if flow == Flow::DoneBefore {
                    self.step(c, out);
                }
            }
            Flow::Fail => {
                self.fall(out);
                self.step(c, out);
            }
        }
    }

    /// Whether what is being read is a call for sure: it has begun, or something marks it as one.
    fn is_call(&self, out: &Out) -> bool {
        out.is_open() || !self.bare
    }

    /// What looked like a call was none, or breaks off.
    fn fall(&mut self, out: &mut Out) {
        if self.is_call(out) {
            out.broke();
        }
        self.give_up(out);
    }

    /// What was not given is told as it stands.
    fn give_up(&mut self, out: &mut Out) {
        out.look(self.raw.len());
        // What a call was said to be in cannot be thought any more.
        let thinking = self.back == At::Reasoning && !out.is_open();
        if out.is_open() {
            out.end();
        }
        self.at = if thinking { At::Reasoning } else { At::Text };
        let into = if thinking {
            out.reasoning()
        } else {
            out.text()
        };
        into.push_str(&self.raw);
        self.raw.clear();
        self.held.clear();
        self.blanks = 0;
        (self.fresh, self.lead, self.after_call) = (false, false, false);
    }

    /// What is held begins no marker: its first character is told, and the others are read again.
    fn settle(&mut self, out: &mut Out) {
        let mut again = ['\0'; MARKER_CHARS_MAX];
        let mut held = self.held[self.blanks..].chars();
        let first = held.next().map_or(0, char::len_utf8);
        let mut count = 0;
        for (place, c) in again.iter_mut().zip(held) {
            *place = c;
            count += 1;
        }
        self.say_held(self.blanks + first, out);
        for &c in &again[..count] {
            self.step(c, out);
        }
    }

    /// Tells the first bytes of what is held, and forgets the rest.
    fn say_held(&mut self, bytes: usize, out: &mut Out) {
        let into = if self.at == At::Reasoning {
            out.reasoning()
        } else {
            out.text()
        };
        into.push_str(&self.held[..bytes]);
        self.fresh &= bytes == self.blanks;
        self.after_call &= bytes == self.blanks;
        self.lead = false;
        self.held.clear();
        self.blanks = 0;
    }
}

/// Whether what follows is a call only if it says so itself.
fn is_bare(then: Then) -> bool {
    match then {
        Then::CallHere(_) => true,
        Then::Call(body) => matches!(body, Body::BareJson | Body::BarePython),
        _ => false,
    }
}
