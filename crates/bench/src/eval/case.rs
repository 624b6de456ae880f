//! Evaluation cases, one JSON document per line.

use super::check::AnswerCheck;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;

/// Most cases of a file; bounds memory where the file is something else.
pub const CASES_MAX: usize = 1_000_000;

/// A request and the check of the response.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalCase {
    /// Skill that the case counts for.
    pub skill: String,
    /// Body of the request; `model`, `temperature`, `max_tokens` are added where missing.
    pub request: Map<String, Value>,
    /// Condition for a correct answer.
    pub check: AnswerCheck,
}

/// A line that is not a valid case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// Line number, from 1.
    pub line: usize,
    /// Error message.
    pub why: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for CaseError {}

/// Parses the text of a file; empty lines are skipped.
///
/// # Errors
/// The first invalid line, a check without conditions, more than [`CASES_MAX`] cases, or no case.
pub fn parse(text: &str) -> Result<Vec<EvalCase>, CaseError> {
    let mut cases = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| CaseError { line: i + 1, why };
        let case: EvalCase = serde_json::from_str(line).map_err(|why| wrong(why.to_string()))?;
        if case.check == AnswerCheck::default() {
            return Err(wrong("`check` names nothing to check".to_owned()));
        }
        if !case.request.get("messages").is_some_and(Value::is_array) {
            return Err(wrong("`request.messages` must be a list".to_owned()));
        }
        if cases.len() == CASES_MAX {
            return Err(wrong(format!("more than {CASES_MAX} cases")));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        let why = "there is no case in it".to_owned();
        return Err(CaseError { line: 1, why });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lines_are_errors_with_line_numbers() {
        let good = r#"{"skill":"a","request":{"messages":[]},"check":{"equals":"x"}}"#;
        let cases = parse(&format!("{good}\n\n{good}\n")).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].skill, "a");
        let rows = [
            ("nothing", String::new(), "line 1: there is no case"),
            ("not JSON", format!("{good}\nx"), "line 2:"),
            (
                "unknown field",
                good.replace("skill\":\"a\"", "skill\":\"a\",\"other\":1"),
                "unknown field `other`",
            ),
            (
                "unknown check",
                good.replace("equals", "resembles"),
                "unknown field `resembles`",
            ),
            (
                "no check",
                good.replace(r#""equals":"x""#, ""),
                "names nothing to check",
            ),
            (
                "no messages",
                good.replace("messages", "prompt"),
                "`request.messages` must be a list",
            ),
        ];
        for (label, text, message) in rows {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{label}: {error}");
        }
    }
}
