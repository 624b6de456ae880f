//! `millrace eval`: questions with known answers for any OpenAI-compatible server.

use crate::args::EvalArgs;
use crate::failure::Failure;
use bench::eval::{self, EvalOptions};
use std::io::Write;
use std::time::Duration;

/// Sends the questions, and prints how many answers were right. Wrong answers do not fail the command.
pub(crate) fn eval(args: &EvalArgs) -> Result<(), Failure> {
    let shown = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|why| Failure::user(format!("{shown}: {why}")))?;
    let cases = eval::parse(&text).map_err(|why| Failure::user(format!("{shown}: {why}")))?;
    let options = EvalOptions {
        target: args.url.clone(),
        model: args.model.clone(),
        api_key: args.api_key.clone(),
        clients: args.clients,
        timeout: Duration::from_secs(args.timeout_s),
    };
    let report = eval::run(cases, options).map_err(Failure::user)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::to_string(&report).map_err(Failure::bug)?;
        writeln!(out, "{text}")?;
    } else {
        write!(out, "{}", report.with_wrong_answers(args.show))?;
    }
    Ok(())
}
