//! Grammar rules of calls with JSON arguments: objects with a name and arguments, and the calls under Harmony headers
//! (gpt-oss).

use super::super::call_parser::HeaderPart;
use super::super::harmony_parser::{CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START};
use super::{BLANKS, GrammarWriter, escaped, text};

/// Known fields of a call; an object whose first field is another one is no call.
const FIELDS: &str = "name|arguments|parameters|id|function|type";

impl GrammarWriter<'_> {
    /// One object or a list of objects.
    pub(super) fn json_calls(&mut self) -> String {
        let call = self.call(true);
        format!("WS? ({call} | \"[\" WS? {call} (WS? \",\" WS? {call})* WS? \"]\")")
    }

    /// Calls in undelimited text, which follow `first` where the delimiter is the call's beginning.
    /// `close` is the rest of the rule after a call.
    pub(super) fn bare_json(&mut self, first: &str, close: &str) -> String {
        let not = |opening| format!("/{BLANKS}[^{opening} \\t\\n\\r]/");
        match first {
            "{" => self.bare_object(close),
            "[" => {
                let (none, list) = (self.lexeme(&not("{")), self.bare_list(close));
                format!("({none} | {list})")
            }
            // A bracket and a brace.
            first if first.starts_with('[') => self.bare_items(close),
            _ => {
                let none = self.lexeme(&not("{\\["));
                let [object, list] = ["\\{", "\\["].map(|c| self.lexeme(&format!("/{BLANKS}{c}/")));
                let none_in_list = self.lexeme(&not("{"));
                let (of_object, of_list) = (self.bare_object(close), self.bare_list(close));
                format!("{none} | {object} {of_object} | {list} ({none_in_list} | {of_list})")
            }
        }
    }

    /// A list after its bracket.
    pub(super) fn bare_list(&mut self, close: &str) -> String {
        let open = self.lexeme(&format!("/{BLANKS}\\{{/"));
        let items = self.bare_items(close);
        format!("{open} {items}")
    }

    /// A list after the first brace.
    fn bare_items(&mut self, close: &str) -> String {
        let (first, call, other) = (self.call(false), self.call(true), self.no_call());
        format!("({other} | {first} (WS? \",\" WS? {call})* WS? \"]\"{close})")
    }

    fn bare_object(&mut self, close: &str) -> String {
        let (call, other) = (self.call(false), self.no_call());
        format!("({other} | {call}{close})")
    }

    /// The shortest text that proves that an object is no call.
    fn no_call(&mut self) -> String {
        let key = r#""([^"\\]|\\(?s:.))*"|'([^'\\]|\\(?s:.))*'"#;
        self.lexeme(&format!(
            "/{BLANKS}([^\"'}} \\t\\n\\r]|\\}}|{key})/ & ~/{BLANKS}[\"']({FIELDS})[\"']/"
        ))
    }

    /// One object, with or without the opening brace.
    fn call(&mut self, opened: bool) -> String {
        let b = BLANKS;
        let tail = self.lexeme(&format!(
            "/{b}(,{b}\"id\"{b}:{b}\"[A-Za-z0-9_\\-]{{1,64}}\"{b})?\\}}/"
        ));
        let open = if opened { "\\{" } else { "" };
        let calls = (0..self.tools.len()).map(|tool| {
            let name = escaped(self.name(tool));
            let head = self.lexeme(&format!(
                "/{open}{b}(\"type\"{b}:{b}\"function\"{b},{b})?\"name\"{b}:{b}\"{name}\"{b},{b}\"(arguments|parameters)\"{b}:{b}/"
            ));
            let args = self.arguments(tool);
            format!("{head} {args} {tail}")
        });
        let calls: Vec<String> = calls.collect();
        self.rule(&calls.join(" | "))
    }
}

impl GrammarWriter<'_> {
    /// Rules for headers, and for messages that are calls.
    pub(super) fn header(&mut self, part: HeaderPart) -> String {
        let [start, channel, constrain, message] =
            [START, CHANNEL, CONSTRAIN, MESSAGE].map(|mark| self.mark(mark));
        let ends = [END, CALL, RETURN].map(|mark| self.mark(mark)).join(" | ");
        let kind = format!("(\" \"? {constrain} \"json\" | \" json\" | \" code\")?");
        let calls = (0..self.tools.len()).map(|tool| {
            let to = text(&format!(" to=functions.{}", self.name(tool)));
            (to, self.arguments(tool))
        });
        let calls: Vec<(String, String)> = calls.collect();
        let each = |one: &dyn Fn(&str, &str) -> String| {
            let all: Vec<String> = calls.iter().map(|(to, args)| one(to, args)).collect();
            all.join(" | ")
        };
        if part == HeaderPart::Recipient {
            return each(&|to, args| format!("{to} {kind} {message} {args}"));
        }
        let to = each(&|to, args| format!("{to} {kind} {message} {args} WS? ended"));
        let first = each(&|to, args| {
            format!(
                "{to} {channel} (\"commentary\" | \"analysis\") {kind} {message} {args} WS? ended"
            )
        });
        self.define("ended", &format!("({ends}) after?"));
        self.define("after", &format!("{start} \"assistant\" tail"));
        self.define("tail", &format!("{channel} channel | {first}"));
        self.define(
            "channel",
            &format!("\"final\" {message} | (\"analysis\" | \"commentary\") ({message} | {to})"),
        );
        match part {
            HeaderPart::Role => "\"assistant\" tail",
            HeaderPart::Tail => "tail",
            HeaderPart::Channel => "channel",
            HeaderPart::After | HeaderPart::Recipient => "after?",
        }
        .to_owned()
    }
}
