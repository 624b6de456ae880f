//! `millrace run`: one answer, or one workflow, on the terminal.

use crate::args::RunArgs;
use crate::commands::workflow;
use crate::config::Settings;
use crate::failure::Failure;
use crate::loading::Loaded;
use crate::terminal::{Answer, answer};
use crate::{loading, logging};
use std::io::{Read, Write};
use std::path::PathBuf;
use stream::End;

/// Answers one prompt, or runs one workflow.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let asked = Asked::of(args)?;
    let config = args.model.settings(asked.model.as_ref())?;
    logging::start(&config.settings)?;
    let mut out = std::io::stdout().lock();
    let Some(prompt) = asked.prompt else {
        return program(args, &config.settings, &mut out);
    };
    let loaded = loading::load(&config.settings)?;
    let prompt = prompt_ids(&loaded, args, prompt)?;
    let answer = answer(&loaded, prompt, &args.sampling, &mut out)?;
    writeln!(out)?;
    if args.stats {
        report(&answer);
    }
    loaded.close();
    match answer.end {
        End::Stop(_) | End::Length => Ok(()),
        end => Err(Failure::bug(format!("the answer ended with {end:?}"))),
    }
}

/// The document is read before the model is: what is wrong with it is told at once.
fn program(args: &RunArgs, settings: &Settings, out: &mut impl Write) -> Result<(), Failure> {
    let Some(path) = &args.program.workflow else {
        return Ok(());
    };
    let program = workflow::compile(path)?;
    let loaded = loading::load(settings)?;
    let done = workflow::run(&loaded, &program, &args.program, out);
    loaded.close();
    done
}

/// What the words that are no flags mean.
struct Asked<'a> {
    model: Option<PathBuf>,
    /// `None` with a workflow.
    prompt: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(args: &'a RunArgs) -> Result<Self, Failure> {
        let workflow = args.program.workflow.is_some();
        let (model, prompt) = match (args.words.as_slice(), workflow) {
            ([], true) => (None, None),
            ([model], true) => (Some(model), None),
            ([prompt], false) => (None, Some(prompt)),
            ([model, prompt], false) => (Some(model), Some(prompt)),
            _ => {
                return Err(Failure::user(
                    "with --workflow there is no prompt; say --kwarg",
                ));
            }
        };
        if model.is_some() && args.model.model_path.is_some() {
            return Err(Failure::user(
                "the model is named twice: with --model and without",
            ));
        }
        let prompt = prompt.map(|prompt| {
            let text = prompt.to_str();
            text.ok_or_else(|| Failure::user("the prompt is not UTF-8"))
        });
        Ok(Self {
            model: model.map(PathBuf::from),
            prompt: prompt.transpose()?,
        })
    }
}

fn prompt_ids(loaded: &Loaded, args: &RunArgs, prompt: &str) -> Result<Vec<u32>, Failure> {
    let prompt = match prompt {
        "-" => standard_input()?,
        prompt => prompt.to_owned(),
    };
    if args.raw {
        return loaded
            .tokenizer
            .encode_prompt(&prompt, false)
            .map_err(Failure::user);
    }
    let system = args
        .system
        .as_deref()
        .map(|text| loading::message("system", text));
    let messages: Vec<_> = system
        .into_iter()
        .chain([loading::message("user", &prompt)])
        .collect();
    loaded.chat_ids(&messages)
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// Counts and rates, to standard error.
#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
fn report(answer: &Answer) {
    let rate =
        |tokens: u64, time: std::time::Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let computed = answer.prompt_tokens as u64 - answer.progress.cached_tokens();
    eprintln!(
        "prompt: {} tokens ({} cached), {:.1}/s; answer: {} tokens, {:.1}/s; end: {:?}",
        answer.prompt_tokens,
        answer.progress.cached_tokens(),
        rate(computed, answer.prompt_time()),
        answer.tokens,
        rate(answer.tokens.saturating_sub(1), answer.decode_time()),
        answer.end,
    );
}
