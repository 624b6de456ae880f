//! Calls written as JSON objects: `{"name": .., "arguments": {..}}`, one, or a list of them.
//!
//! The call begins when its name is known and its arguments do; arguments that come before the name
//! wait for it. Also read: `parameters` for `arguments`, arguments that are a string with JSON in it,
//! the shape `{"type": "function", "function": {..}}`, other fields (skipped).

use super::escape::is_blank;
use super::flow::Flow;
use super::literal::{Literal, Style};
use super::out::Out;
use super::schemas::ToolSchemas;
use std::sync::Arc;

/// Reads one object or one list of them.
#[derive(Debug)]
pub(super) struct JsonCalls {
    /// Where text is only a call if it is nothing else: the fields known, the tool too.
    strict: Option<Arc<ToolSchemas>>,
    at: At,
    list: bool,
    /// In the object under `function`.
    nested: bool,
    literal: Literal,
    /// A key, a name or an id while it is read; arguments that cannot be given yet.
    read: String,
    name: String,
    id: String,
    /// Arguments that came before the name, or as a string.
    late: String,
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the object or list; or before an object of the list.
    Begin,
    Object,
    Key,
    KeyOrEnd,
    InKey,
    Colon(Field),
    Before(Field),
    Value(Field),
    After,
    /// Between the list's objects.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    /// An object: streamed if the name is known.
    Arguments,
    Id,
    /// A name, or an object with everything in it.
    Function,
    Other,
}

impl JsonCalls {
    /// Before the first character. `strict`: in text that nothing marked as a call.
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

    /// Takes the next character.
    pub(super) fn step(&mut self, c: char, out: &mut Out) -> Flow {
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

    fn in_key(&mut self, c: char, out: &mut Out) -> Flow {
        match self.literal.step(c, &mut self.read) {
            Flow::Done => {}
            flow => return flow,
        }
        out.look(self.read.len());
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

    /// At a value's first character.
    fn before(&mut self, field: Field, c: char, out: &mut Out) -> Flow {
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
            out.start(&self.name, &self.id);
            self.began = true;
        }
        self.read.clear();
        self.literal = Literal::new(Style::Json);
        self.at = At::Value(field);
        self.in_value(field, c, out)
    }

    fn in_value(&mut self, field: Field, c: char, out: &mut Out) -> Flow {
        let into = match field {
            Field::Arguments if self.began => out.args(),
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
        // A string of arguments is read a second time.
        out.look(2 * self.read.len());
        if !self.whole_value(field) {
            return Flow::Fail;
        }
        self.at = At::After;
        if flow == Flow::DoneBefore {
            return self.step(c, out);
        }
        Flow::More
    }

    /// Keeps a value that is whole; false if it is not what its field wants.
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

    /// An object ends.
    fn close(&mut self, out: &mut Out) -> Flow {
        if self.nested {
            (self.nested, self.at) = (false, At::After);
            return Flow::More;
        }
        if !self.began {
            let unsaid = self.strict.is_some() && self.late.is_empty();
            if self.name.is_empty() || unsaid || !self.may_begin() {
                return Flow::Fail;
            }
            out.start(&self.name, &self.id);
            let none = self.late.is_empty();
            out.args().push_str(if none { "{}" } else { &self.late });
        }
        out.end();
        self.began = false;
        for text in [&mut self.name, &mut self.id, &mut self.late] {
            text.clear();
        }
        self.at = At::Between;
        if self.list { Flow::More } else { Flow::Done }
    }
}

/// Arguments as JSON: those of a string that holds JSON, none for null.
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
