//! Arguments of `millrace run`: the words that name the model, and those of the prompt.

use crate::args::RunArgs;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_lookup;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The argument for standard input.
const STANDARD_INPUT: &str = "-";

/// Model and prompt of a command line.
pub(super) struct RunArguments {
    /// `None`: `--model`, a setting, or the built-in model.
    pub(super) model: Option<PathBuf>,
    pub(super) prompt: PromptArgument,
}

/// The kind of input.
#[derive(Debug, PartialEq)]
pub(super) enum PromptArgument {
    Text(String),
    /// No prompt, and standard input is a terminal.
    Conversation,
    /// `--workflow` has its own prompts.
    Workflow,
}

impl RunArguments {
    /// Separates model and prompt. Reads standard input if that is the prompt.
    ///
    /// # Errors
    /// The model or the prompt is given twice, or there is no prompt.
    pub(super) fn read(args: &RunArgs, settings: &Settings) -> Result<Self, Failure> {
        let is_model = |word: &OsString| model_lookup::is_model(settings, Path::new(word));
        let is_named = args.model.model_path.is_some();
        let (model, prompt) = match (args.words.as_slice(), &args.prompt) {
            (words, _) if args.program.workflow.is_some() => match words {
                [] => (None, None),
                [model] => (Some(model), None),
                _ => return Err(given_twice("--workflow takes no prompt; use --kwarg")),
            },
            ([], prompt) => (None, prompt.clone()),
            ([model], Some(prompt)) => (Some(model), Some(prompt.clone())),
            (_, Some(_)) => {
                return Err(given_twice(
                    "the prompt is given twice: with --prompt and without",
                ));
            }
            ([model, _, ..], None) if is_named && is_model(model) => (Some(model), None),
            (words, None) if is_named => (None, Some(join_words(words))),
            ([word], None) if is_model(word) || model_lookup::can_be_pulled(Path::new(word)) => {
                (Some(word), None)
            }
            ([prompt], None) => (None, Some(prompt.clone())),
            ([model, prompt @ ..], None) => (Some(model), Some(join_words(prompt))),
        };
        if model.is_some() && is_named {
            return Err(given_twice(
                "the model is given twice: with --model and without",
            ));
        }
        let model = model.map(PathBuf::from);
        if let Some(model) = &model {
            expect_model(args, settings, model)?;
        }
        let prompt = match prompt {
            None if args.program.workflow.is_some() => PromptArgument::Workflow,
            prompt => read_prompt(prompt)?,
        };
        Ok(Self { model, prompt })
    }
}

/// A word that is no model's name may be the first of a prompt without quotation marks. The name of a model that can be
/// pulled is one.
fn expect_model(args: &RunArgs, settings: &Settings, model: &Path) -> Result<(), Failure> {
    if model_lookup::can_be_pulled(model) {
        return Ok(());
    }
    let Some(why) = model_lookup::absent(settings, model) else {
        return Ok(());
    };
    Err(match args.words.len() {
        0 | 1 => why,
        _ => {
            let all = join_words(&args.words).to_string_lossy().into_owned();
            Failure::user(format!(
                "{why}\n  if all of it is the prompt, put it in quotation marks: millrace run {all:?}"
            ))
        }
    })
}

fn read_prompt(said: Option<OsString>) -> Result<PromptArgument, Failure> {
    let text = match said {
        Some(text) if text != STANDARD_INPUT => {
            let text = text.into_string();
            text.map_err(|_| Failure::user("the prompt is not UTF-8"))?
        }
        None if std::io::stdin().is_terminal() => return Ok(PromptArgument::Conversation),
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    if text.trim().is_empty() {
        Err(Failure::user(
            "no prompt: give one (millrace run \"Hello\"), or pipe one in",
        ))
    } else {
        Ok(PromptArgument::Text(text))
    }
}

fn join_words(words: &[OsString]) -> OsString {
    words.join(std::ffi::OsStr::new(" "))
}

fn given_twice(why: &str) -> Failure {
    Failure::user(why)
}
