//! A model as a Modelfile that would make it.

use super::names;
use crate::served::Made;
use serde_json::Value;
use std::fmt::Write;

/// The file.
pub(super) fn written(name: &str, made: Option<&Made>) -> String {
    let mut file = "# made by Millrace from what it knows of the model\n".to_owned();
    let Some(made) = made else {
        file += &format!("FROM {}\n", names::tagged(name));
        return file;
    };
    file += &format!("FROM {}\n", names::tagged(&made.parent));
    for (word, text) in [("TEMPLATE", &made.template), ("SYSTEM", &made.system)] {
        if let Some(text) = text {
            // Cannot fail: it is a string that is written to.
            let _ = writeln!(file, "{word} \"\"\"{text}\"\"\"");
        }
    }
    for line in parameters(Some(made), None).lines() {
        let _ = writeln!(file, "PARAMETER {line}");
    }
    file
}

/// Its parameters, one a line; a list's entries one a line.
pub(super) fn parameters(made: Option<&Made>, context_max: Option<usize>) -> String {
    let mut lines = Vec::new();
    if let Some(context) = context_max {
        lines.push(format!("num_ctx {context}"));
    }
    for (name, value) in made.into_iter().flat_map(|made| &made.options) {
        match value {
            Value::Array(values) => {
                lines.extend(values.iter().map(|value| format!("{name} {value}")));
            }
            value => lines.push(format!("{name} {value}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_made_model_is_written_as_it_was_made() {
        let made = Made {
            parent: "tiny".to_owned(),
            system: Some("Be brief.".to_owned()),
            template: None,
            options: [("stop", json!(["a", "b"])), ("temperature", json!(0.5))]
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
        };
        let file = written("short", Some(&made));
        let want = "FROM tiny:latest\nSYSTEM \"\"\"Be brief.\"\"\"\nPARAMETER stop \"a\"\n\
                    PARAMETER stop \"b\"\nPARAMETER temperature 0.5\n";
        assert!(file.ends_with(want), "{file}");
        assert!(written("tiny", None).ends_with("FROM tiny:latest\n"));
        assert_eq!(parameters(None, Some(512)), "num_ctx 512");
    }
}
