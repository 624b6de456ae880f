//! The pace of a replay: even, over the time between the first and the last token.

use super::description::StreamDescription;
use crate::clock::now;
use std::thread;
use std::time::{Duration, Instant};

/// Lateness after which the pace begins anew: the text is still being generated.
const LATE: Duration = Duration::from_millis(100);

/// When messages are due.
pub(super) struct ReplayPace {
    /// Time of a token, for each choice.
    token_times: Vec<Duration>,
    due: Option<Instant>,
}

impl ReplayPace {
    /// The pace of a stream's generation, `speed` times as fast. Without the times of the stream, everything is due at
    /// once.
    pub(super) fn new(stream: &StreamDescription, speed: f64) -> Self {
        let times = stream.timings_ms;
        let last = times.ended.unwrap_or(times.age);
        let span = times
            .first_token
            .map_or(0, |first| last.saturating_sub(first));
        let span = Duration::from_millis(span).div_f64(speed);
        let gaps = |tokens: u64| u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        let choices = stream.choices.iter();
        let token_times = choices.map(|choice| span / gaps(choice.tokens).max(1));
        Self {
            token_times: token_times.collect(),
            due: None,
        }
    }

    /// Waits until a message with so many tokens of a choice is due.
    pub(super) fn wait(&mut self, choice: usize, tokens: u64) {
        loop {
            let left = self.due.map(|due| due.saturating_duration_since(now()));
            match left.filter(|left| !left.is_zero()) {
                Some(left) => thread::park_timeout(left),
                None => return self.advance(choice, tokens, now()),
            }
        }
    }

    /// The next message is due after these tokens.
    fn advance(&mut self, choice: usize, tokens: u64, now: Instant) {
        let each = self.token_times.get(choice).copied().unwrap_or_default();
        let time = each.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX));
        let due = self
            .due
            .filter(|due| now.saturating_duration_since(*due) < LATE);
        self.due = Some(due.unwrap_or(now) + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stream(first: Option<u64>, ended: Option<u64>) -> StreamDescription {
        let stream = json!({
            "id": "1", "model": "m", "dialect": "native.job", "state": "running", "resumable": true, "attached": false,
            "prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 32,
            "choices": [{"tokens": 11, "end": null}, {"tokens": 21, "end": null}],
            "timings_ms": {"age": 5000, "started": 10, "first_token": first, "ended": ended},
        });
        serde_json::from_value(stream).expect("a description")
    }

    #[test]
    fn tokens_are_due_at_even_times() {
        let ms = Duration::from_millis;
        let rows = [
            (Some(1000), Some(2000), 1.0, [100, 50]),
            (Some(1000), Some(2000), 4.0, [25, 12]),
            (Some(1000), None, 0.5, [800, 400]),
            (None, None, 1.0, [0, 0]),
        ];
        for (first, ended, speed, want) in rows {
            let pace = ReplayPace::new(&stream(first, ended), speed);
            let found = pace.token_times.iter().map(Duration::as_millis);
            assert_eq!(
                found.collect::<Vec<_>>(),
                want,
                "{first:?} {ended:?} {speed}"
            );
        }
        let mut pace = ReplayPace::new(&stream(Some(1000), Some(2000)), 1.0);
        let start = now();
        pace.advance(0, 1, start);
        assert_eq!(pace.due, Some(start + ms(100)));
        pace.advance(0, 2, start + ms(130));
        assert_eq!(pace.due, Some(start + ms(300)), "a little late");
        pace.advance(1, 1, start + ms(1000));
        assert_eq!(pace.due, Some(start + ms(1050)), "from now on");
    }
}
