//! Reading of the files that an operator names: settings and keys.

use crate::config::plain_words;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The content and the metadata of a regular file. Other files are an error: opening a FIFO or reading a terminal would
/// block.
///
/// # Errors
/// The file cannot be read, is no regular file, has more than `bytes_max` bytes, or is not UTF-8. The error names the path.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<(String, Metadata), String> {
    let shown = path.display();
    let wrong = |why: std::io::Error| format!("{shown}: {why}");
    if !std::fs::metadata(path).map_err(wrong)?.is_file() {
        return Err(format!("{shown}: must be a regular file"));
    }
    let file = File::open(path).map_err(wrong)?;
    let metadata = file.metadata().map_err(wrong)?;
    let mut text = String::new();
    // The file may grow during the read.
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    let read = read.map_err(|why| match why.kind() {
        ErrorKind::InvalidData => format!("{shown}: is no UTF-8 text"),
        _ => wrong(why),
    });
    if read? as u64 > bytes_max {
        let bytes = metadata.len();
        return Err(format!("{shown}: {bytes} bytes, at most {bytes_max}"));
    }
    Ok((text, metadata))
}

/// Parses YAML. Errors name the line and quote nothing: the lines around a mistake may have a secret.
///
/// # Errors
/// The text is not YAML of this type.
pub(crate) fn parse_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| yaml_words(&why.to_string()))
}

/// A message of the YAML parser in words for people, with its line.
fn yaml_words(message: &str) -> String {
    let (problem, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    let words = if let Some(rest) = problem.strip_prefix("duplicate mapping key: ") {
        let name = rest.split(", set ").next().unwrap_or(rest);
        format!("the key {name} is there twice")
    } else if let Some(rest) = problem.strip_prefix("non-finite float ") {
        let number = rest.split(" rejected").next().unwrap_or(rest);
        format!("{number} is no finite number")
    } else {
        match problem {
            "expected sequence start" => "must be a list".to_owned(),
            "expected mapping start" => "must be names with values".to_owned(),
            "recursion limit exceeded" => "is nested too deeply".to_owned(),
            _ if problem.starts_with("budget breached") => {
                "is too large where its aliases (*name) are replaced".to_owned()
            }
            _ if problem.starts_with("multiple YAML documents") => {
                "has a second document; take out the line ---".to_owned()
            }
            _ => plain_words(problem),
        }
    };
    words + place
}

#[cfg(test)]
mod tests {
    //! Promise (Settings and operation): errors of settings and key files quote no line of the file.

    use super::parse_yaml;
    use serde_json::Value;

    #[test]
    fn errors_name_no_type_of_the_parser() {
        for (text, want) in [
            ("a: 1\na: 2\n", "the key a is there twice at line 2"),
            ("a: .nan", "`.nan` is no finite number at line 1"),
        ] {
            let why = parse_yaml::<Value>(text).expect_err(text);
            assert!(why.starts_with(want), "{why}");
        }
        let names: Vec<_> = ('a'..='l').collect();
        let bomb: String = names
            .windows(2)
            .map(|pair| {
                format!(
                    "{}: &{} [{}]\n",
                    pair[1],
                    pair[1],
                    format!("*{}, ", pair[0]).repeat(9)
                )
            })
            .collect();
        let bomb = format!("a: &a [x]\n{bomb}");
        for (text, want) in [
            (bomb, "is too large where its aliases"),
            ("a: 1\n---\nb: 2\n".to_owned(), "has a second document"),
            ("[".repeat(10_000), "is nested too deeply"),
        ] {
            let why = parse_yaml::<Value>(&text).expect_err(want);
            assert!(why.starts_with(want), "{why}");
        }
        let why = parse_yaml::<Vec<u32>>("[1, x]").expect_err("a word");
        assert!(why.starts_with("must be a whole number from 0"), "{why}");
        let why = parse_yaml::<Vec<u32>>("3").expect_err("a number");
        assert!(why.starts_with("must be a list at line 1"), "{why}");
    }

    #[test]
    fn errors_quote_no_lines() {
        let rows = [
            "keys:\n  - secret: whsec_LEAK\n    scopes: [x\n",
            "api_key: sk-LEAK\nserver: {bind: 1\n",
        ];
        for text in rows {
            let why = parse_yaml::<Value>(text).expect_err("an open bracket");
            assert!(!why.contains("LEAK") && why.contains("line"), "{why}");
        }
    }
}
