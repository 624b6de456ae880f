//! Errors of the command line, without the words of Rust's parsers.

use crate::failure::Failure;
use crate::logging;
use std::io::Write;
use std::process::ExitCode;

/// The setting `log.json` in the environment.
const JSON_LOG_VARIABLE: &str = "MILLRACE_LOG_JSON";
/// Reasons of Rust's number parsers, and words for people.
const NUMBER_WORDS: [(&str, &str); 6] = [
    (
        "number would be zero for non-zero type",
        "must be at least 1",
    ),
    (
        "invalid digit found in string",
        "must be a whole number from 0 on",
    ),
    (
        "cannot parse integer from empty string",
        "must be a whole number",
    ),
    (
        "number too large to fit in target type",
        "is too large a number",
    ),
    ("invalid float literal", "must be a number"),
    ("cannot parse float from empty string", "must be a number"),
];

/// Prints help or an error, an error in one line of JSON where the environment wants a JSON log. Returns the exit code.
pub(super) fn print_error(why: &clap::Error) -> ExitCode {
    let is_json = std::env::var(JSON_LOG_VARIABLE).is_ok_and(|value| value == "true");
    let words = why.render();
    // Without a reader the exit code remains.
    let _ = if !why.use_stderr() {
        why.print()
    } else if is_json {
        logging::use_json(true);
        let words = plain_error(&words.to_string());
        let words = words.trim_start_matches("error: ").trim_end();
        logging::print_failure(&Failure::user(words));
        Ok(())
    } else if logging::is_colored() {
        write!(
            std::io::stderr(),
            "{}",
            plain_error(&words.ansi().to_string())
        )
    } else {
        write!(std::io::stderr(), "{}", plain_error(&words.to_string()))
    };
    u8::try_from(why.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The text of an error with a sentence in place of Rust's words: `must be 0 to 9` for `10 is not in 0..=9`.
fn plain_error(words: &str) -> String {
    let lines: Vec<String> = words.split('\n').map(plain_line).collect();
    lines.join("\n")
}

fn plain_line(line: &str) -> String {
    let known = NUMBER_WORDS
        .iter()
        .find(|(reason, _)| line.ends_with(reason));
    if let Some((reason, plain)) = known {
        return line.replace(reason, plain);
    }
    plain_range(line).unwrap_or_else(|| line.to_owned())
}

fn plain_range(line: &str) -> Option<String> {
    let (before, range) = line.rsplit_once(" is not in ")?;
    let (before, _) = before.rsplit_once(": ")?;
    let (least, most) = range.split_once("..")?;
    // A range without `=` ends with the largest number there is.
    Some(match most.strip_prefix('=') {
        Some(most) => format!("{before}: must be {least} to {most}"),
        None => format!("{before}: must be at least {least}"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::plain_error;
    use clap::Parser;

    #[test]
    fn errors_of_numbers_have_no_words_of_rust() {
        for (args, want) in [
            (
                ["serve", "--port", "99999"],
                "--port <PORT>': must be 0 to 65535",
            ),
            (
                ["serve", "--top-k", "-1"],
                "--top-k <N>': must be 0 to 4294967295",
            ),
            (
                ["serve", "--context", "x"],
                "--context <TOKENS>': must be a whole number from 0 on",
            ),
            (
                ["serve", "--temperature", "x"],
                "--temperature <NUMBER>': must be a number",
            ),
            (
                ["run", "--max-tokens", "0"],
                "--max-tokens <TOKENS>': must be at least 1",
            ),
        ] {
            let args = ["millrace"].into_iter().chain(args);
            let why = Cli::try_parse_from(args).expect_err(want);
            let words = plain_error(&why.render().to_string());
            assert!(words.contains(want), "{words}");
        }
    }
}
