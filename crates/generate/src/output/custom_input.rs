//! The input of a custom tool, decoded from the arguments of the call as they come.

use crate::tools::INPUT;
use serde_json::Value;
use std::borrow::Cow;

/// Replacement of half a surrogate pair without the other half.
const REPLACEMENT: char = '\u{FFFD}';

/// Decoder of `{"input": "..."}`: fragments in, the text of the member out. Arguments of another form give no
/// text (see [`input_of`]).
#[derive(Clone, Debug, Default)]
pub struct CustomInput {
    place: Place,
    /// The first half of a surrogate pair.
    high: Option<u16>,
}

/// What the next character belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before the brace.
    #[default]
    Start,
    /// Before the key.
    Key,
    /// Within the key, after this many bytes.
    InKey(usize),
    /// Before the colon.
    Colon,
    /// Before the value.
    Value,
    /// Within the value.
    Text,
    /// After a backslash.
    Escape,
    /// Within `\uXXXX`: the number of digits so far, and their value.
    Unicode(u8, u16),
    /// After the value.
    Done,
    /// The arguments have another form.
    Other,
}

impl CustomInput {
    /// Appends the text of the next fragment to `out`.
    pub fn take(&mut self, fragment: &str, out: &mut String) {
        for c in fragment.chars() {
            self.place = self.next(c, out);
        }
    }

    /// Whether the value of the member has begun.
    pub fn has_begun(&self) -> bool {
        use Place::{Done, Escape, Text, Unicode};
        matches!(self.place, Text | Escape | Unicode(..) | Done)
    }

    fn next(&mut self, c: char, out: &mut String) -> Place {
        let is_blank = c.is_ascii_whitespace();
        match (self.place, c) {
            (Place::Start | Place::Key | Place::Colon | Place::Value, _) if is_blank => self.place,
            (Place::Start, '{') => Place::Key,
            (Place::Key, '"') => Place::InKey(0),
            (Place::InKey(at), '"') if at == INPUT.len() => Place::Colon,
            (Place::InKey(at), c) if INPUT[at..].starts_with(c) => Place::InKey(at + 1),
            (Place::Colon, ':') => Place::Value,
            (Place::Value, '"') => Place::Text,
            (Place::Text, '\\') => Place::Escape,
            (Place::Text, c) => {
                self.end_pair(out);
                if c == '"' {
                    return Place::Done;
                }
                out.push(c);
                Place::Text
            }
            (Place::Escape, 'u') => Place::Unicode(0, 0),
            (Place::Escape, c) => {
                self.end_pair(out);
                out.push(unescaped(c));
                Place::Text
            }
            (Place::Unicode(digits, value), c) => self.hex_digit(digits, value, c, out),
            (Place::Done, _) => Place::Done,
            _ => Place::Other,
        }
    }

    fn hex_digit(&mut self, digits: u8, value: u16, c: char, out: &mut String) -> Place {
        let digit = c.to_digit(16).and_then(|digit| u16::try_from(digit).ok());
        let Some(digit) = digit else {
            self.end_pair(out);
            out.push(REPLACEMENT);
            return Place::Text;
        };
        let value = (value << 4) | digit;
        if digits < 3 {
            return Place::Unicode(digits + 1, value);
        }
        match self.high.take() {
            Some(high) => match char::decode_utf16([high, value]).next() {
                Some(Ok(c)) => out.push(c),
                _ => {
                    out.push(REPLACEMENT);
                    self.unit(value, out);
                }
            },
            None => self.unit(value, out),
        }
        Place::Text
    }

    /// Adds a UTF-16 unit that does not end a pair.
    fn unit(&mut self, unit: u16, out: &mut String) {
        match unit {
            0xD800..=0xDBFF => self.high = Some(unit),
            unit => out.push(char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT)),
        }
    }

    /// Half a pair that other text follows.
    fn end_pair(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(REPLACEMENT);
        }
    }
}

/// The character after a backslash.
fn unescaped(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{C}',
        c => c,
    }
}

/// The input in all arguments of a call, also of one that was cut short: `input`, or the only text among other members, or
/// the arguments themselves.
pub fn input_of(arguments: &str) -> Cow<'_, str> {
    let (mut decoder, mut text) = (CustomInput::default(), String::new());
    decoder.take(arguments, &mut text);
    if decoder.has_begun() {
        return text.into();
    }
    match serde_json::from_str(arguments) {
        Ok(Value::String(text)) => text.into(),
        Ok(Value::Object(members)) => {
            let only = (members.len() == 1)
                .then(|| members.values().next())
                .flatten();
            match members.get(INPUT).or(only) {
                Some(Value::String(text)) => text.clone().into(),
                _ => arguments.into(),
            }
        }
        _ => arguments.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_of_a_custom_tool_is_decoded_however_the_arguments_are_cut() {
        for (arguments, want) in [
            (r#"{"input":"a\nb"}"#, "a\nb"),
            (
                " {\n \"input\" : \"x \\\"y\\\" \\\\ \\/\" } ",
                "x \"y\" \\ /",
            ),
            (r#"{"input":"\u00e9\ud83d\ude42é🙂"}"#, "é🙂é🙂"),
            (
                r#"{"input":"\ud83dx\ud83d\ud83d\ude42\ude42"}"#,
                "\u{FFFD}x\u{FFFD}🙂\u{FFFD}",
            ),
            (r#"{"input":""}"#, ""),
            // Cut short.
            (r#"{"input":"*** Begin\u00"#, "*** Begin"),
            // Other forms.
            (r#"{"patch":"p"}"#, "p"),
            (r#"{"why":"w","input":"p"}"#, "p"),
            (r#"{"why":"w","what":"p"}"#, r#"{"why":"w","what":"p"}"#),
            (r#"{"inputs":1}"#, r#"{"inputs":1}"#),
            (r#"{"input":["p"]}"#, r#"{"input":["p"]}"#),
            (r#""p\n""#, "p\n"),
            ("ls -l", "ls -l"),
            ("", ""),
        ] {
            assert_eq!(input_of(arguments), want, "{arguments}");
            for cut in (0..=arguments.len()).filter(|&at| arguments.is_char_boundary(at)) {
                let (mut decoder, mut text) = (CustomInput::default(), String::new());
                decoder.take(&arguments[..cut], &mut text);
                decoder.take(&arguments[cut..], &mut text);
                let want = if decoder.has_begun() { want } else { "" };
                assert_eq!(text, want, "{arguments} cut at {cut}");
            }
        }
    }
}
