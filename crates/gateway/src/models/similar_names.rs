//! Names that were probably meant by one that no model has.

use wire::edit_distance::edit_distance;
use wire::ollama::model_name::LATEST;

/// Suggestions in one error message.
const NEAR_MAX: usize = 3;
/// Models whose names are compared with an unknown one.
const COMPARED_MAX: usize = 1024;
/// Characters of a name that are compared: time grows with their square.
const COMPARED_CHARS_MAX: usize = 64;

/// The names nearest to an unknown name, the nearest first; all names if there are few.
pub(crate) fn near_names(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let asked = normalized_name(name);
    let all: Vec<String> = all.take(COMPARED_MAX).collect();
    let mut near: Vec<(usize, String)> = Vec::new();
    for name in &all {
        let changes = edit_distance(&asked, &normalized_name(name));
        if is_near(&asked, &normalized_name(name), changes) {
            near.push((changes, name.clone()));
        }
    }
    near.sort();
    near.truncate(NEAR_MAX);
    if near.is_empty() && all.len() <= NEAR_MAX {
        all
    } else {
        near.into_iter().map(|(_, name)| name).collect()
    }
}

/// A name for comparison: lower case, without the default tag.
fn normalized_name(name: &str) -> String {
    let name = name.strip_suffix(LATEST).unwrap_or(name);
    name.chars()
        .take(COMPARED_CHARS_MAX)
        .flat_map(char::to_lowercase)
        .collect()
}

/// Spelled alike, the beginning of one another, or of one family (`qwen3:0.6b` and `qwen3:8b`, `org/qwen3` and
/// `qwen3`).
fn is_near(asked: &str, name: &str, changes: usize) -> bool {
    let short = asked.len().min(name.len());
    let begins = short >= 3 && (asked.starts_with(name) || name.starts_with(asked));
    begins
        || model_family(asked) == model_family(name)
        || changes <= (short / 4).max(2).min(short / 2)
}

/// The part of a name between owner and tag.
fn model_family(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(':').next().unwrap_or(name)
}

/// The end of the sentence "model ... not found".
pub(crate) fn near_words(near: &[String]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    match quoted.as_slice() {
        [] => "; GET /v1/models lists the models there are".to_owned(),
        [one] => format!("; there is {one}"),
        [first @ .., last] => format!("; there are {} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{near_names, near_words};

    #[test]
    fn nearest_names_come_first() {
        let many = [
            "qwen3:0.6b",
            "qwen3:1.7b",
            "llama3.2:1b",
            "org/Mistral-7B:Q4_K_M",
            "millrace-mini",
        ];
        let rows: [(&[&str], &str, &[&str]); 10] = [
            (&many, "qwen3:0.6", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "qwen3", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "QWEN3:8b", &["qwen3:0.6b", "qwen3:1.7b"]),
            (&many, "lama3.2:1b", &["llama3.2:1b"]),
            (&many, "mistral-7b", &["org/Mistral-7B:Q4_K_M"]),
            (&many, "millrace-mini2:latest", &["millrace-mini"]),
            (&many, "gpt-4o", &[]),
            (&many, "q", &[]),
            (&["millrace-mini"], "gpt-4o", &["millrace-mini"]),
            (&[], "gpt-4o", &[]),
        ];
        for (all, asked, want) in rows {
            let near = near_names(asked, all.iter().map(|&name| name.to_owned()));
            assert_eq!(near, want, "{asked}");
        }
    }

    #[test]
    fn few_names_are_joined_as_text() {
        let words =
            |names: &[&str]| near_words(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["a"]), "; there is 'a'");
        assert_eq!(words(&["a", "b", "c"]), "; there are 'a', 'b' and 'c'");
        assert!(words(&[]).contains("/v1/models"));
    }
}
