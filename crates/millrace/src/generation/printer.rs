//! Events of an answer to the terminal: content and tool calls to standard output, reasoning to standard error.
//!
//! Content is printed unchanged. Each tool call is one line of JSON, `{"name": .., "arguments": ..}`. Reasoning is dimmed
//! if standard error is a terminal with colors, and stands between the lines `[reasoning]` and `[/reasoning]` otherwise.
//! So standard output has nothing but the answer, also in a pipe.

use crate::logging;
use generate::output::event::{DeltaKind, Event, ToolCallPart};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Escape sequences for the beginning and the end of dim text.
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// How reasoning is set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReasoningStyle {
    Dim,
    Marked,
}

/// The part that was printed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastPart {
    Nothing,
    Content,
    Reasoning,
    Call,
}

/// A tool call that is not complete.
#[derive(Default)]
struct OpenCall {
    name: String,
    arguments: String,
}

/// Prints the parts of one answer.
pub(crate) struct AnswerPrinter<'a> {
    out: &'a mut dyn Write,
    /// Errors of standard error are ignored: an answer is complete without reasoning.
    err: Box<dyn Write + 'a>,
    style: ReasoningStyle,
    last: LastPart,
    call: OpenCall,
    /// Whether the last character of reasoning was a line end.
    ends_line: bool,
}

impl<'a> AnswerPrinter<'a> {
    /// A printer to this output and to standard error.
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        let style = if logging::is_colored() {
            ReasoningStyle::Dim
        } else {
            ReasoningStyle::Marked
        };
        Self::with_style(out, Box::new(io::stderr()), style)
    }

    /// A printer of content alone.
    pub(super) fn silent(out: &'a mut dyn Write) -> Self {
        Self::with_style(out, Box::new(io::sink()), ReasoningStyle::Marked)
    }

    /// Prints a line on standard error before the answer, dim where reasoning is.
    pub(super) fn print_note(&mut self, line: &str) {
        let _ = match self.style {
            ReasoningStyle::Dim => writeln!(self.err, "{DIM}{line}{RESET}"),
            ReasoningStyle::Marked => writeln!(self.err, "{line}"),
        };
    }

    fn with_style(out: &'a mut dyn Write, err: Box<dyn Write + 'a>, style: ReasoningStyle) -> Self {
        Self {
            out,
            err,
            style,
            last: LastPart::Nothing,
            call: OpenCall::default(),
            ends_line: true,
        }
    }

    /// Prints the part of the answer that an event has.
    pub(super) fn print(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Delta(delta) => self.print_text(delta.kind, delta.text),
            Event::ToolCall(call) => self.print_call(call.part),
            _ => Ok(()),
        }
    }

    /// Ends the last line of the answer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.end_reasoning();
        if self.last != LastPart::Call {
            writeln!(self.out)?;
        }
        self.flush()
    }

    /// Ends the last line of the answer, and begins another answer.
    pub(crate) fn begin_next(&mut self) -> io::Result<()> {
        self.finish()?;
        (self.last, self.ends_line) = (LastPart::Nothing, true);
        self.call = OpenCall::default();
        Ok(())
    }

    /// Writes buffered content.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints text or reasoning.
    pub(crate) fn print_text(&mut self, kind: DeltaKind, text: &str) -> io::Result<()> {
        match kind {
            _ if text.is_empty() => {}
            DeltaKind::Text => {
                self.end_reasoning();
                self.last = LastPart::Content;
                self.out.write_all(text.as_bytes())?;
            }
            DeltaKind::Reasoning => {
                self.begin_reasoning()?;
                self.ends_line = text.ends_with('\n');
                let _ = self.err.write_all(text.as_bytes());
            }
        }
        Ok(())
    }

    fn begin_reasoning(&mut self) -> io::Result<()> {
        if self.last == LastPart::Reasoning {
            return Ok(());
        }
        if self.last == LastPart::Content {
            writeln!(self.out)?;
            self.out.flush()?;
        }
        self.last = LastPart::Reasoning;
        let _ = match self.style {
            ReasoningStyle::Dim => self.err.write_all(DIM.as_bytes()),
            ReasoningStyle::Marked => self.err.write_all(b"[reasoning]\n"),
        };
        Ok(())
    }

    fn end_reasoning(&mut self) {
        if self.last != LastPart::Reasoning {
            return;
        }
        self.last = LastPart::Nothing;
        let line_end = if self.ends_line { "" } else { "\n" };
        let _ = match self.style {
            ReasoningStyle::Dim => writeln!(self.err, "{RESET}{line_end}"),
            ReasoningStyle::Marked => writeln!(self.err, "{line_end}[/reasoning]"),
        };
    }

    /// Takes a part of a tool call; a complete call is printed.
    pub(crate) fn print_call(&mut self, part: ToolCallPart<'_>) -> io::Result<()> {
        match part {
            ToolCallPart::Start { name, .. } => {
                self.end_reasoning();
                if self.last == LastPart::Content {
                    writeln!(self.out)?;
                }
                self.last = LastPart::Call;
                self.call.name.push_str(name);
            }
            ToolCallPart::Args(fragment) => self.call.arguments.push_str(fragment),
            ToolCallPart::End => {
                let OpenCall { name, arguments } = std::mem::take(&mut self.call);
                // Arguments of a truncated call are no JSON: they are printed as a string.
                let parsed = serde_json::from_str(&arguments);
                let arguments = parsed.unwrap_or(Value::String(arguments));
                writeln!(
                    self.out,
                    "{}",
                    json!({"name": name, "arguments": arguments})
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use generate::output::event::DeltaKind::{Reasoning, Text};

    /// A part of an answer, as the printer takes it.
    enum Part {
        Delta(DeltaKind, &'static str),
        Call(&'static str, &'static [&'static str]),
    }

    fn printed(style: ReasoningStyle, parts: &[Part]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut printer = AnswerPrinter::with_style(&mut out, Box::new(&mut err), style);
        for part in parts {
            let done = match part {
                Part::Delta(kind, text) => printer.print_text(*kind, text),
                Part::Call(name, arguments) => {
                    let fragments = arguments.iter().map(|part| ToolCallPart::Args(part));
                    [ToolCallPart::Start { id: "call_1", name }]
                        .into_iter()
                        .chain(fragments)
                        .chain([ToolCallPart::End])
                        .try_for_each(|part| printer.print_call(part))
                }
            };
            done.expect("memory");
        }
        printer.finish().expect("memory");
        drop(printer);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(out), text(err))
    }

    #[test]
    fn parts_of_an_answer_are_set_apart() {
        use Part::{Call, Delta};
        let call = Call("f", &["{\"x\"", ": 1}"]);
        let line = "{\"name\":\"f\",\"arguments\":{\"x\":1}}\n";
        let rows: [(&[Part], &str, &str); 7] = [
            (&[], "\n", ""),
            (&[Delta(Text, "a"), Delta(Text, "b")], "ab\n", ""),
            (&[Delta(Text, "a\n")], "a\n\n", ""),
            (
                &[
                    Delta(Reasoning, "r"),
                    Delta(Reasoning, "s"),
                    Delta(Text, "a"),
                ],
                "a\n",
                "[reasoning]\nrs\n[/reasoning]\n",
            ),
            (
                &[Delta(Text, "a"), Delta(Reasoning, "r\n"), Delta(Text, "b")],
                "a\nb\n",
                "[reasoning]\nr\n[/reasoning]\n",
            ),
            (&[Delta(Text, "a"), call], &format!("a\n{line}"), ""),
            (
                &[Delta(Reasoning, "r"), Call("g", &["{\"tr"])],
                "{\"name\":\"g\",\"arguments\":\"{\\\"tr\"}\n",
                "[reasoning]\nr\n[/reasoning]\n",
            ),
        ];
        for (i, (parts, out, err)) in rows.into_iter().enumerate() {
            let got = printed(ReasoningStyle::Marked, parts);
            assert_eq!(got, (out.to_owned(), err.to_owned()), "row {i}");
        }
    }

    #[test]
    fn reasoning_is_dim_on_a_terminal() {
        let parts = [Part::Delta(Reasoning, "r"), Part::Delta(Text, "a")];
        let (out, err) = printed(ReasoningStyle::Dim, &parts);
        assert_eq!((out.as_str(), err.as_str()), ("a\n", "\x1b[2mr\x1b[0m\n\n"));
    }
}
