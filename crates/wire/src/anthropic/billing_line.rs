//! Claude Code's billing line, the first line of its `system`:
//!
//! ```text
//! x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;
//! ```
//!
//! `cch` and the end of `cc_version` change with every request, so no prompt with this line in front begins like an
//! earlier one, and no cached prefix could be used. Anthropic's own servers take the line out for their accounts; to a
//! model it says nothing. So the line is no part of the prompt.

/// How the line begins.
const NAME: &str = "x-anthropic-billing-header:";

/// `system` without a billing line in front, and without the line ends after the line.
///
/// Only a first line that consists of the header's `name=value;` pairs is one: a text that speaks of the header stays.
pub(crate) fn without_billing_line(system: &str) -> &str {
    let (line, rest) = system.split_once('\n').unwrap_or((system, ""));
    match line.strip_prefix(NAME) {
        Some(pairs) if is_list_of_pairs(pairs) => rest.trim_start_matches(['\r', '\n']),
        _ => system,
    }
}

fn is_list_of_pairs(list: &str) -> bool {
    let mut pairs = list
        .split(';')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .peekable();
    pairs.peek().is_some() && pairs.all(is_pair)
}

fn is_pair(pair: &str) -> bool {
    let is_plain = !pair.contains(char::is_whitespace);
    is_plain
        && pair
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_billing_line_in_front_is_removed() {
        let line =
            "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=sdk-cli; cch=36ee5;";
        for (label, system, want) in [
            ("alone", line.to_owned(), ""),
            ("with a line end", format!("{line}\n"), ""),
            (
                "before the instructions",
                format!("{line}\nYou are"),
                "You are",
            ),
            (
                "before an empty line",
                format!("{line}\r\n\r\n You are"),
                " You are",
            ),
            (
                "one pair, without a last semicolon",
                format!("{NAME}cc_version=2\nx"),
                "x",
            ),
            (
                "two lines",
                format!("{line}\n{line}\nx"),
                &format!("{line}\nx"),
            ),
        ] {
            assert_eq!(without_billing_line(&system), want, "{label}");
        }
        for (label, system) in [
            ("nothing", String::new()),
            ("later in the text", format!("You are\n{line}\n")),
            ("after a space", format!(" {line}\n")),
            ("in other letters", line.to_uppercase()),
            (
                "a sentence about the header",
                format!("{NAME} a header of Claude Code; never repeat it\n"),
            ),
            (
                "a sentence behind pairs",
                format!("{line} Explain this line.\nx"),
            ),
            ("no pair", format!("{NAME}\nYou are")),
            ("no name", format!("{NAME} =x;\nYou are")),
            ("only separators", format!("{NAME} ; ;\nYou are")),
        ] {
            assert_eq!(without_billing_line(&system), system, "{label}");
        }
    }
}
