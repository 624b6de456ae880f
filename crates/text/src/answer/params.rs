//! Calls written as tags: the name, then key and value of each parameter as plain text.

use super::escape::{is_blank, push_escaped};
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::named::{NAME_BYTES_MAX, trimmed_name};
use super::parameter_value::ParameterValue;
use super::part_writer::PartWriter;
use super::schemas::ToolSchemas;
use std::sync::Arc;

/// Tags of a family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tags {
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
pub(super) struct Params {
    tags: &'static Tags,
    schemas: Arc<ToolSchemas>,
    at: At,
    name: String,
    /// A key, or a prefix of a tag.
    held: String,
    value: ParameterValue,
    /// Number of parameters so far.
    count: usize,
    literal: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Name,
    /// Before a key, the end of the call, or all arguments as one JSON object.
    Open,
    Key,
    ValueOpen,
    Value,
    /// All arguments as one JSON object.
    Json,
}

impl Params {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(tags: &'static Tags, schemas: Arc<ToolSchemas>) -> Self {
        Self {
            tags,
            schemas,
            at: At::Name,
            name: String::new(),
            held: String::new(),
            value: ParameterValue::new(tags.value_close, tags.lines),
            count: 0,
            literal: Literal::new(Style::Json),
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        match self.at {
            At::Name => self.name(c, out),
            At::Open => self.open(c, out),
            At::Key => self.key(c, out),
            At::ValueOpen => self.value_open(c, out),
            At::Value => self.value(c, out),
            At::Json => self.json(c, out),
        }
    }

    fn name(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if self.name.len() + c.len_utf8() > NAME_BYTES_MAX {
            return Flow::Fail;
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
            return Flow::More;
        };
        out.count_examined(self.name.len());
        let Some(name) = trimmed_name(&self.name[..self.name.len() - close.len()]) else {
            return Flow::Fail;
        };
        self.name = name.to_owned();
        match close {
            close if close == tags.name_close => {
                self.at = At::Open;
                Flow::More
            }
            tag => self.tag(tag, out),
        }
    }

    /// Handles the tag that opens a key or ends the call.
    fn tag(&mut self, tag: &str, out: &mut PartWriter<'_>) -> Flow {
        self.held.clear();
        if !out.is_open() {
            out.start_call(&self.name, "");
        }
        if tag == self.tags.key_open {
            self.at = At::Key;
            return Flow::More;
        }
        out.arguments()
            .push_str(if self.count == 0 { "{}" } else { "}" });
        out.end_call();
        Flow::Done
    }

    fn open(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if self.held.is_empty() && is_blank(c) {
            return Flow::More;
        }
        if self.held.is_empty() && c == '{' && self.count == 0 {
            out.start_call(&self.name, "");
            self.at = At::Json;
            return self.json(c, out);
        }
        self.held.push(c);
        out.count_examined(self.held.len());
        let tags = [self.tags.key_open, self.tags.end];
        if let Some(tag) = tags.into_iter().find(|&tag| tag == self.held) {
            return self.tag(tag, out);
        }
        if tags.iter().any(|tag| tag.starts_with(&self.held)) {
            return Flow::More;
        }
        self.held.pop();
        Flow::Fail
    }

    fn json(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        let flow = self.literal.step(c, out.arguments());
        if flow == Flow::Done {
            out.end_call();
        }
        flow
    }

    fn key(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if self.held.len() + c.len_utf8() > NAME_BYTES_MAX {
            return Flow::Fail;
        }
        self.held.push(c);
        let Some(key) = self.held.strip_suffix(self.tags.key_close) else {
            return Flow::More;
        };
        out.count_examined(key.len());
        let key = key.trim_matches(is_blank);
        if key.is_empty() {
            self.held.pop();
            return Flow::Fail;
        }
        let kind = self.schemas.kind(&self.name, key);
        let args = out.arguments();
        args.push_str(if self.count == 0 { "{\"" } else { ", \"" });
        key.chars().for_each(|c| push_escaped(c, args));
        args.push_str("\": ");
        self.count += 1;
        self.held.clear();
        self.value.begin(kind);
        self.at = if self.tags.value_open.is_empty() {
            At::Value
        } else {
            At::ValueOpen
        };
        Flow::More
    }

    fn value_open(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        if self.held.is_empty() && is_blank(c) {
            return Flow::More;
        }
        self.held.push(c);
        out.count_examined(self.held.len());
        if self.held == self.tags.value_open {
            self.held.clear();
            self.at = At::Value;
        } else if !self.tags.value_open.starts_with(&self.held) {
            return Flow::Fail;
        }
        Flow::More
    }

    fn value(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        let flow = self.value.step(c, out.arguments());
        out.count_examined(self.value.take_looked());
        if flow != Flow::Done {
            return flow;
        }
        self.at = At::Open;
        Flow::More
    }
}
