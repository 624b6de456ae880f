//! Choices of a recovered stream, as a resumed generation takes them.

use crate::durability::end_from_code;
use engine::{Token, TopLogprob};
use generate::stream_meta::StreamMeta;
use generate::submit::ResumedChoice;
use journal::RecoveredChoice;

/// Tokens of all choices.
pub(crate) fn token_count(choices: &[RecoveredChoice]) -> u64 {
    choices.iter().map(|choice| choice.ids.len() as u64).sum()
}

/// Tokens of a choice that have the log-probability and the alternatives that the request wants: all of them, unless
/// the records were damaged.
pub(crate) fn usable_tokens(choice: &RecoveredChoice, logprobs: bool, top_n: usize) -> usize {
    let mut usable = choice.ids.len();
    if logprobs {
        usable = usable.min(choice.logprobs.len());
    }
    if let Some(alternatives) = choice.alternatives.len().checked_div(top_n) {
        let counts = choice.alternative_counts.iter();
        let complete = counts.take_while(|&&count| usize::from(count) == top_n);
        usable = usable.min(complete.count()).min(alternatives);
    }
    usable
}

/// All choices of a stream with their tokens and ends; choices without a record are empty.
pub(crate) fn resumed_choices(
    recorded: &[RecoveredChoice],
    meta: &StreamMeta,
) -> Vec<ResumedChoice> {
    let none = RecoveredChoice::default();
    let all = recorded.iter().chain(std::iter::repeat(&none));
    all.take(meta.choices)
        .map(|choice| resumed_choice(choice, meta))
        .collect()
}

fn resumed_choice(recorded: &RecoveredChoice, meta: &StreamMeta) -> ResumedChoice {
    let usable = usable_tokens(recorded, meta.logprobs, meta.top_n);
    // A log without log-probabilities has NaN.
    let logprobs = recorded.logprobs.iter().copied();
    let logprobs = logprobs.chain(std::iter::repeat(f32::NAN));
    let tokens = recorded.ids[..usable].iter().zip(logprobs);
    let alternatives = recorded.alternatives.iter().take(usable * meta.top_n);
    ResumedChoice {
        tokens: tokens.map(|(&id, logprob)| Token { id, logprob }).collect(),
        top: alternatives
            .map(|other| TopLogprob {
                id: other.id,
                logprob: other.logprob,
            })
            .collect(),
        end: recorded.end.map(|(code, _)| end_from_code(code)),
    }
}
