//! `millrace run`: one answer, or one workflow, on the terminal.

use super::chat::{self, text_message};
use super::prompt_arguments::{PromptArgument, RunArguments};
use super::pull::pull_absent;
use super::workflow;
use crate::args::RunArgs;
use crate::config::Settings;
use crate::failure::Failure;
use crate::generation::{Answer, AnswerOptions, AnswerPrinter, Generator};
use crate::model_lookup::expect_directories;
use crate::{loading, logging};
use generate::request::Prompt;
use std::io::Write;
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
        PromptArgument::Conversation if args.raw || args.stats => Err(Failure::user(
            "--raw and --stats need a prompt: millrace run \"Hello\"",
        )),
        PromptArgument::Conversation => chat::talk(settings, args.system.clone(), &args.generate),
    }
}

fn run_prompt(args: &RunArgs, settings: &Settings, prompt: &str) -> Result<(), Failure> {
    let options = AnswerOptions::read(&args.generate)?;
    let mut out = std::io::stdout().lock();
    let loaded = loading::load_model(settings)?;
    let generator = Generator::new(&loaded, settings);
    let options = options.with_defaults(generator.defaults());
    generator.expect_supported(&options)?;
    options.warn();
    let prompt = typed_prompt(&generator, &options, args, prompt)?;
    let mut printer = AnswerPrinter::new(&mut out);
    let answer = generator.answer(prompt, &options, &mut printer, None)?;
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
    let messages = system.into_iter().chain([text_message("user", prompt)]);
    Ok(options.conversation(messages.collect()))
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
}
