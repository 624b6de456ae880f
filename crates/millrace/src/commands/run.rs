//! `millrace run`: one answer on the terminal.

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::loading::Loaded;
use crate::terminal::{Answer, answer};
use crate::{loading, logging};
use std::io::{Read, Write};
use stream::End;

/// Answers one prompt.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = args.model.settings(args.path.as_ref())?;
    logging::start(&config.settings)?;
    let loaded = loading::load(&config.settings)?;
    let prompt = prompt_ids(&loaded, args)?;
    let mut out = std::io::stdout().lock();
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

fn prompt_ids(loaded: &Loaded, args: &RunArgs) -> Result<Vec<u32>, Failure> {
    let prompt = match args.prompt.as_str() {
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
