//! How many were right, by skill.

use super::verdict::Verdict;
use crate::table::{aligned, cells};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One skill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub skill: String,
    /// Cases.
    pub cases: usize,
    /// Those answered rightly.
    pub right: usize,
    /// Of all, 0 to 1.
    pub share: f64,
}

/// An answer that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// The case's number, from 1.
    pub case: usize,
    /// Its skill.
    pub skill: String,
    /// The last thing that was asked.
    pub question: String,
    /// What was answered, and what is wrong with it.
    pub why: String,
}

/// What came of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// By name; the last is all together.
    pub rows: Vec<Row>,
    /// Every wrong answer.
    pub wrong: Vec<Wrong>,
    /// From the first question to the last answer.
    pub seconds: f64,
}

impl Report {
    pub(super) fn of(verdicts: &[Verdict], took: Duration) -> Self {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for verdict in verdicts {
            let (cases, right) = counts.entry(&verdict.skill).or_default();
            *cases += 1;
            *right += usize::from(verdict.outcome.is_ok());
        }
        let row = |skill: &str, cases: usize, right: usize| Row {
            skill: skill.to_owned(),
            cases,
            right,
            share: right as f64 / cases.max(1) as f64,
        };
        let right = verdicts.iter().filter(|one| one.outcome.is_ok()).count();
        let rows = counts
            .iter()
            .map(|(skill, &(n, right))| row(skill, n, right));
        let wrong = |(i, verdict): (usize, &Verdict)| {
            Some(Wrong {
                case: i + 1,
                skill: verdict.skill.clone(),
                question: verdict.question.clone(),
                why: verdict.outcome.clone().err()?,
            })
        };
        Self {
            rows: rows.chain([row("all", verdicts.len(), right)]).collect(),
            wrong: verdicts.iter().enumerate().filter_map(wrong).collect(),
            seconds: took.as_secs_f64(),
        }
    }

    /// The table, and the first `most` wrong answers.
    pub fn shown(&self, most: usize) -> String {
        let mut text = self.to_string();
        for wrong in self.wrong.iter().take(most) {
            let Wrong {
                case,
                skill,
                question,
                why,
            } = wrong;
            text.push_str(&format!("case {case}, {skill}: {question:?}\n    {why}\n"));
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![cells(["skill", "cases", "right", "share"])];
        for Row {
            skill,
            cases,
            right,
            share,
        } in &self.rows
        {
            let share = format!("{:.1} %", share * 100.0);
            lines.push(vec![
                skill.clone(),
                cases.to_string(),
                right.to_string(),
                share,
            ]);
        }
        writeln!(f, "{}{:.1} s", aligned(&lines), self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_counted_by_skill_and_together() {
        let verdict = |skill: &str, right: bool| Verdict {
            skill: skill.to_owned(),
            question: "q".to_owned(),
            outcome: if right { Ok(()) } else { Err("w".to_owned()) },
        };
        let verdicts = [verdict("b", true), verdict("a", false), verdict("b", false)];
        let report = Report::of(&verdicts, Duration::from_secs(1));
        let counts: Vec<_> = report
            .rows
            .iter()
            .map(|row| (&*row.skill, row.cases, row.right))
            .collect();
        assert_eq!(counts, [("a", 1, 0), ("b", 2, 1), ("all", 3, 1)]);
        assert_eq!(report.wrong[1].case, 3);
        let shown = report.shown(1);
        assert!(
            shown.contains("50.0 %") && shown.contains("case 2, a"),
            "{shown}"
        );
        assert!(!shown.contains("case 3"), "{shown}");
    }
}
