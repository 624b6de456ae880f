//! Many stories in a few figures.

use super::options::Objective;
use super::story::{Failure, Story};
use crate::Summary;
use std::collections::BTreeMap;
use std::time::Duration;

/// What became of one request.
pub(super) struct Outcome {
    /// How long after it was due this client sent it.
    pub(super) late: Duration,
    pub(super) story: Result<Story, Failure>,
}

/// Distributions over all answers, milliseconds.
pub(super) struct Figures {
    pub(super) first_token: Summary,
    pub(super) between_tokens: Summary,
    pub(super) between_frames: Summary,
    pub(super) mean_between_tokens: Summary,
    pub(super) whole: Summary,
    pub(super) late: Summary,
}

impl Figures {
    pub(super) fn of(outcomes: &[Outcome]) -> Self {
        let stories = || {
            outcomes
                .iter()
                .filter_map(|outcome| outcome.story.as_ref().ok())
        };
        let mut frames: Vec<f64> = stories().flat_map(|story| &story.gaps).map(ms).collect();
        let mut tokens = frames.clone();
        for story in stories() {
            let merged = usize::try_from(story.merged()).unwrap_or(0);
            tokens.extend(std::iter::repeat_n(0.0, merged));
        }
        let each = |of: fn(&Story) -> Option<Duration>| {
            Summary::of(
                &mut stories()
                    .filter_map(of)
                    .map(|time| ms(&time))
                    .collect::<Vec<_>>(),
            )
        };
        Self {
            first_token: each(|story| Some(story.first)),
            between_tokens: Summary::of(&mut tokens),
            between_frames: Summary::of(&mut frames),
            mean_between_tokens: each(Story::between_tokens),
            whole: each(|story| Some(story.end)),
            late: Summary::of(
                &mut outcomes
                    .iter()
                    .map(|outcome| ms(&outcome.late))
                    .collect::<Vec<_>>(),
            ),
        }
    }
}

/// Failures by name.
pub(super) fn failures(outcomes: &[Outcome]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for failure in outcomes
        .iter()
        .filter_map(|outcome| outcome.story.as_ref().err())
    {
        *counts.entry(failure.name()).or_default() += 1;
    }
    counts
}

impl Objective {
    /// Whether an answer is good.
    pub(super) fn holds(&self, story: &Story) -> bool {
        let within = |bound: Option<Duration>, time: Option<Duration>| match (bound, time) {
            (Some(bound), Some(time)) => time <= bound,
            _ => true,
        };
        within(self.first_token, Some(story.first))
            && within(self.between_tokens, story.between_tokens())
    }
}

fn ms(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Usage;
    use super::*;

    fn story(first: u64, gaps: &[u64], tokens: u64) -> Story {
        let ms = Duration::from_millis;
        let last = ms(first + gaps.iter().sum::<u64>());
        Story {
            first: ms(first),
            last,
            end: last,
            gaps: gaps.iter().copied().map(ms).collect(),
            usage: Some(Usage {
                prompt_tokens: 1,
                completion_tokens: tokens,
            }),
        }
    }

    fn outcome(story: Result<Story, Failure>) -> Outcome {
        Outcome {
            late: Duration::ZERO,
            story,
        }
    }

    #[test]
    fn a_token_that_came_with_another_waited_for_nothing() {
        let outcomes = [
            outcome(Ok(story(10, &[4, 8], 5))),
            outcome(Ok(story(30, &[6], 2))),
        ];
        let figures = Figures::of(&outcomes);
        assert_eq!(
            (figures.first_token.p50, figures.first_token.max),
            (10.0, 30.0)
        );
        assert_eq!(figures.between_frames.count, 3);
        // Four waits and one: 0, 0, 4, 8 and 6.
        assert_eq!(
            (figures.between_tokens.count, figures.between_tokens.p50),
            (5, 4.0)
        );
        assert_eq!(figures.mean_between_tokens.min, 3.0);
    }

    #[test]
    fn failures_are_counted_by_name_and_no_answer() {
        let outcomes = [
            outcome(Err(Failure::Status(503))),
            outcome(Err(Failure::Status(503))),
            outcome(Err(Failure::Timeout)),
            outcome(Ok(story(1, &[], 1))),
        ];
        let wanted = [("status 503".to_owned(), 2), ("timeout".to_owned(), 1)];
        assert_eq!(failures(&outcomes), BTreeMap::from(wanted));
        assert_eq!(Figures::of(&outcomes).first_token.count, 1);
    }

    #[test]
    fn good_is_what_keeps_every_bound_given() {
        let ms = |value| Some(Duration::from_millis(value));
        let objective = |first_token, between_tokens| Objective {
            first_token,
            between_tokens,
        };
        let story = story(100, &[10, 30], 3);
        let rows = [
            (objective(None, None), true),
            (objective(ms(100), None), true),
            (objective(ms(99), None), false),
            (objective(None, ms(20)), true),
            (objective(ms(100), ms(19)), false),
        ];
        for (objective, holds) in rows {
            assert_eq!(objective.holds(&story), holds, "{objective:?}");
        }
    }
}
