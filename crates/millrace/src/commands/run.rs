//! `millrace run`: one answer, or one workflow, on the terminal.

use super::spoken::{Prompt, RunWords};
use crate::args::RunArgs;
use crate::commands::{chat, workflow};
use crate::config::Settings;
use crate::failure::Failure;
use crate::loading::LoadedEngine;
use crate::terminal::{Answer, answer};
use crate::{loading, logging};
use std::io::Write;

/// Answers one prompt, or runs one workflow; without either, on a terminal, a conversation.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut config = args.model.settings(None)?;
    logging::start(&config.settings)?;
    let spoken = RunWords::of(args, &config.settings)?;
    let settings = &mut config.settings;
    settings.model.path = spoken.model.or(settings.model.path.take());
    match spoken.prompt {
        Prompt::Text(prompt) => run_prompt(args, settings, &prompt),
        Prompt::Workflow => run_workflow(args, settings, &mut std::io::stdout().lock()),
        Prompt::Conversation if args.raw || args.stats => Err(Failure::user(
            "--raw and --stats need a prompt: millrace run \"Hello\"",
        )),
        Prompt::Conversation => chat::talk(settings, args.system.as_deref(), &args.sampling),
    }
}

fn run_prompt(args: &RunArgs, settings: &Settings, prompt: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let loaded = loading::load_model(settings)?;
    let prompt = prompt_ids(&loaded, args, prompt)?;
    let answer = answer(&loaded, prompt, &args.sampling, &mut out)?;
    writeln!(out)?;
    if args.stats {
        print_rates(&answer);
    }
    let whole = answer.expect_whole(&loaded.name);
    loaded.close();
    whole
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

fn prompt_ids(loaded: &LoadedEngine, args: &RunArgs, prompt: &str) -> Result<Vec<u32>, Failure> {
    if args.raw {
        return loaded
            .tokenizer
            .encode_prompt(prompt, false)
            .map_err(Failure::user);
    }
    let system = args
        .system
        .as_deref()
        .map(|text| loading::text_message("system", text));
    let messages: Vec<_> = system
        .into_iter()
        .chain([loading::text_message("user", prompt)])
        .collect();
    loaded.chat_ids(&messages)
}

/// Prints counts and rates on standard error.
fn print_rates(answer: &Answer) {
    let rate =
        |tokens: u64, time: std::time::Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    let computed = answer.prompt_tokens as u64 - answer.progress.cached_tokens();
    // A closed standard error is no failure.
    let _ = writeln!(
        std::io::stderr(),
        "prompt: {} tokens ({} cached), {:.1}/s; answer: {} tokens, {:.1}/s; end: {:?}",
        answer.prompt_tokens,
        answer.progress.cached_tokens(),
        rate(computed, answer.prompt_time()),
        answer.tokens,
        rate(answer.tokens.saturating_sub(1), answer.decode_time()),
        answer.end,
    );
}
