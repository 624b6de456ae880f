//! Calls written as tags: the name, then key and value of each parameter as plain text.

use super::answer_parts::PartWriter;
use super::named_call::{NAME_BYTES_MAX, trimmed_name};
use super::parameter_value::ParameterValue;
use super::tool_schemas::ToolSchemas;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank, push_escaped};
use std::sync::Arc;

/// Tags of a family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TagSyntax {
    /// Closes the name; if empty, the first key or the end of the call closes the name.
    pub(super) name_close: &'static str,
    pub(super) key_open: &'static str,
    pub(super) key_close: &'static str,
    /// Precedes the value; may be empty.
    pub(super) value_open: &'static str,
    pub(super) value_close: &'static str,
    /// Ends the call.
    pub(super) end: &'static str,
    /// Whether a value's leading and trailing line breaks belong to the tags.
    pub(super) lines: bool,
}

/// Parser of one tagged call.
#[derive(Debug)]
pub(super) struct TaggedCall {
    tags: &'static TagSyntax,
    schemas: Arc<ToolSchemas>,
    state: TagState,
    name: String,
    /// A key, or a prefix of a tag.
    held: String,
    value: ParameterValue,
    /// Number of parameters so far.
    count: usize,
    literal: ValueConverter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagState {
    Name,
    /// Before a key, the end of the call, or all arguments as one JSON object.
    Open,
    Key,
    ValueOpen,
    Value,
    /// All arguments as one JSON object.
    Json,
}

impl TaggedCall {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(tags: &'static TagSyntax, schemas: Arc<ToolSchemas>) -> Self {
        Self {
            tags,
            schemas,
            state: TagState::Name,
            name: String::new(),
            held: String::new(),
            value: ParameterValue::new(tags.value_close, tags.lines),
            count: 0,
            literal: ValueConverter::new(ValueStyle::Json),
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        match self.state {
            TagState::Name => self.name(c, out),
            TagState::Open => self.open(c, out),
            TagState::Key => self.key(c, out),
            TagState::ValueOpen => self.value_open(c, out),
            TagState::Value => self.value(c, out),
            TagState::Json => self.literal.step_arguments(c, out),
        }
    }

    fn name(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if self.name.len() + c.len_utf8() > NAME_BYTES_MAX {
            return StepResult::Fail;
        }
        self.name.push(c);
        let tags = self.tags;
        let named = |close: &str| !close.is_empty() && self.name.ends_with(close);
        let closed = if tags.name_close.is_empty() {
            [tags.key_open, tags.end].into_iter().find(|tag| named(tag))
        } else {
            Some(tags.name_close).filter(|close| named(close))
        };
        let Some(close) = closed else {
            return StepResult::More;
        };
        out.count_examined(self.name.len());
        let Some(name) = trimmed_name(&self.name[..self.name.len() - close.len()]) else {
            return StepResult::Fail;
        };
        self.name = name.to_owned();
        match close {
            close if close == tags.name_close => {
                self.state = TagState::Open;
                StepResult::More
            }
            tag => self.tag(tag, out),
        }
    }

    /// Handles the tag that opens a key or ends the call.
    fn tag(&mut self, tag: &str, out: &mut PartWriter<'_>) -> StepResult {
        self.held.clear();
        if !out.is_open() {
            out.start_call(&self.name, "");
        }
        if tag == self.tags.key_open {
            self.state = TagState::Key;
            return StepResult::More;
        }
        out.arguments()
            .push_str(if self.count == 0 { "{}" } else { "}" });
        out.end_call();
        StepResult::Done
    }

    fn open(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if self.held.is_empty() && is_blank(c) {
            return StepResult::More;
        }
        if self.held.is_empty() && c == '{' && self.count == 0 {
            out.start_call(&self.name, "");
            self.state = TagState::Json;
            return self.literal.step_arguments(c, out);
        }
        self.held.push(c);
        out.count_examined(self.held.len());
        let tags = [self.tags.key_open, self.tags.end];
        if let Some(tag) = tags.into_iter().find(|&tag| tag == self.held) {
            return self.tag(tag, out);
        }
        if tags.iter().any(|tag| tag.starts_with(&self.held)) {
            return StepResult::More;
        }
        self.held.pop();
        StepResult::Fail
    }

    fn key(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if self.held.len() + c.len_utf8() > NAME_BYTES_MAX {
            return StepResult::Fail;
        }
        self.held.push(c);
        let Some(key) = self.held.strip_suffix(self.tags.key_close) else {
            return StepResult::More;
        };
        out.count_examined(key.len());
        let key = key.trim_matches(is_blank);
        if key.is_empty() {
            self.held.pop();
            return StepResult::Fail;
        }
        let kind = self.schemas.kind(&self.name, key);
        let args = out.arguments();
        args.push_str(if self.count == 0 { "{\"" } else { ", \"" });
        key.chars().for_each(|c| push_escaped(c, args));
        args.push_str("\": ");
        self.count += 1;
        self.held.clear();
        self.value.begin(kind);
        self.state = if self.tags.value_open.is_empty() {
            TagState::Value
        } else {
            TagState::ValueOpen
        };
        StepResult::More
    }

    fn value_open(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if self.held.is_empty() && is_blank(c) {
            return StepResult::More;
        }
        self.held.push(c);
        out.count_examined(self.held.len());
        if self.held == self.tags.value_open {
            self.held.clear();
            self.state = TagState::Value;
        } else if !self.tags.value_open.starts_with(&self.held) {
            return StepResult::Fail;
        }
        StepResult::More
    }

    fn value(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        let flow = self.value.step(c, out.arguments());
        out.count_examined(self.value.take_looked());
        if flow != StepResult::Done {
            return flow;
        }
        self.state = TagState::Open;
        StepResult::More
    }
}
