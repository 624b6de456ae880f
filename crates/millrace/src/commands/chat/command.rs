//! Commands of a conversation: lines that begin with a slash.

use generate::request::GenerationParams;
use std::fmt::Display;
use std::str::FromStr;

/// The answer to `/help`.
pub(super) const HELP: &str = "\
/help               show these lines
/clear              start a new conversation
/system [TEXT]      show or replace the system prompt
/set [NAME VALUE]   show or change temperature, top-k, top-p, min-p, seed, max-tokens, think;
                    the value `default` unsets seed, max-tokens and think
/bye                leave, as Ctrl-D does
Ctrl-C              stop the answer
A line that ends with a backslash continues on the next line; so does text between lines with \"\"\".
After a tool call the next line is the result of the tool.";

/// The value that unsets an option.
const UNSET: &str = "default";

/// A command.
#[derive(Debug, PartialEq)]
pub(super) enum ChatCommand {
    Help,
    Leave,
    Clear,
    ShowSystem,
    System(String),
    ShowSettings,
    Set { name: String, value: String },
}

impl ChatCommand {
    /// The command of an input; `None` for a message: an input without a slash, or with more than a word after the
    /// slash, such as a path.
    pub(super) fn parse(input: &str) -> Option<Result<Self, String>> {
        let rest = input.trim().strip_prefix('/')?;
        let (word, argument) = match rest.split_once(char::is_whitespace) {
            Some((word, argument)) => (word, argument.trim()),
            None => (rest, ""),
        };
        let is_word = |byte: u8| byte.is_ascii_alphabetic() || byte == b'?';
        if word.is_empty() || !word.bytes().all(is_word) {
            return None;
        }
        let command = match (word, argument) {
            ("help" | "?", _) => Self::Help,
            ("bye" | "exit" | "quit", _) => Self::Leave,
            ("clear", _) => Self::Clear,
            ("system", "") => Self::ShowSystem,
            ("system", text) => Self::System(text.to_owned()),
            ("set", "") => Self::ShowSettings,
            ("set", setting) => match setting.split_once(char::is_whitespace) {
                Some((name, value)) => Self::Set {
                    name: name.to_owned(),
                    value: value.trim().to_owned(),
                },
                None => return Some(Err(format!("/set {setting}: needs a value"))),
            },
            _ => return Some(Err(format!("/{word}: no such command; /help lists them"))),
        };
        Some(Ok(command))
    }
}

/// The options that `/set` changes, a line each.
pub(super) fn setting_lines(params: &GenerationParams, thinks: Option<bool>) -> Vec<String> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| UNSET.to_owned());
    let sampling = &params.sampling;
    vec![
        format!("temperature {}", sampling.temperature),
        format!("top-k {}", sampling.top_k),
        format!("top-p {}", sampling.top_p),
        format!("min-p {}", sampling.min_p),
        format!("seed {}", shown(params.seed.map(|seed| seed.to_string()))),
        format!(
            "max-tokens {}",
            shown(params.max_tokens.map(|max| max.to_string()))
        ),
        format!("think {}", shown(thinks.map(|thinks| thinks.to_string()))),
    ]
}

/// Changes an option of the next answers.
///
/// # Errors
/// There is no such option, or the value is out of bounds; nothing is changed.
pub(super) fn set(
    params: &mut GenerationParams,
    thinks: &mut Option<bool>,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let sampling = &mut params.sampling;
    let named = |why: String| format!("/set {name} {value}: {why}");
    match name {
        "temperature" => sampling.temperature = parse_number(value, 0.0, 100.0).map_err(named)?,
        "top-p" => sampling.top_p = parse_number(value, 0.0, 1.0).map_err(named)?,
        "min-p" => sampling.min_p = parse_number(value, 0.0, 1.0).map_err(named)?,
        "top-k" => sampling.top_k = parse_value(value, "an integer from 0 on").map_err(named)?,
        "seed" => params.seed = parse_optional(value, "an integer from 0 on").map_err(named)?,
        "max-tokens" => {
            let max: Option<std::num::NonZeroUsize> =
                parse_optional(value, "an integer from 1 on").map_err(named)?;
            params.max_tokens = max.map(std::num::NonZeroUsize::get);
        }
        "think" => *thinks = parse_optional(value, "true or false").map_err(named)?,
        _ => {
            return Err(format!(
                "/set {name}: no such option; /set shows the options"
            ));
        }
    }
    Ok(())
}

fn parse_number(value: &str, min: f32, max: f32) -> Result<f32, String> {
    let number = value.parse().ok();
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("must be a number from {min} to {max}"))
}

fn parse_value<T: FromStr>(value: &str, bound: impl Display) -> Result<T, String> {
    value.parse().map_err(|_| format!("must be {bound}"))
}

fn parse_optional<T: FromStr>(value: &str, bound: &str) -> Result<Option<T>, String> {
    match value {
        UNSET => Ok(None),
        value => parse_value(value, format!("{bound}, or {UNSET}")).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_after_a_slash_are_commands() {
        let command = |input: &str| ChatCommand::parse(input).and_then(Result::ok);
        let rows = [
            (" /help ", Some(ChatCommand::Help)),
            ("/?", Some(ChatCommand::Help)),
            ("/bye", Some(ChatCommand::Leave)),
            ("/clear", Some(ChatCommand::Clear)),
            ("/system", Some(ChatCommand::ShowSystem)),
            (
                "/system Be  brief.",
                Some(ChatCommand::System("Be  brief.".to_owned())),
            ),
            (
                "/set top-k 4",
                Some(ChatCommand::Set {
                    name: "top-k".to_owned(),
                    value: "4".to_owned(),
                }),
            ),
            ("Hello", None),
            ("/etc/passwd is a file", None),
            ("/ is the root", None),
        ];
        for (input, want) in rows {
            assert_eq!(command(input), want, "{input}");
        }
        for wrong in ["/dance", "/set top-k"] {
            let parsed = ChatCommand::parse(wrong);
            assert!(matches!(parsed, Some(Err(_))), "{wrong}: {parsed:?}");
        }
    }

    #[test]
    fn settings_are_changed_within_their_bounds() {
        let (mut params, mut thinks) = (GenerationParams::default(), None);
        let mut change = |name, value| set(&mut params, &mut thinks, name, value);
        for (name, value) in [
            ("temperature", "0.5"),
            ("top-k", "40"),
            ("top-p", "0.9"),
            ("min-p", "0.25"),
            ("seed", "7"),
            ("max-tokens", "12"),
            ("think", "true"),
        ] {
            assert_eq!(change(name, value), Ok(()), "{name}");
        }
        for (name, value) in [
            ("temperature", "-1"),
            ("temperature", "NaN"),
            ("top-p", "2"),
            ("top-k", "-1"),
            ("seed", "x"),
            ("max-tokens", "0"),
            ("think", "1"),
            ("color", "red"),
        ] {
            let why = change(name, value).expect_err(name);
            assert!(why.starts_with(&format!("/set {name}")), "{why}");
        }
        assert_eq!(change("seed", "default"), Ok(()));
        assert_eq!(
            setting_lines(&params, thinks),
            [
                "temperature 0.5",
                "top-k 40",
                "top-p 0.9",
                "min-p 0.25",
                "seed default",
                "max-tokens 12",
                "think true"
            ]
        );
    }
}
