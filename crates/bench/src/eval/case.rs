//! Questions with known answers, one a line.

use super::check::Check;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;

/// Cases of one file; protects memory from a file that is something else.
pub const CASES_MAX: usize = 1_000_000;

/// One question.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is counted under.
    pub skill: String,
    /// The request's body; `model`, `temperature`, `max_tokens` are added where they are not given.
    pub request: Map<String, Value>,
    /// What must be true of the answer.
    pub check: Check,
}

/// A line that is no case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for CaseError {}

/// Reads a file's text; empty lines are passed over.
///
/// # Errors
/// The first line that is no case, a check that checks nothing, more than [`CASES_MAX`] cases, or none.
pub fn parse(text: &str) -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| CaseError { line: i + 1, why };
        let case: Case = serde_json::from_str(line).map_err(|why| wrong(why.to_string()))?;
        if case.check == Check::default() {
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
    fn lines_are_cases_and_what_is_wrong_is_told_with_its_line() {
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
        for (label, text, told) in rows {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{label}: {error}");
        }
    }
}
