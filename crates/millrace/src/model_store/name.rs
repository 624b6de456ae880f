//! Names that a model can be given.

use std::fmt;

/// Bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// Ending of a record's file name.
const RECORD: &str = ".json";

/// A valid name of a model: parts of letters, digits, `.`, `_`, `-` and `@`, none beginning with a dot, with `/` between
/// them, and a tag after `:`. No such name is a path out of its directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelName(String);

impl ModelName {
    /// The name, if the text is a valid one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_part = |part: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
        };
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (text, None),
        };
        // A host may have a port.
        let path_is = |(i, part): (usize, &str)| match part.split_once(':') {
            Some((host, port)) if i == 0 && path.contains('/') => {
                is_part(host) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
            }
            _ => is_part(part),
        };
        let right = text.len() <= NAME_BYTES_MAX
            && path.split('/').enumerate().all(path_is)
            && tag.is_none_or(is_part);
        right.then(|| Self(text.to_owned()))
    }

    /// The error message for an invalid name.
    pub(crate) fn rule() -> String {
        format!(
            "a model's name has at most {NAME_BYTES_MAX} letters, digits, dots, underscores, hyphens and `@`, with `/` between \
             parts (none of which begins with a dot), and may end with a tag after `:`"
        )
    }

    /// The name encoded as a file name.
    pub(super) fn file_name(&self) -> String {
        let name = self.0.replace('/', "%2F").replace(':', "%3A");
        format!("{name}{RECORD}")
    }

    /// The name of the record with this file name.
    pub(super) fn of_file_name(file: &str) -> Option<Self> {
        let name = file.strip_suffix(RECORD)?;
        let parsed = Self::parse(&name.replace("%2F", "/").replace("%3A", ":"))?;
        (parsed.file_name() == file).then_some(parsed)
    }

    /// The name as the user typed it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere() {
        let right = [
            "tiny",
            "tiny:1b",
            "qwen3:0.6b",
            "hf.co/org/repo-GGUF:Q4_K_M",
            "org/repo@v1.0:Q8_0",
            "org/repo:file.gguf",
            "localhost:8080/org/tiny:latest",
        ];
        for text in right {
            let name = ModelName::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(ModelName::of_file_name(&name.file_name()), Some(name));
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        let wrong = [
            "",
            ".",
            "..",
            "../tiny",
            "a/../b",
            "a/./b",
            "/etc/passwd",
            "a//b",
            "a/",
            ".hidden",
            "a/.b",
            "%2e%2e/x",
            "..%2Fx",
            "a\\b",
            "a b",
            "a\0b",
            "a\nb",
            "a:",
            ":a",
            "a:b:c",
            "a:..",
            "a:../b",
            "ä",
            &long,
        ];
        for text in wrong {
            assert_eq!(ModelName::parse(text), None, "{text:?}");
        }
        for file in ["a", "..json", "a%2f.json", "a%2F..%2Fb.json", "a b.json"] {
            assert_eq!(ModelName::of_file_name(file), None, "{file}");
        }
    }
}
