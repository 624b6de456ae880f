//! Parts of an answer, and the buffer that holds them.

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
