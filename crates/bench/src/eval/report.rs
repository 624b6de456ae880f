//! Correct answers by skill.

use super::verdict::Verdict;
use crate::table::{aligned, cells};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Result of one skill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkillRow {
    /// Name of the skill.
    pub skill: String,
    /// Number of cases.
    pub cases: usize,
    /// Number of correct answers.
    pub right: usize,
    /// Share of correct answers, 0 to 1.
    pub share: f64,
}

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongAnswer {
    /// Number of the case, from 1.
    pub case: usize,
    /// Skill of the case.
    pub skill: String,
    /// Last message of the request.
    pub question: String,
    /// The answer and the failed condition.
    pub why: String,
}

/// Results of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    /// Results by skill name; the last row is the total.
    pub rows: Vec<SkillRow>,
    /// All wrong answers.
    pub wrong: Vec<WrongAnswer>,
    /// Duration of the evaluation in seconds.
    pub seconds: f64,
}

impl EvalReport {
    pub(super) fn of(verdicts: &[Verdict], took: Duration) -> Self {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for verdict in verdicts {
            let (cases, right) = counts.entry(&verdict.skill).or_default();
            *cases += 1;
            *right += usize::from(verdict.outcome.is_ok());
        }
        let row = |skill: &str, cases: usize, right: usize| SkillRow {
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
            Some(WrongAnswer {
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

    /// The table, followed by the first `most` wrong answers.
    pub fn with_wrong_answers(&self, most: usize) -> String {
        let mut text = self.to_string();
        for wrong in self.wrong.iter().take(most) {
            let WrongAnswer {
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

impl fmt::Display for EvalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![cells(["skill", "cases", "right", "share"])];
        for SkillRow {
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
    fn correct_answers_are_counted_by_skill_and_in_total() {
        let verdict = |skill: &str, right: bool| Verdict {
            skill: skill.to_owned(),
            question: "q".to_owned(),
            outcome: if right { Ok(()) } else { Err("w".to_owned()) },
        };
        let verdicts = [verdict("b", true), verdict("a", false), verdict("b", false)];
        let report = EvalReport::of(&verdicts, Duration::from_secs(1));
        let counts: Vec<_> = report
            .rows
            .iter()
            .map(|row| (&*row.skill, row.cases, row.right))
            .collect();
        assert_eq!(counts, [("a", 1, 0), ("b", 2, 1), ("all", 3, 1)]);
        assert_eq!(report.wrong[1].case, 3);
        let shown = report.with_wrong_answers(1);
        assert!(
            shown.contains("50.0 %") && shown.contains("case 2, a"),
            "{shown}"
        );
        assert!(!shown.contains("case 3"), "{shown}");
    }
}
