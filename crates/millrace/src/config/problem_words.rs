//! Words for people in the errors of settings: what was probably meant, and what a value must be.

use wire::edit_distance::edit_distance;

/// Characters of a name that are compared: time grows with their square.
const COMPARED_CHARS_MAX: usize = 64;
/// Types of Rust in messages of serde, and their words.
const TYPES: [(&str, &str); 18] = [
    ("usize", "a whole number from 0 on"),
    ("u64", "a whole number from 0 on"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u16", "a whole number from 0 to 65535"),
    ("u8", "a whole number from 0 to 255"),
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("a nonzero u64", "a whole number from 1 on"),
    ("a nonzero usize", "a whole number from 1 on"),
    ("a nonzero u32", "a whole number from 1 to 4294967295"),
    ("f64", "a number"),
    ("f32", "a number"),
    ("a boolean", "true or false"),
    ("a string", "text"),
    ("path string", "a path"),
    ("a sequence", "a list"),
    ("a map", "names with values"),
    ("string or map", "text"),
];

/// The end of the sentence "there is no such setting": the known name that was probably meant.
pub(super) fn did_you_mean(typed: &str, known: impl Iterator<Item = String>) -> String {
    let nearest = known
        .filter_map(|name| Some((distance(typed, &name)?, name)))
        .min();
    nearest.map_or_else(String::new, |(_, name)| format!("; did you mean {name}?"))
}

/// How far a known name is from a typed one; `None`: too far for a typing error.
fn distance(typed: &str, name: &str) -> Option<usize> {
    let typed: String = typed.chars().take(COMPARED_CHARS_MAX).collect();
    let changes = edit_distance(&typed, name);
    if changes <= (typed.len().min(name.len()) / 4).clamp(1, 4) {
        return Some(changes);
    }
    // The right name in a wrong section, or in none.
    let (_, inner) = name.rsplit_once('.')?;
    let end = typed.rsplit('.').next()?;
    (end == inner).then_some(COMPARED_CHARS_MAX)
}

/// A message of serde with words in place of the types of Rust.
pub(super) fn plain_words(message: &str) -> String {
    let Some((before, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    let word = match TYPES.iter().find(|(name, _)| *name == expected) {
        Some((_, words)) => words,
        None if expected.starts_with("struct ") => "names with values",
        None => return message.to_owned(),
    };
    format!("{before}expected {word}")
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, plain_words};

    #[test]
    fn nearest_setting_is_named() {
        let known = [
            "model.context",
            "model.threads",
            "server.bind",
            "server.api_prefix",
            "models.directories",
            "preset",
        ];
        for (typed, want) in [
            ("model.contxt", "; did you mean model.context?"),
            ("sever.bind", "; did you mean server.bind?"),
            ("models.directory", "; did you mean models.directories?"),
            ("threads", "; did you mean model.threads?"),
            ("server.threads", "; did you mean model.threads?"),
            ("server.Bind", "; did you mean server.bind?"),
            ("colour", ""),
            ("server.x", ""),
            ("", ""),
        ] {
            let found = did_you_mean(typed, known.iter().map(|&name| name.to_owned()));
            assert_eq!(found, want, "{typed}");
        }
    }

    #[test]
    fn types_of_rust_become_words() {
        for (message, want) in [
            (
                "invalid type: string \"many\", expected usize",
                "invalid type: string \"many\", expected a whole number from 0 on",
            ),
            (
                "invalid value: integer `-1`, expected u16",
                "invalid value: integer `-1`, expected a whole number from 0 to 65535",
            ),
            (
                "invalid type: integer `1`, expected struct NamedModel",
                "invalid type: integer `1`, expected names with values",
            ),
            (
                "unknown variant `q4`, expected one of `f16`, `q8_0`",
                "unknown variant `q4`, expected one of `f16`, `q8_0`",
            ),
            (
                "invalid socket address syntax",
                "invalid socket address syntax",
            ),
        ] {
            assert_eq!(plain_words(message), want);
        }
    }
}
