//! Calls written as JSON: one `{"name": .., "arguments": {..}}` object or a list of objects.
//!
//! A call starts when both the name and the beginning of the arguments are known; arguments that precede the
//! name are buffered. Also accepted: `parameters` for `arguments`, arguments as a string that contains JSON,
//! the shape `{"type": "function", "function": {..}}`, and unknown fields, which are skipped.

use super::escape::is_blank;
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::part_writer::PartWriter;
use super::schemas::ToolSchemas;
use std::sync::Arc;

/// Parser of one object or one list of objects.
#[derive(Debug)]
pub(super) struct JsonCalls {
    /// Set for undelimited text, which is a call only if all fields and the tool are known.
    strict: Option<Arc<ToolSchemas>>,
    at: At,
    list: bool,
    /// Inside the object under `function`.
    nested: bool,
    literal: Literal,
    /// A key, a name or an id while being read; arguments that must be buffered.
    read: String,
    name: String,
    id: String,
    /// Arguments that preceded the name, or that are a string.
    late: String,
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the object or list, or before an object of the list.
    Begin,
    Object,
    Key,
    KeyOrEnd,
    InKey,
    Colon(Field),
    Before(Field),
    Value(Field),
    After,
    /// Between objects of a list.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    /// An object; streamed if the name is known.
    Arguments,
    Id,
    /// A name, or an object with name and arguments.
    Function,
    Other,
}

impl JsonCalls {
    /// A parser before the first character. `strict`: the text is undelimited.
    pub(super) fn new(strict: Option<Arc<ToolSchemas>>) -> Self {
        Self {
            strict,
            at: At::Begin,
            list: false,
            nested: false,
            literal: Literal::new(Style::Json),
            read: String::new(),
            name: String::new(),
            id: String::new(),
            late: String::new(),
            began: false,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        match self.at {
            At::InKey => return self.in_key(c, out),
            At::Value(field) => return self.in_value(field, c, out),
            _ if is_blank(c) => return Flow::More,
            At::Before(field) => return self.before(field, c, out),
            _ => {}
        }
        match (self.at, c) {
            (At::Begin, '[') => {
                self.list = true;
                self.at = At::Object;
            }
            (At::Begin | At::Object, '{') => self.at = At::KeyOrEnd,
            (At::Key | At::KeyOrEnd, '"' | '\'') => {
                self.read.clear();
                self.literal = Literal::new(Style::Json);
                self.literal.step(c, &mut self.read);
                self.at = At::InKey;
            }
            (At::Colon(field), ':') => self.at = At::Before(field),
            (At::After, ',') => self.at = At::Key,
            (At::After | At::KeyOrEnd, '}') => return self.close(out),
            (At::Between, ',') => self.at = At::Object,
            (At::Between, ']') => return Flow::Done,
            _ => return Flow::Fail,
        }
        Flow::More
    }

    fn in_key(&mut self, c: char, out: &mut PartWriter<'_>) -> Flow {
        match self.literal.step(c, &mut self.read) {
            Flow::Done => {}
            flow => return flow,
        }
        out.count_examined(self.read.len());
        let field = match self.read.as_str() {
            "\"name\"" => Field::Name,
            "\"arguments\"" | "\"parameters\"" => Field::Arguments,
            "\"id\"" => Field::Id,
            "\"function\"" => Field::Function,
            "\"type\"" => Field::Other,
            _ if self.strict.is_some() => return Flow::Fail,
            _ => Field::Other,
        };
        self.at = At::Colon(field);
        Flow::More
    }

    /// Begins a value with the first character.
    fn before(&mut self, field: Field, c: char, out: &mut PartWriter<'_>) -> Flow {
        let twice = match field {
            Field::Name => !self.name.is_empty(),
            Field::Arguments => self.began || !self.late.is_empty(),
            _ => false,
        };
        if twice {
            return Flow::Fail;
        }
        if field == Field::Function && c == '{' && !self.nested {
            (self.nested, self.at) = (true, At::KeyOrEnd);
            return Flow::More;
        }
        let field = if field == Field::Function {
            Field::Name
        } else {
            field
        };
        if field == Field::Arguments && !self.name.is_empty() && matches!(c, '{' | '[') {
            if !self.may_begin() {
                return Flow::Fail;
            }
            out.start_call(&self.name, &self.id);
            self.began = true;
        }
        self.read.clear();
        self.literal = Literal::new(Style::Json);
        self.at = At::Value(field);
        self.in_value(field, c, out)
    }

    fn in_value(&mut self, field: Field, c: char, out: &mut PartWriter<'_>) -> Flow {
        let into = match field {
            Field::Arguments if self.began => out.arguments(),
            _ => &mut self.read,
        };
        let flow = self.literal.step(c, into);
        if field == Field::Other {
            self.read.clear();
        }
        match flow {
            Flow::Done | Flow::DoneBefore => {}
            flow => return flow,
        }
        // A string of arguments is parsed a second time.
        out.count_examined(2 * self.read.len());
        if !self.whole_value(field) {
            return Flow::Fail;
        }
        self.at = At::After;
        if flow == Flow::DoneBefore {
            return self.step(c, out);
        }
        Flow::More
    }

    /// Stores a complete value; false if the value has the wrong type for the field.
    fn whole_value(&mut self, field: Field) -> bool {
        match field {
            Field::Name => match serde_json::from_str::<String>(&self.read) {
                Ok(name) if !name.trim().is_empty() => name.trim().clone_into(&mut self.name),
                _ => return false,
            },
            Field::Id => {
                if let Ok(id) = serde_json::from_str::<String>(&self.read) {
                    self.id = id;
                }
            }
            Field::Arguments if !self.began => self.late = plain_arguments(&self.read),
            _ => {}
        }
        true
    }

    fn may_begin(&self) -> bool {
        let known = |tools: &Arc<ToolSchemas>| tools.is_empty() || tools.has(&self.name);
        self.strict.as_ref().is_none_or(known)
    }

    /// Ends an object.
    fn close(&mut self, out: &mut PartWriter<'_>) -> Flow {
        if self.nested {
            (self.nested, self.at) = (false, At::After);
            return Flow::More;
        }
        if !self.began {
            let unsaid = self.strict.is_some() && self.late.is_empty();
            if self.name.is_empty() || unsaid || !self.may_begin() {
                return Flow::Fail;
            }
            out.start_call(&self.name, &self.id);
            let none = self.late.is_empty();
            out.arguments()
                .push_str(if none { "{}" } else { &self.late });
        }
        out.end_call();
        self.began = false;
        for text in [&mut self.name, &mut self.id, &mut self.late] {
            text.clear();
        }
        self.at = At::Between;
        if self.list { Flow::More } else { Flow::Done }
    }
}

/// Arguments as JSON text: the content of a string that contains JSON, `{}` for null.
fn plain_arguments(read: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(read) {
        Ok(serde_json::Value::Null) => "{}".to_owned(),
        Ok(serde_json::Value::String(inner))
            if serde_json::from_str::<serde_json::Value>(&inner).is_ok() =>
        {
            inner
        }
        _ => read.to_owned(),
    }
}
