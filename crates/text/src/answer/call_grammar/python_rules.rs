//! Grammar rules of calls as Python: `name(key=value, ..)`, alone or in a list.

use super::{BLANKS, GrammarWriter, UnsupportedTool, escaped, of_schema, text};

/// Characters of names.
const WORD: &str = r"[A-Za-z0-9_.\-]";

impl GrammarWriter<'_> {
    /// Calls in undelimited text. `close` is the rest of the rule after a call.
    pub(super) fn bare_python(&mut self, close: &str) -> Result<String, UnsupportedTool> {
        let call = self.python_call()?;
        let list = self.bare_python_list("", close)?;
        let open = self.lexeme(&format!("/{BLANKS}\\[/"));
        let none = self.lexeme(&format!("/{BLANKS}[^A-Za-z0-9_.\\-\\[ \\t\\n\\r]/"));
        let word = self.no_python_word();
        Ok(format!(
            "{none} | {word} | WS? {call}{close} | {open} ({list})"
        ))
    }

    /// A list after its bracket. Text that begins with a character of `except` is not a derivation.
    pub(super) fn bare_python_list(
        &mut self,
        except: &str,
        close: &str,
    ) -> Result<String, UnsupportedTool> {
        let (call, other) = (self.python_call()?, self.no_python(except));
        Ok(format!(
            "{other} | WS? {call} (WS? \",\" WS? {call})* WS? \"]\"{close}"
        ))
    }

    /// The shortest text that proves that a list contains no calls.
    fn no_python(&mut self, except: &str) -> String {
        let names = self.names();
        self.lexeme(&format!(
            "/{BLANKS}([^{except}A-Za-z0-9_.\\- \\t\\n\\r]|{WORD}+[^A-Za-z0-9_.\\-])/ & ~/{BLANKS}({names})(\\.call)*\\(/"
        ))
    }

    /// The shortest text that proves that a word begins no call.
    fn no_python_word(&mut self) -> String {
        let names = self.names();
        self.lexeme(&format!(
            "/{BLANKS}{WORD}+[^A-Za-z0-9_.\\-]/ & ~/{BLANKS}({names})(\\.call)*\\(/"
        ))
    }

    fn names(&self) -> String {
        let names = self.tools.iter().map(|tool| escaped(&tool.name));
        names.collect::<Vec<_>>().join("|")
    }

    fn python_call(&mut self) -> Result<String, UnsupportedTool> {
        let mut calls = Vec::new();
        for tool in 0..self.tools.len() {
            let name = escaped(self.name(tool));
            let head = self.lexeme(&format!("/{name}(\\.call)?\\(/"));
            let args = match self.fields(tool)? {
                Some(fields) => {
                    let mut each = Vec::new();
                    for field in &fields {
                        if !is_word(&field.key) {
                            return Err(self.unwritten(tool, &field.key, "is no name in Python"));
                        }
                        let value = self.python_value(tool, field)?;
                        let one = format!("{} {value}", text(&format!("{}=", field.key)));
                        each.push((one, field.required));
                    }
                    self.separated(&each)
                }
                None => {
                    let one = format!(
                        "/[A-Za-z_][A-Za-z0-9_]{{0,63}}=/ {}",
                        of_schema(&true.into())
                    );
                    let one = self.rule(&one);
                    format!("({one} (WS? \",\" WS? {one})*)?")
                }
            };
            calls.push(format!("{head} {args} \")\""));
        }
        Ok(self.rule(&calls.join(" | ")))
    }

    /// A parameter's value; booleans also in Python's spelling.
    fn python_value(
        &mut self,
        tool: usize,
        field: &super::tool_parameters::ToolParameter,
    ) -> Result<String, UnsupportedTool> {
        if field.schema["type"] == "boolean" && field.is_plain() {
            return Ok("(\"True\" | \"False\" | \"true\" | \"false\")".to_owned());
        }
        let schema = self.standing_alone(tool, field)?;
        Ok(self.rule(&of_schema(&schema)))
    }

    /// Fields in order, each optional unless required, separated by commas.
    pub(super) fn separated(&mut self, fields: &[(String, bool)]) -> String {
        let (mut first, mut later) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (field, required) in fields.iter().rev() {
            let (begun, more) = (
                format!("{field} {later}"),
                format!("WS? \",\" WS? {field} {later}"),
            );
            let (begun, more) = if *required {
                (begun, more)
            } else {
                (format!("{begun} | {first}"), format!("{more} | {later}"))
            };
            (first, later) = (self.rule(&begun), self.rule(&more));
        }
        first
    }
}

fn is_word(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !key.is_empty() && key.chars().all(plain)
}
