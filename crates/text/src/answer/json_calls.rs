//! Calls written as JSON: one `{"name": .., "arguments": {..}}` object or a list of objects.
//!
//! A call starts when both the name and the beginning of the arguments are known; arguments that precede the
//! name are buffered. Also accepted: `parameters` for `arguments`, arguments as a string that contains JSON,
//! the shape `{"type": "function", "function": {..}}`, and unknown fields, which are skipped; in undelimited text only after
//! the arguments; and a comma before a closing bracket.

use super::answer_parts::PartWriter;
use super::tool_schemas::ToolSchemas;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank};
use std::sync::Arc;

/// Parser of one object or one list of objects.
#[derive(Debug)]
pub(super) struct JsonCalls {
    /// Set for undelimited text, which is a call only if all fields and the tool are known.
    strict: Option<Arc<ToolSchemas>>,
    state: JsonCallState,
    list: bool,
    /// Inside the object under `function`.
    nested: bool,
    literal: ValueConverter,
    /// A key, a name or an id while being read; arguments that must be buffered.
    read: String,
    name: String,
    id: String,
    /// Arguments that preceded the name, or that are a string.
    late: String,
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonCallState {
    /// Before the object or list, or before an object of the list.
    Begin,
    Object,
    KeyOrEnd,
    InKey,
    Colon(CallField),
    Before(CallField),
    Value(CallField),
    After,
    /// Between objects of a list.
    Between,
    /// After a comma between objects of a list.
    ObjectOrEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallField {
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
            state: JsonCallState::Begin,
            list: false,
            nested: false,
            literal: ValueConverter::new(ValueStyle::Json),
            read: String::new(),
            name: String::new(),
            id: String::new(),
            late: String::new(),
            began: false,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        match self.state {
            JsonCallState::InKey => return self.in_key(c, out),
            JsonCallState::Value(field) => return self.in_value(field, c, out),
            _ if is_blank(c) => return StepResult::More,
            JsonCallState::Before(field) => return self.before(field, c, out),
            _ => {}
        }
        match (self.state, c) {
            (JsonCallState::Begin, '[') => {
                self.list = true;
                self.state = JsonCallState::Object;
            }
            (JsonCallState::Begin | JsonCallState::Object | JsonCallState::ObjectOrEnd, '{') => {
                self.state = JsonCallState::KeyOrEnd;
            }
            (JsonCallState::KeyOrEnd, '"' | '\'') => {
                self.read.clear();
                self.literal = ValueConverter::new(ValueStyle::Json);
                self.literal.step(c, &mut self.read);
                self.state = JsonCallState::InKey;
            }
            (JsonCallState::Colon(field), ':') => self.state = JsonCallState::Before(field),
            (JsonCallState::After, ',') => self.state = JsonCallState::KeyOrEnd,
            (JsonCallState::After | JsonCallState::KeyOrEnd, '}') => return self.close(out),
            (JsonCallState::Between, ',') => self.state = JsonCallState::ObjectOrEnd,
            (JsonCallState::Between | JsonCallState::ObjectOrEnd, ']') => return StepResult::Done,
            _ => return StepResult::Fail,
        }
        StepResult::More
    }

    fn in_key(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        match self.literal.step(c, &mut self.read) {
            StepResult::Done => {}
            flow => return flow,
        }
        out.count_examined(self.read.len());
        let field = match self.read.as_str() {
            "\"name\"" => CallField::Name,
            "\"arguments\"" | "\"parameters\"" => CallField::Arguments,
            "\"id\"" => CallField::Id,
            "\"function\"" => CallField::Function,
            "\"type\"" => CallField::Other,
            // After the arguments of a known tool, other fields do not matter.
            _ if self.strict.is_some() && !self.began => return StepResult::Fail,
            _ => CallField::Other,
        };
        self.state = JsonCallState::Colon(field);
        StepResult::More
    }

    /// Begins a value with the first character.
    fn before(&mut self, field: CallField, c: char, out: &mut PartWriter<'_>) -> StepResult {
        let twice = match field {
            CallField::Name => !self.name.is_empty(),
            CallField::Arguments => self.began || !self.late.is_empty(),
            _ => false,
        };
        if twice {
            return StepResult::Fail;
        }
        if field == CallField::Function && c == '{' && !self.nested {
            (self.nested, self.state) = (true, JsonCallState::KeyOrEnd);
            return StepResult::More;
        }
        let field = if field == CallField::Function {
            CallField::Name
        } else {
            field
        };
        if field == CallField::Arguments && !self.name.is_empty() && matches!(c, '{' | '[') {
            if !self.may_begin() {
                return StepResult::Fail;
            }
            out.start_call(&self.name, &self.id);
            self.began = true;
        }
        self.read.clear();
        self.literal = ValueConverter::new(ValueStyle::Json);
        self.state = JsonCallState::Value(field);
        self.in_value(field, c, out)
    }

    fn in_value(&mut self, field: CallField, c: char, out: &mut PartWriter<'_>) -> StepResult {
        let into = match field {
            CallField::Arguments if self.began => out.arguments(),
            _ => &mut self.read,
        };
        let flow = self.literal.step(c, into);
        if field == CallField::Other {
            self.read.clear();
        }
        match flow {
            StepResult::Done | StepResult::DoneBefore => {}
            flow => return flow,
        }
        // A string of arguments is parsed a second time.
        out.count_examined(2 * self.read.len());
        if !self.whole_value(field) {
            return StepResult::Fail;
        }
        self.state = JsonCallState::After;
        if flow == StepResult::DoneBefore {
            return self.step(c, out);
        }
        StepResult::More
    }

    /// Stores a complete value; false if the value has the wrong type for the field.
    fn whole_value(&mut self, field: CallField) -> bool {
        match field {
            CallField::Name => match serde_json::from_str::<String>(&self.read) {
                Ok(name) if !name.trim().is_empty() => {
                    name.trim().clone_into(&mut self.name);
                    return self.may_begin();
                }
                _ => return false,
            },
            CallField::Id => {
                if let Ok(id) = serde_json::from_str::<String>(&self.read) {
                    self.id = id;
                }
            }
            CallField::Arguments if !self.began => self.late = plain_arguments(&self.read),
            _ => {}
        }
        true
    }

    fn may_begin(&self) -> bool {
        let known = |tools: &Arc<ToolSchemas>| tools.is_empty() || tools.has(&self.name);
        self.strict.as_ref().is_none_or(known)
    }

    /// Ends an object.
    fn close(&mut self, out: &mut PartWriter<'_>) -> StepResult {
        if self.nested {
            (self.nested, self.state) = (false, JsonCallState::After);
            return StepResult::More;
        }
        if !self.began {
            let unsaid = self.strict.is_some() && self.late.is_empty();
            if self.name.is_empty() || unsaid || !self.may_begin() {
                return StepResult::Fail;
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
        self.state = JsonCallState::Between;
        if self.list {
            StepResult::More
        } else {
            StepResult::Done
        }
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
