//! `millrace chat`: a conversation on the terminal. The prefix cache holds earlier turns.

use crate::args::{ChatArgs, SamplingArgs};
use crate::config::Settings;
use crate::failure::Failure;
use crate::loading::LoadedEngine;
use crate::terminal::answer;
use crate::{loading, logging};
use std::io::{BufRead, Write};
use text::Message;

/// Commands of the conversation.
const HELP: &str = "/bye ends the conversation, /clear starts a new one";

/// Runs a conversation until the input ends or the user types `/bye`.
pub(crate) fn chat(args: &ChatArgs) -> Result<(), Failure> {
    let config = args.model.settings(args.path.as_ref())?;
    logging::start(&config.settings)?;
    talk(&config.settings, args.system.as_deref(), &args.sampling)
}

/// A conversation on the terminal, also for `run` with a model and no prompt.
pub(super) fn talk(
    settings: &Settings,
    system: Option<&str>,
    sampling: &SamplingArgs,
) -> Result<(), Failure> {
    let loaded = loading::load_model(settings)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{HELP}")?;
    let system: Vec<_> = system
        .map(|text| loading::text_message("system", text))
        .into_iter()
        .collect();
    let mut messages = system.clone();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        write!(out, "> ")?;
        out.flush()?;
        let Some(line) = lines.next().transpose()? else {
            // The next prompt of the shell begins on a new line.
            writeln!(out)?;
            break;
        };
        match line.trim() {
            "" => continue,
            "/bye" | "/exit" | "/quit" => break,
            "/help" | "/?" => writeln!(out, "{HELP}")?,
            "/clear" => messages.clone_from(&system),
            said => {
                messages.push(loading::text_message("user", said));
                answer_last(&loaded, &mut messages, sampling, &mut out)?;
            }
        }
    }
    loaded.close();
    Ok(())
}

/// Answers the last message. On failure prints the error and removes the message.
fn answer_last(
    loaded: &LoadedEngine,
    messages: &mut Vec<Message>,
    sampling: &SamplingArgs,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let answered = loaded
        .chat_ids(messages)
        .and_then(|prompt| answer(loaded, prompt, sampling, out))
        .and_then(|answer| answer.expect_whole(&loaded.name).map(|()| answer.text));
    match answered {
        Ok(text) => messages.push(loading::text_message("assistant", &text)),
        Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
        Err(why) => {
            messages.pop();
            logging::print_failure(&why);
        }
    }
    writeln!(out)?;
    Ok(())
}
