//! Input of a conversation: a line editor on a terminal, plain lines from a pipe.

use super::history::{ENTRIES_MAX, ENTRY_BYTES_MAX, history_path};
use crate::failure::Failure;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Editor, Helper};
use std::io::{BufRead, IsTerminal, Lines, StdinLock};
use std::path::PathBuf;

/// Opens and closes text of several lines.
const QUOTES: &str = "\"\"\"";

/// One input.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    /// A message or a command.
    Text(String),
    /// Ctrl-C in the line editor.
    Interrupted,
    /// Ctrl-D in the line editor, or the end of the pipe.
    Ended,
}

/// The source of inputs.
pub(super) enum ChatInput {
    Editor(Box<LineEditor>),
    Pipe(Lines<StdinLock<'static>>),
}

/// A line editor with a history.
pub(super) struct LineEditor {
    editor: Editor<MultiLine, FileHistory>,
    history: Option<PathBuf>,
}

impl ChatInput {
    /// Standard input.
    pub(super) fn open() -> Result<Self, Failure> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Pipe(std::io::stdin().lock().lines()));
        }
        let editor = LineEditor::open(history_path()).map_err(Failure::user)?;
        Ok(Self::Editor(Box::new(editor)))
    }

    /// Whether the user types into a line editor.
    pub(super) fn is_editor(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// The next input. The line editor shows `prompt`.
    pub(super) fn read(&mut self, prompt: &str) -> Result<Input, Failure> {
        match self {
            Self::Editor(editor) => editor.read(prompt),
            Self::Pipe(lines) => Ok(read_lines(lines)?),
        }
    }
}

impl LineEditor {
    fn open(history: Option<PathBuf>) -> Result<Self, ReadlineError> {
        let behavior = if std::io::stdout().is_terminal() {
            Behavior::Stdio
        } else {
            // Answers go to a file or a pipe, the line editor to the terminal.
            Behavior::PreferTerm
        };
        let config = Config::builder()
            .behavior(behavior)
            .max_history_size(ENTRIES_MAX)?
            .history_ignore_space(true);
        let mut editor = Editor::with_config(config.build())?;
        editor.set_helper(Some(MultiLine));
        if let Some(path) = &history
            && let Err(why) = editor.load_history(path)
        {
            tracing::debug!("{}: {why}", path.display());
        }
        Ok(Self { editor, history })
    }

    fn read(&mut self, prompt: &str) -> Result<Input, Failure> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                self.remember(&text);
                Ok(Input::Text(joined_lines(&text)))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::Ended),
            Err(ReadlineError::Io(why)) => Err(why.into()),
            Err(why) => Err(Failure::user(why)),
        }
    }

    /// Adds an input to the history and to the file.
    fn remember(&mut self, text: &str) {
        if text.len() > ENTRY_BYTES_MAX || !self.editor.add_history_entry(text).unwrap_or(false) {
            return;
        }
        if let Some(path) = &self.history
            && let Err(why) = self.editor.append_history(path)
        {
            tracing::debug!("{}: {why}", path.display());
        }
    }
}

/// Makes the line editor continue on another line.
struct MultiLine;

impl Validator for MultiLine {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_incomplete(context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Completer for MultiLine {
    type Candidate = String;
}

impl Hinter for MultiLine {
    type Hint = String;
}

impl Highlighter for MultiLine {}
impl Helper for MultiLine {}

/// Reads lines until the input is complete, or the lines are over.
fn read_lines(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> std::io::Result<Input> {
    let Some(mut text) = lines.next().transpose()? else {
        return Ok(Input::Ended);
    };
    while is_incomplete(&text) {
        let Some(line) = lines.next().transpose()? else {
            break;
        };
        text.push('\n');
        text.push_str(&line);
    }
    Ok(Input::Text(joined_lines(&text)))
}

/// Whether the input continues on the next line: after a backslash at the end, or within triple quotes.
fn is_incomplete(text: &str) -> bool {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(quoted) => !quoted.trim_end().ends_with(QUOTES),
        None => text.ends_with('\\'),
    }
}

/// The text of a complete input, without quotes and without the backslashes at line ends.
fn joined_lines(text: &str) -> String {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(quoted) => {
            let quoted = quoted.trim_end();
            let quoted = quoted.strip_suffix(QUOTES).unwrap_or(quoted);
            quoted.trim_matches('\n').to_owned()
        }
        None => text.replace("\\\n", "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::folder::Folder;

    #[test]
    fn input_of_several_lines_is_one_text() {
        let piped = "one\n\na \\\nb\n\"\"\"first\nsecond\n\"\"\"\n\"\"\"x\"\"\"\nlast \\";
        let mut lines = piped.lines().map(|line| Ok(line.to_owned()));
        let mut read = || read_lines(&mut lines).expect("lines");
        for want in ["one", "", "a \nb", "first\nsecond", "x", "last \\"] {
            assert_eq!(read(), Input::Text(want.to_owned()));
        }
        assert_eq!(read(), Input::Ended);
    }

    #[test]
    fn history_file_is_bounded() {
        let folder = Folder::new("chat-history");
        let path = folder.0.join("history");
        for _ in 0..2 {
            let mut editor = LineEditor::open(Some(path.clone())).expect("an editor");
            for i in 0..ENTRIES_MAX {
                editor.remember(&format!("input {i}"));
            }
            editor.remember(&"x".repeat(ENTRY_BYTES_MAX + 1));
            editor.remember(" not kept");
        }
        let mut editor = LineEditor::open(Some(path.clone())).expect("an editor");
        editor.remember("last");
        let kept = std::fs::read_to_string(&path).expect("a file");
        // The first line has the version of the format.
        let entries: Vec<&str> = kept.lines().skip(1).collect();
        assert!(entries.len() <= ENTRIES_MAX, "{}", entries.len());
        assert_eq!(entries.last(), Some(&"last"));
        assert!(!kept.contains("not kept") && !kept.contains("xx"));
    }
}
