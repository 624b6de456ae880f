//! `millrace chat`: a conversation on the terminal. Earlier turns are found again in the prefix cache.

use crate::args::ChatArgs;
use crate::failure::Failure;
use crate::terminal::answer;
use crate::{loading, logging};
use std::io::{BufRead, Write};

/// Talks until the input ends or the user says `/bye`.
pub(crate) fn chat(args: &ChatArgs) -> Result<(), Failure> {
    let config = args.model.settings(args.path.as_ref())?;
    logging::start(&config.settings)?;
    let loaded = loading::load(&config.settings)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "/bye ends, /clear forgets")?;
    let system = args
        .system
        .as_deref()
        .map(|text| loading::message("system", text));
    let mut messages: Vec<_> = system.clone().into_iter().collect();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        write!(out, "> ")?;
        out.flush()?;
        let Some(line) = lines.next().transpose()? else {
            break;
        };
        match line.trim() {
            "" => continue,
            "/bye" => break,
            "/clear" => {
                messages = system.clone().into_iter().collect();
                continue;
            }
            said => messages.push(loading::message("user", said)),
        }
        let prompt = loaded.chat_ids(&messages)?;
        match answer(&loaded, prompt, &args.sampling, &mut out) {
            Ok(answer) => messages.push(loading::message("assistant", &answer.text)),
            Err(why) => {
                messages.pop();
                logging::complain(&why);
            }
        }
        writeln!(out)?;
    }
    loaded.close();
    Ok(())
}
