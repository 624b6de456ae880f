//! Words for people in the errors of settings: what was probably meant, and what a value must be.

use wire::fields::edit_distance;

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

/// A message of serde as a sentence of what the value must be, without names of Rust's types. A message of another kind stays
/// as it is.
pub(crate) fn plain_words(message: &str) -> String {
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    let of_type = |name: &str| TYPES.iter().find(|(known, _)| *known == name);
    if let Some((_, words)) = message.strip_prefix("invalid ").and_then(of_type) {
        return format!("must be {words}");
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = expected_words(expected);
    if let Some(name) = found.strip_prefix("unknown field ") {
        return format!("there is no {name}; it may be {expected}");
    }
    match found_value(found) {
        Some(value) => format!("must be {expected}, not {value}"),
        None => format!("must be {expected}"),
    }
}

/// The types or the names that are expected.
fn expected_words(expected: &str) -> String {
    if let Some((_, words)) = TYPES.iter().find(|(name, _)| *name == expected) {
        return (*words).to_owned();
    }
    if expected.starts_with("struct ") {
        return "names with values".to_owned();
    }
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    match names.split_last() {
        None => expected.to_owned(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, names)) => format!("{} or {last}", names.join(", ")),
    }
}

/// The value that was found, as it was written; `None`: its kind says nothing.
fn found_value(found: &str) -> Option<&str> {
    let found = found.strip_prefix("unknown variant ").or_else(|| {
        let (kind, found) = found.split_once(": ")?;
        kind.starts_with("invalid ").then_some(found)
    })?;
    match found {
        "map" => Some("names with values"),
        "sequence" => Some("a list"),
        "null" | "unit value" => Some("nothing"),
        _ if found.starts_with("string ") => found.split_once(' ').map(|(_, text)| text),
        _ => found.split('`').nth(1),
    }
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
    fn messages_of_serde_become_sentences() {
        for (message, want) in [
            (
                "invalid type: string \"many\", expected usize",
                "must be a whole number from 0 on, not \"many\"",
            ),
            (
                "invalid value: integer `-1`, expected u16",
                "must be a whole number from 0 to 65535, not -1",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                "must be a whole number from 0 on, not 1.5",
            ),
            (
                "invalid type: map, expected a string",
                "must be text, not names with values",
            ),
            (
                "invalid type: null, expected a boolean",
                "must be true or false, not nothing",
            ),
            (
                "invalid type: integer `1`, expected struct NamedModel",
                "must be names with values, not 1",
            ),
            (
                "unknown variant `q4`, expected one of `f16`, `q8_0`, `q4_0`",
                "must be f16, q8_0 or q4_0, not q4",
            ),
            (
                "unknown variant `x`, expected `per_key` or `shared`",
                "must be per_key or shared, not x",
            ),
            (
                "unknown field `contxt`, expected one of `from`, `context`",
                "there is no `contxt`; it may be from or context",
            ),
            ("missing field `name`", "`name` is missing"),
            (
                "invalid socket address syntax",
                "invalid socket address syntax",
            ),
        ] {
            assert_eq!(plain_words(message), want);
        }
    }
}
