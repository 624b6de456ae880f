//! Grammar rules of Harmony headers (gpt-oss) and of the calls under them.

use super::super::call_syntax::HeaderPart;
use super::super::harmony_parser::{CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START};
use super::{GrammarWriter, text};

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
