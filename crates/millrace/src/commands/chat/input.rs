//! Input of a conversation: a line editor on a terminal, plain lines from a pipe. Earlier inputs are in the file
//! `millrace/chat-history` in `$XDG_STATE_HOME` or `~/.local/state`.

use crate::failure::Failure;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Editor, Helper};
use std::io::{BufRead, IsTerminal, Lines, StdinLock};
use std::path::{Path, PathBuf};

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

/// Inputs that are kept.
pub(super) const ENTRIES_MAX: usize = 1000;
/// Bytes of the longest input that is kept.
pub(super) const ENTRY_BYTES_MAX: usize = 16 << 10;

/// The path of the history file, in a folder that exists. `None`: there is no such folder, or something else than a file is
/// there, which would block; inputs are kept for this conversation only.
pub(super) fn history_path() -> Option<PathBuf> {
    let path = state_path(|name| std::env::var_os(name).map(PathBuf::from))?;
    std::fs::create_dir_all(path.parent()?).ok()?;
    is_file_or_free(&path).then_some(path)
}

fn is_file_or_free(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

fn state_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The base directory specification ignores relative paths.
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(Path::new(".local/state")));
    let state = absolute("XDG_STATE_HOME").or_else(home)?;
    Some(state.join("millrace/chat-history"))
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

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_no_history() {
        let folder = testing::folder::Folder::new("chat-history");
        let socket = folder.0.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let file = folder.0.join("file");
        std::fs::write(&file, "hi").unwrap();
        let free = folder.0.join("free");
        for (path, want) in [
            (&folder.0, false),
            (&socket, false),
            (&file, true),
            (&free, true),
        ] {
            assert_eq!(is_file_or_free(path), want, "{path:?}");
        }
    }

    #[test]
    fn history_file_is_in_the_state_folder() {
        let rows = [
            (Some("/s"), Some("/h"), Some("/s/millrace/chat-history")),
            (
                None,
                Some("/h"),
                Some("/h/.local/state/millrace/chat-history"),
            ),
            (
                Some("s"),
                Some("/h"),
                Some("/h/.local/state/millrace/chat-history"),
            ),
            (None, None, None),
        ];
        for (state, home, want) in rows {
            let path = state_path(|name| {
                let value = if name == "HOME" { home } else { state };
                value.map(PathBuf::from)
            });
            assert_eq!(path, want.map(PathBuf::from), "{state:?} {home:?}");
        }
    }
}
