//! Content blocks of an answer: how each kind begins, goes on, and looks as a whole.

use crate::wire::json;
use bytes::BytesMut;
use generate::output::collected::{AnswerPart, WholeCall};
use generate::output::event::{Call, CallPart, Delta, Event, Kind};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The field under which arguments are told that are no JSON object, as this format's own
/// documentation has it: a call that was cut short.
const INVALID: &str = "INVALID_JSON";

/// What stands where the format has a signature of what was thought: clients want one, and nobody here
/// checks it when it comes back.
const SIGNATURE: &str = "millrace";

/// A kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Text,
    Thinking,
    /// Of the call with this index.
    ToolUse(u32),
}

/// The block that an event begins, as it stands in `content_block_start`.
pub(crate) fn write_start(event: &Event<'_>, out: &mut BytesMut) {
    match event {
        Event::Call(Call {
            said: CallPart::Start { id, name },
            ..
        }) => {
            json::raw(out, "{\"type\":\"tool_use\",\"id\":");
            json::string(out, id);
            json::raw(out, ",\"name\":");
            json::string(out, name);
            json::raw(out, ",\"input\":{}}");
        }
        Event::Delta(Delta {
            kind: Kind::Reasoning,
            ..
        }) => json::raw(
            out,
            "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
        ),
        _ => json::raw(out, "{\"type\":\"text\",\"text\":\"\"}"),
    }
}

/// `,"delta":..` of more text.
pub(crate) fn write_text(kind: Kind, text: &str, out: &mut BytesMut) {
    json::raw(
        out,
        match kind {
            Kind::Text => ",\"delta\":{\"type\":\"text_delta\",\"text\":",
            Kind::Reasoning => ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":",
        },
    );
    json::string(out, text);
    json::raw(out, "}");
}

/// `,"delta":..` of more of a call: of its beginning, nothing.
pub(crate) fn write_input(said: CallPart<'_>, out: &mut BytesMut) {
    json::raw(
        out,
        ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":",
    );
    json::string(
        out,
        match said {
            CallPart::Args(fragment) => fragment,
            CallPart::Start { .. } | CallPart::End => "",
        },
    );
    json::raw(out, "}");
}

/// `,"delta":..` that ends what was thought.
pub(crate) fn write_signature(out: &mut BytesMut) {
    json::raw(
        out,
        ",\"delta\":{\"type\":\"signature_delta\",\"signature\":",
    );
    json::string(out, SIGNATURE);
    json::raw(out, "}");
}

/// A block of a whole answer.
pub(crate) fn write_whole(piece: &AnswerPart, out: &mut BytesMut) {
    match piece {
        AnswerPart::Text(text) => {
            json::raw(out, "{\"type\":\"text\",\"text\":");
            json::string(out, text);
        }
        AnswerPart::Reasoning(text) => {
            json::raw(out, "{\"type\":\"thinking\",\"thinking\":");
            json::string(out, text);
            json::raw(out, ",\"signature\":");
            json::string(out, SIGNATURE);
        }
        AnswerPart::Call(call) => {
            json::raw(out, "{\"type\":\"tool_use\",\"id\":");
            json::string(out, &call.id);
            json::raw(out, ",\"name\":");
            json::string(out, &call.name);
            json::raw(out, ",\"input\":");
            json::raw(out, &input(call));
        }
    }
    json::raw(out, "}");
}

/// A call's arguments as an object, on one line: frames end where lines do.
pub(crate) fn input(call: &WholeCall) -> String {
    let arguments = &call.arguments;
    // Numbers stay as they are written.
    let is_object = serde_json::from_str::<HashMap<String, &RawValue>>(arguments).is_ok();
    match is_object {
        true => without_blanks(arguments),
        false => serde_json::json!({ INVALID: arguments }).to_string(),
    }
}

/// JSON without what stands between its parts.
fn without_blanks(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let stays = |c: &char| {
        let stays = in_string || !c.is_ascii_whitespace();
        in_string ^= *c == '"' && !is_escaped;
        is_escaped = in_string && *c == '\\' && !is_escaped;
        stays
    };
    json.chars().filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_on_one_line() {
        for (arguments, want) in [
            ("{}", "{}"),
            (
                "{\n \"a b\" :\t[1.50, 1e999]\r\n}",
                "{\"a b\":[1.50,1e999]}",
            ),
            (
                "{\"a\": \"x \\\" y \\\\\", \"b\": 1}",
                "{\"a\":\"x \\\" y \\\\\",\"b\":1}",
            ),
            ("{\"a\":", "{\"INVALID_JSON\":\"{\\\"a\\\":\"}"),
            ("[1]", "{\"INVALID_JSON\":\"[1]\"}"),
            ("", "{\"INVALID_JSON\":\"\"}"),
        ] {
            let call = WholeCall {
                id: String::new(),
                name: String::new(),
                arguments: arguments.to_owned(),
            };
            assert_eq!(input(&call), want, "{arguments}");
        }
    }
}
