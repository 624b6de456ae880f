//! `millrace run`: one answer, or one workflow, on the terminal. The words of the command line name the model, and are
//! the prompt.

use super::chat::{text_message, user_message};
use super::pull::pull_absent;
use super::{chat, workflow};
use crate::args::RunArgs;
use crate::config::Settings;
use crate::failure::Failure;
use crate::generation::{
    Answer, AnswerOptions, AnswerPrinter, Generator, STANDARD_INPUT, read_image, read_piped_image,
};
use crate::model_lookup::expect_directories;
use crate::{loading, logging, model_lookup};
use generate::images::ImagePart;
use generate::request::Prompt;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Answers one prompt, or runs one workflow; without either, on a terminal, a conversation.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut config = args.model.settings(None)?;
    logging::start(&config.settings)?;
    expect_directories(&config)?;
    let arguments = RunArguments::read(args, &config.settings)?;
    let settings = &mut config.settings;
    settings.model.path = arguments.model.or(settings.model.path.take());
    pull_absent(settings)?;
    match arguments.prompt {
        PromptArgument::Text(prompt) => run_prompt(args, settings, &prompt),
        PromptArgument::Workflow => run_workflow(args, settings, &mut std::io::stdout().lock()),
        PromptArgument::Conversation if args.raw || args.stats || !args.image.is_empty() => Err(
            Failure::user("--raw, --stats and --image need a prompt: millrace run \"Hello\""),
        ),
        PromptArgument::Conversation => chat::talk(settings, args.system.clone(), &args.generate),
    }
}

fn run_prompt(args: &RunArgs, settings: &Settings, prompt: &str) -> Result<(), Failure> {
    let options = AnswerOptions::read(&args.generate)?;
    let images = read_images(&args.image, settings)?;
    let mut out = std::io::stdout().lock();
    let loaded = loading::load_model(settings)?;
    let generator = Generator::new(&loaded, settings)?;
    let options = options.with_defaults(generator.defaults());
    generator.expect_supported(&options)?;
    options.warn();
    let prompt = typed_prompt(&generator, &options, args, prompt)?;
    let mut printer = AnswerPrinter::new(&mut out);
    let answer = generator.answer((prompt, &images), &options, &mut printer, None)?;
    if args.stats {
        print_rates(&answer);
    }
    let complete = answer.expect_complete(&generator);
    loaded.close();
    complete
}

/// Runs a workflow. The document is compiled before the model is loaded, so that errors appear at once.
fn run_workflow(args: &RunArgs, settings: &Settings, out: &mut impl Write) -> Result<(), Failure> {
    let Some(path) = &args.program.workflow else {
        return Ok(());
    };
    let program = workflow::compile(path)?;
    let loaded = loading::load_model(settings)?;
    let done = workflow::run(&loaded, &program, &args.program, out);
    loaded.close();
    done
}

fn typed_prompt(
    generator: &Generator,
    options: &AnswerOptions,
    args: &RunArgs,
    prompt: &str,
) -> Result<Prompt, Failure> {
    if args.raw {
        return generator.raw_prompt(prompt);
    }
    let system = args.system.as_deref();
    let system = system.map(|text| text_message("system", text));
    let message = user_message(prompt, 0..args.image.len());
    let messages = system.into_iter().chain([message]);
    Ok(options.conversation(messages.collect()))
}

/// The images of the command line.
fn read_images(paths: &[PathBuf], settings: &Settings) -> Result<Vec<ImagePart>, Failure> {
    let bytes_max = settings.vision.image_bytes_max;
    let images = paths.iter();
    images
        .map(|path| match path.as_path() {
            path if path == Path::new(STANDARD_INPUT) => read_piped_image("--image", bytes_max),
            path => read_image("--image", path, bytes_max),
        })
        .collect()
}

/// Prints counts and rates on standard error.
fn print_rates(answer: &Answer) {
    let rate = |tokens: u64, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let usage = &answer.usage;
    let computed = usage.prompt_tokens - usage.cached_tokens;
    let tokens = usage.completion_tokens;
    // A closed standard error is no failure.
    let _ = writeln!(
        std::io::stderr(),
        "prompt: {} tokens ({} cached), {:.1}/s; answer: {tokens} tokens, {:.1}/s; end: {}",
        usage.prompt_tokens,
        usage.cached_tokens,
        rate(computed, answer.prompt_time()),
        rate(tokens.saturating_sub(1), usage.times.decoding()),
        server::end_words(answer.end),
    );
    if let Some(described) = &answer.descriptions {
        let _ = writeln!(
            std::io::stderr(),
            "descriptions by {}: prompts of {} tokens, {} tokens",
            described.model,
            described.prompt_tokens,
            described.completion_tokens,
        );
    }
}

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
            prompt => read_prompt(prompt, &args.image)?,
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

fn read_prompt(said: Option<OsString>, images: &[PathBuf]) -> Result<PromptArgument, Failure> {
    let is_typed = said.as_ref().is_some_and(|text| text != STANDARD_INPUT);
    let piped = images
        .iter()
        .filter(|path| path.as_path() == Path::new(STANDARD_INPUT));
    if piped.count() > usize::from(is_typed) {
        return Err(given_twice(
            "standard input is one image or the prompt: type the prompt, and name other images by their files",
        ));
    }
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
