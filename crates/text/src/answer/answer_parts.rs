//! Parts of an answer: the buffer that holds them, and the writer by which parsers append and count.

use std::ops::Range;

/// A part of an answer, with text of type `T`. Parts are final: no later part changes an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<T> {
    /// Content.
    Content(T),
    /// Reasoning.
    Reasoning(T),
    /// Start of a tool call.
    CallStart {
        /// Index of the call in the answer, from 0.
        index: u32,
        /// Id as the model wrote the id.
        id: Option<T>,
        /// Name of the tool; never empty.
        name: T,
    },
    /// A fragment of a call's arguments. The fragments of a complete call concatenate to one JSON value.
    CallArguments {
        /// Index of the call that started last.
        index: u32,
        /// Never empty.
        fragment: T,
    },
    /// End of a tool call. After a truncated or malformed call the fragments are incomplete.
    CallEnd {
        /// Index of the call.
        index: u32,
    },
}

impl<T> Part<T> {
    /// Whether text of this part continues `before`: content, reasoning, or arguments of one call.
    fn continues(&self, before: &Self) -> bool {
        match (before, self) {
            (Self::Content(_), Self::Content(_)) | (Self::Reasoning(_), Self::Reasoning(_)) => true,
            (Self::CallArguments { index: first, .. }, Self::CallArguments { index, .. }) => {
                first == index
            }
            _ => false,
        }
    }

    /// The text of a part that can be continued.
    fn text_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Content(text)
            | Self::Reasoning(text)
            | Self::CallArguments { fragment: text, .. } => Some(text),
            Self::CallStart { .. } | Self::CallEnd { .. } => None,
        }
    }
}

/// Parts of an answer in order, with their text in one buffer. An [`AnswerParser`](super::AnswerParser) appends final parts;
/// the reader clears them. Buffers are kept, so that a warm stream allocates nothing.
#[derive(Debug, Default)]
pub struct AnswerParts {
    text: String,
    parts: Vec<Part<Range<usize>>>,
    /// Whether the last part takes more text; its end is set when the part is closed.
    is_open: bool,
}

impl AnswerParts {
    /// Number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are no parts.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The part at `index`.
    ///
    /// # Panics
    /// If there are not so many parts.
    pub fn get(&self, index: usize) -> Part<&str> {
        let text = |range: &Range<usize>| &self.text[range.clone()];
        match &self.parts[index] {
            Part::Content(range) => Part::Content(text(range)),
            Part::Reasoning(range) => Part::Reasoning(text(range)),
            Part::CallStart { index, id, name } => Part::CallStart {
                index: *index,
                id: id.as_ref().map(text),
                name: text(name),
            },
            Part::CallArguments { index, fragment } => Part::CallArguments {
                index: *index,
                fragment: text(fragment),
            },
            Part::CallEnd { index } => Part::CallEnd { index: *index },
        }
    }

    /// All parts in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Part<&str>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Passes all parts to `each` in order, and removes them.
    pub fn drain_into(&mut self, each: impl FnMut(Part<&str>)) {
        self.iter().for_each(each);
        self.clear();
    }

    /// Removes all parts.
    pub fn clear(&mut self) {
        self.text.clear();
        self.parts.clear();
        self.is_open = false;
    }

    /// Appends content without text, for log-probabilities of tokens without text.
    pub fn push_empty_content(&mut self) {
        self.close();
        self.parts
            .push(Part::Content(self.text.len()..self.text.len()));
    }

    /// Appends the part at `index` to the preceding part of the same kind. False, without a change, if the part does not
    /// continue the preceding one.
    pub fn join(&mut self, index: usize) -> bool {
        let [.., before, part] = &mut self.parts[..=index] else {
            return false;
        };
        if !part.continues(before) {
            return false;
        }
        if let (Some(before), Some(part)) = (before.text_mut(), part.text_mut()) {
            before.end = part.end;
        }
        self.parts.remove(index);
        true
    }

    /// The buffer for more text of the last part, if that has the kind of `part`, or else of a new part.
    pub(super) fn extend(
        &mut self,
        part: impl Fn(Range<usize>) -> Part<Range<usize>>,
    ) -> &mut String {
        let end = self.text.len();
        let part = part(end..end);
        let continues = |last: &Part<Range<usize>>| self.is_open && part.continues(last);
        if !self.parts.last().is_some_and(continues) {
            self.close();
            self.parts.push(part);
            self.is_open = true;
        }
        &mut self.text
    }

    /// Appends the start of a call; an empty `id` is none.
    pub(super) fn start_call(&mut self, index: u32, name: &str, id: &str) {
        self.close();
        let mut push = |text: &str| {
            self.text.push_str(text);
            self.text.len() - text.len()..self.text.len()
        };
        let (id, name) = (push(id), push(name));
        self.parts.push(Part::CallStart {
            index,
            id: Some(id).filter(|id| !id.is_empty()),
            name,
        });
    }

    /// Appends a part of another buffer.
    pub(super) fn append(&mut self, part: Part<&str>) {
        match part {
            Part::Content(text) => self.extend(Part::Content).push_str(text),
            Part::Reasoning(text) => self.extend(Part::Reasoning).push_str(text),
            Part::CallStart { index, id, name } => {
                self.start_call(index, name, id.unwrap_or_default());
            }
            Part::CallArguments { index, fragment } => {
                let part = |fragment| Part::CallArguments { index, fragment };
                self.extend(part).push_str(fragment);
            }
            Part::CallEnd { index } => self.end_call(index),
        }
    }

    /// Appends the end of a call.
    pub(super) fn end_call(&mut self, index: u32) {
        self.close();
        self.parts.push(Part::CallEnd { index });
    }

    /// Closes the last part, so that further text begins a new part. A part without text is removed.
    pub(super) fn close(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let end = self.text.len();
        let range = self.parts.last_mut().and_then(Part::text_mut);
        if let Some(range) = range {
            range.end = end;
            if range.start == end {
                self.parts.pop();
            }
        }
    }

    /// Bytes of text in the buffer.
    pub(super) fn text_len(&self) -> usize {
        self.text.len()
    }
}

/// State of an answer that outlives one piece of text.
#[derive(Debug, Default)]
pub(super) struct WriterState {
    /// Number of calls started.
    calls: u32,
    /// Whether a call has started and not ended.
    is_open: bool,
    /// Number of malformed calls.
    broken: u32,
    /// Whether the text ended in a call.
    is_truncated: bool,
    /// Bytes examined.
    examined: u64,
    /// Receives content that is dropped, where the answer must consist of calls.
    dropped: Option<String>,
}

impl WriterState {
    /// Drops content from now on.
    pub(super) fn drop_content(&mut self) {
        self.dropped = Some(String::new());
    }

    pub(super) fn broken(&self) -> u32 {
        self.broken
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(super) fn examined(&self) -> u64 {
        self.examined
    }
}

/// Appends the parts of one piece of text. Text of one kind without other parts between forms one part.
pub(super) struct PartWriter<'a> {
    parts: &'a mut AnswerParts,
    state: &'a mut WriterState,
}

impl<'a> PartWriter<'a> {
    pub(super) fn new(parts: &'a mut AnswerParts, state: &'a mut WriterState) -> Self {
        parts.close();
        Self { parts, state }
    }

    /// Closes the last part.
    pub(super) fn finish(self) {
        self.parts.close();
        if let Some(dropped) = &mut self.state.dropped {
            dropped.clear();
        }
    }

    /// The buffer for content.
    pub(super) fn content(&mut self) -> &mut String {
        match &mut self.state.dropped {
            Some(dropped) => {
                self.parts.close();
                dropped
            }
            None => self.parts.extend(Part::Content),
        }
    }

    /// The buffer for reasoning.
    pub(super) fn reasoning(&mut self) -> &mut String {
        self.parts.extend(Part::Reasoning)
    }

    /// The buffer for arguments of the open call.
    pub(super) fn arguments(&mut self) -> &mut String {
        debug_assert!(self.state.is_open, "arguments belong to a call");
        let index = self.call_index();
        self.parts
            .extend(|fragment| Part::CallArguments { index, fragment })
    }

    /// Starts a call; an empty `id` is none.
    pub(super) fn start_call(&mut self, name: &str, id: &str) {
        debug_assert!(!self.state.is_open, "one call at a time");
        self.parts.start_call(self.state.calls, name, id);
        self.state.is_open = true;
        self.state.calls += 1;
    }

    /// Ends the open call.
    pub(super) fn end_call(&mut self) {
        debug_assert!(self.state.is_open, "only an open call can end");
        self.parts.end_call(self.call_index());
        self.state.is_open = false;
    }

    /// Whether a call has started and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.state.is_open
    }

    /// A value that changes with every output.
    pub(super) fn progress(&self) -> (usize, bool) {
        (self.parts.text_len(), self.state.is_open)
    }

    /// Counts a malformed call.
    pub(super) fn count_broken(&mut self) {
        self.state.broken += 1;
    }

    /// Records that the text ended in a call.
    pub(super) fn set_truncated(&mut self) {
        self.state.is_truncated = true;
    }

    /// Counts examined bytes, once for each time that they are examined.
    pub(super) fn count_examined(&mut self, bytes: usize) {
        self.state.examined += bytes as u64;
    }

    /// Index of the call that started last.
    fn call_index(&self) -> u32 {
        self.state.calls.saturating_sub(1)
    }
}
