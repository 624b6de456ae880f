//! Parser of answers with delimited reasoning and tool calls in running text.
//!
//! # Law
//! The parser works character by character: each step depends only on the preceding characters, so the
//! division of the text into pieces cannot matter. Emitted output is final. Only ambiguous text is held back:
//! a prefix of a delimiter, white space that a delimiter may follow, the head of an unconfirmed call.
//!
//! # States
//! *Text* and *reasoning* search for delimiters; *between* expects calls, after the delimiter that opens a
//! section of calls, or a code fence, and after each call; in *body* a call parser runs. `raw` holds consumed text that no
//! emitted part represents. When a call parser rejects a character, an open call ends, `raw` becomes content,
//! and the character is parsed again as content: no text is lost, and no text is parsed three times.
//!
//! White space next to delimiters belongs to the delimiters and is not emitted.

use super::answer_parts::PartWriter;
use super::call_parser::CallParser;
use super::family_syntax::{
    CallBody, DelimiterEffect, DelimiterPlace, FENCE_END, FamilyDelimiter, FamilySyntax,
    ReasoningDelimiters, all_markers,
};
use super::tool_schemas::ToolSchemas;
use super::value_converter::{StepResult, is_blank};
use std::sync::Arc;

/// Largest head of an unconfirmed call, in bytes; a longer head is content.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest run of white space held back before a possible delimiter; a longer run is emitted.
pub const BLANKS_HELD_MAX: usize = 256;
/// Longest delimiter, in characters.
const MARKER_CHARS_MAX: usize = 48;

/// Parser of delimited answers.
#[derive(Debug, Default)]
pub(super) struct DelimitedParser {
    /// `None`: calls are not parsed.
    tools: Option<(&'static FamilySyntax, Arc<ToolSchemas>)>,
    thoughts: Option<&'static ReasoningDelimiters>,
    /// Delimiters of calls: the family's own, then those of bare calls.
    markers: Vec<FamilyDelimiter>,
    state: TextState,
    /// State to return to when a call is rejected.
    back: TextState,
    /// Whether no content came since the beginning, the reasoning or a call.
    fresh: bool,
    /// Whether a delimiter directly precedes; white space is dropped.
    lead: bool,
    /// White space, then a prefix of a delimiter.
    held: String,
    /// Bytes of white space in `held`.
    blanks: usize,
    raw: String,
    /// Whether the current call is undelimited and recognized only by content.
    bare: bool,
    /// Whether calls without the family's delimiters are recognized.
    takes_bare: bool,
    /// Delimiter that may follow the last call.
    close: &'static str,
    /// Whether the calls are in a code fence.
    is_fenced: bool,
    /// Whether only white space and delimiters followed the last call; then held text belongs to calls.
    after_call: bool,
    body: CallParser,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextState {
    #[default]
    Text,
    Reasoning,
    Between,
    CallBody,
}

/// Match of a text against the delimiters that are valid in the current state.
enum DelimiterMatch {
    /// The effect, and the delimiter that may follow the call.
    FamilyDelimiter(DelimiterEffect, &'static str),
    Beginning,
    Nothing,
}

impl DelimitedParser {
    /// A parser at the beginning of an answer.
    pub(super) fn new(
        tools: Option<(&'static FamilySyntax, Arc<ToolSchemas>)>,
        thoughts: Option<&'static ReasoningDelimiters>,
        in_reasoning: bool,
    ) -> Self {
        let at = if in_reasoning {
            TextState::Reasoning
        } else {
            TextState::Text
        };
        let syntax = tools.as_ref().map(|(syntax, _)| *syntax);
        let markers = syntax.map(|syntax| all_markers(syntax, thoughts).copied());
        Self {
            markers: markers.into_iter().flatten().collect(),
            tools,
            thoughts,
            state: at,
            back: at,
            fresh: true,
            lead: in_reasoning,
            takes_bare: true,
            ..Self::default()
        }
    }

    /// From now on only the family's delimiters begin a call.
    pub(super) fn reject_bare_calls(&mut self) {
        self.takes_bare = false;
    }

    /// Consumes text.
    pub(super) fn push(&mut self, text: &str, out: &mut PartWriter<'_>) {
        for (at, c) in text.char_indices() {
            if self.is_plain() {
                return out.content().push_str(&text[at..]);
            }
            self.step(c, out);
        }
    }

    /// Ends the answer and emits held text. The beginning of a further call, and text between calls, are
    /// dropped: neither is content.
    pub(super) fn finish(&mut self, out: &mut PartWriter<'_>) {
        let after_call = self.after_call;
        if self.state == TextState::CallBody
            || (self.state == TextState::Between && !self.raw.is_empty())
        {
            let is_begun = self.state == TextState::CallBody || !self.bare;
            if self.is_call(out) || (after_call && is_begun) {
                out.set_truncated();
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
            let into = if self.state == TextState::Reasoning {
                out.reasoning()
            } else {
                out.content()
            };
            into.push_str(&self.held);
        }
        self.held.clear();
        self.blanks = 0;
    }

    /// Bytes of text that no part has yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.raw.len() + self.held.len()
    }

    /// Whether only content can follow.
    fn is_plain(&self) -> bool {
        let thinks = |thoughts: &ReasoningDelimiters| self.fresh || !thoughts.drops.is_empty();
        self.state == TextState::Text
            && self.held.is_empty()
            && self.tools.is_none()
            && !self.thoughts.is_some_and(thinks)
    }

    fn step(&mut self, c: char, out: &mut PartWriter<'_>) {
        out.count_examined(c.len_utf8());
        match self.state {
            TextState::CallBody => self.in_body(c, out),
            TextState::Text | TextState::Reasoning | TextState::Between => self.scan(c, out),
        }
    }

    fn scan(&mut self, c: char, out: &mut PartWriter<'_>) {
        if self.held.len() == self.blanks && is_blank(c) {
            return self.blank(c, out);
        }
        self.held.push(c);
        out.count_examined(self.held.len() - self.blanks);
        match self.find(&self.held[self.blanks..]) {
            DelimiterMatch::FamilyDelimiter(then, close) => self.hit((then, close), out),
            DelimiterMatch::Beginning => {}
            DelimiterMatch::Nothing if self.state == TextState::Between => self.leave(out),
            DelimiterMatch::Nothing => self.settle(out),
        }
    }

    fn blank(&mut self, c: char, out: &mut PartWriter<'_>) {
        if self.state == TextState::Between {
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

    /// Matches a text against the delimiters that are valid in the current state.
    fn find(&self, text: &str) -> DelimiterMatch {
        let mut begins = false;
        let mut look = |marker: &str| {
            begins |= marker.starts_with(text);
            begins && marker == text
        };
        let thinking = self.state == TextState::Reasoning;
        if let Some(thoughts) = self.thoughts.filter(|_| self.state != TextState::Between) {
            if thinking && thoughts.closes.iter().any(|text| look(text)) {
                return DelimiterMatch::FamilyDelimiter(DelimiterEffect::Answer, "");
            }
            if self.fresh && thoughts.opens.iter().any(|text| look(text)) {
                return DelimiterMatch::FamilyDelimiter(DelimiterEffect::Think, "");
            }
            if !thinking && thoughts.drops.iter().any(|text| look(text)) {
                return DelimiterMatch::FamilyDelimiter(DelimiterEffect::Drop, "");
            }
        }
        let is_closing = self.state == TextState::Between && !self.close.is_empty();
        if is_closing && look(self.close) {
            return DelimiterMatch::FamilyDelimiter(DelimiterEffect::CallEnd, "");
        }
        let is_between = self.fresh || self.state == TextState::Between;
        let ends_fence = self.is_fenced && self.after_call && is_between;
        if ends_fence && look(FENCE_END) {
            return DelimiterMatch::FamilyDelimiter(DelimiterEffect::FenceEnd, "");
        }
        let tools = self.tools.as_ref();
        if let Some((syntax, _)) = tools.filter(|(syntax, _)| !thinking || syntax.ends_reasoning) {
            let counts = |place| match place {
                DelimiterPlace::Anywhere => true,
                DelimiterPlace::Start => {
                    self.state == TextState::Between
                        || (self.state == TextState::Text && self.fresh)
                }
                DelimiterPlace::Between => self.state == TextState::Between,
            };
            let markers = if self.takes_bare {
                &self.markers[..]
            } else {
                &self.markers[..syntax.markers.len()]
            };
            for marker in markers.iter().filter(|marker| counts(marker.place)) {
                if look(marker.text) {
                    return DelimiterMatch::FamilyDelimiter(marker.then, marker.close);
                }
            }
        }
        if begins {
            DelimiterMatch::Beginning
        } else {
            DelimiterMatch::Nothing
        }
    }

    /// Handles a complete delimiter, which is held.
    fn hit(&mut self, (then, close): (DelimiterEffect, &'static str), out: &mut PartWriter<'_>) {
        if matches!(self.state, TextState::Text | TextState::Reasoning) {
            self.back = self.state;
            self.raw.clear();
        }
        self.bare = is_bare(then) && (self.bare || self.raw.is_empty());
        let (held, blanks) = (std::mem::take(&mut self.held), self.blanks);
        self.blanks = 0;
        match then {
            DelimiterEffect::CallHere(body) => {
                self.raw.push_str(&held[..blanks]);
                self.begin_call(body, close);
                held[blanks..].chars().for_each(|c| self.step(c, out));
            }
            DelimiterEffect::Call(body) => {
                self.raw.push_str(&held);
                self.begin_call(body, close);
            }
            DelimiterEffect::Section if self.state == TextState::Between && self.raw.is_empty() => {
            }
            DelimiterEffect::Section | DelimiterEffect::Separator | DelimiterEffect::Fence => {
                self.raw.push_str(&held);
                self.state = TextState::Between;
                self.is_fenced |= then == DelimiterEffect::Fence;
            }
            // A section without calls.
            DelimiterEffect::Close if !(self.raw.is_empty() || self.bare && self.after_call) => {
                self.raw.push_str(&held);
                self.fall(out);
            }
            DelimiterEffect::CallEnd | DelimiterEffect::Close => {
                self.close = "";
                self.raw.clear();
            }
            DelimiterEffect::FenceEnd => {
                self.is_fenced = false;
                self.raw.clear();
                self.lead = true;
            }
            DelimiterEffect::Think => self.go(TextState::Reasoning),
            DelimiterEffect::Answer => self.go(TextState::Text),
            DelimiterEffect::Drop => self.lead = true,
        }
    }

    fn begin_call(&mut self, body: CallBody, close: &'static str) {
        let schemas = self.tools.as_ref().map(|(_, schemas)| schemas);
        self.body = CallParser::new(body, schemas);
        self.close = close;
        self.state = TextState::CallBody;
    }

    fn go(&mut self, at: TextState) {
        self.state = at;
        self.after_call &= at == TextState::Text;
        (self.fresh, self.lead, self.close) = (true, true, "");
    }

    /// Leaves the section: other text follows where calls were expected.
    fn leave(&mut self, out: &mut PartWriter<'_>) {
        // The white space is already in `raw`.
        let held = std::mem::take(&mut self.held);
        if self.raw.is_empty() {
            self.go(TextState::Text);
        } else {
            self.fall(out);
        }
        held.chars().for_each(|c| self.step(c, out));
    }

    fn in_body(&mut self, c: char, out: &mut PartWriter<'_>) {
        let before = out.progress();
        let flow = self.body.step(c, out);
        if out.progress() != before {
            self.raw.clear();
            self.after_call = true;
        } else if matches!(flow, StepResult::More | StepResult::Done) {
            self.raw.push(c);
        }
        match flow {
            StepResult::More if self.raw.len() <= HEAD_BYTES_MAX => {}
            StepResult::More => self.fall(out),
            StepResult::Done | StepResult::DoneBefore => {
                self.raw.clear();
                self.state = TextState::Between;
                if flow == StepResult::DoneBefore {
                    self.step(c, out);
                }
            }
            StepResult::Fail => {
                self.fall(out);
                self.step(c, out);
            }
        }
    }

    /// Whether the text being parsed is certainly a call: delimited, or already started.
    fn is_call(&self, out: &PartWriter<'_>) -> bool {
        out.is_open() || !self.bare
    }

    /// Abandons a call that is malformed or truncated.
    fn fall(&mut self, out: &mut PartWriter<'_>) {
        if self.is_call(out) {
            out.count_broken();
        }
        self.give_up(out);
    }

    /// Emits unrepresented text unchanged.
    fn give_up(&mut self, out: &mut PartWriter<'_>) {
        out.count_examined(self.raw.len());
        // A delimited call cannot be part of the reasoning.
        let thinking = self.back == TextState::Reasoning && !out.is_open();
        if out.is_open() {
            out.end_call();
        }
        self.state = if thinking {
            TextState::Reasoning
        } else {
            TextState::Text
        };
        let into = if thinking {
            out.reasoning()
        } else {
            out.content()
        };
        into.push_str(&self.raw);
        self.raw.clear();
        self.held.clear();
        self.blanks = 0;
        (self.fresh, self.lead, self.after_call) = (false, false, false);
        (self.is_fenced, self.close) = (false, "");
    }

    /// Emits the first held character, which begins no delimiter, and parses the rest again.
    fn settle(&mut self, out: &mut PartWriter<'_>) {
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

    /// Emits the first bytes of the held text, and drops the rest.
    fn say_held(&mut self, bytes: usize, out: &mut PartWriter<'_>) {
        let into = if self.state == TextState::Reasoning {
            out.reasoning()
        } else {
            out.content()
        };
        into.push_str(&self.held[..bytes]);
        self.fresh &= bytes == self.blanks;
        self.after_call &= bytes == self.blanks;
        self.lead = false;
        self.held.clear();
        self.blanks = 0;
    }
}

/// Whether the delimiter's calls are recognized only by content.
fn is_bare(then: DelimiterEffect) -> bool {
    match then {
        DelimiterEffect::CallHere(_) | DelimiterEffect::Separator | DelimiterEffect::Fence => true,
        DelimiterEffect::Call(body) => matches!(body, CallBody::BareJson | CallBody::BarePython),
        _ => false,
    }
}
