//! Which upstream gets a call: the one with the fewest running calls, of those that did not fail just now.

use std::time::{Duration, Instant};

/// Time for which an upstream that failed gets calls only if all others failed too.
const REST: Duration = Duration::from_secs(2);

/// Upstreams by their place in the configuration.
#[derive(Debug)]
pub(super) struct Upstreams {
    states: Vec<UpstreamState>,
}

#[derive(Clone, Debug, Default)]
struct UpstreamState {
    calls: usize,
    failed_at: Option<Instant>,
}

impl Upstreams {
    pub(super) fn new(count: usize) -> Self {
        Self {
            states: vec![UpstreamState::default(); count],
        }
    }

    /// The upstream for the next call, of those that can be used; `None` without any.
    pub(super) fn begin_call(
        &mut self,
        now: Instant,
        is_usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let order = |state: &UpstreamState| {
            let since = state.failed_at.map(|at| now.saturating_duration_since(at));
            let rests = since.is_some_and(|since| since < REST);
            // Of upstreams that rest, the one that failed first.
            (
                rests,
                since.filter(|_| rests).map(std::cmp::Reverse),
                state.calls,
            )
        };
        let usable = (0..self.states.len()).filter(|&place| is_usable(place));
        let place = usable.min_by_key(|&place| order(&self.states[place]))?;
        self.states[place].calls += 1;
        Some(place)
    }

    /// Calls that run.
    pub(super) fn calls(&self) -> usize {
        self.states.iter().map(|state| state.calls).sum()
    }

    pub(super) fn end_call(&mut self, place: usize) {
        self.states[place].calls -= 1;
    }

    pub(super) fn failed(&mut self, place: usize, now: Instant) {
        self.states[place].failed_at = Some(now);
    }

    pub(super) fn succeeded(&mut self, place: usize) {
        self.states[place].failed_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_that_failed_rests() {
        let start = tokio::time::Instant::now().into_std();
        let mut upstreams = Upstreams::new(2);
        assert_eq!(upstreams.begin_call(start, |_| true), Some(0));
        assert_eq!(upstreams.begin_call(start, |_| true), Some(1));
        assert_eq!(upstreams.begin_call(start, |_| true), Some(0));
        upstreams.end_call(1);
        upstreams.failed(1, start);
        assert_eq!(
            upstreams.begin_call(start, |_| true),
            Some(0),
            "the other rests"
        );
        assert_eq!(upstreams.begin_call(start + REST, |_| true), Some(1));
        upstreams.failed(0, start + REST);
        upstreams.failed(1, start + REST + REST / 2);
        let later = start + REST + REST / 2;
        assert_eq!(upstreams.begin_call(later, |place| place == 1), Some(1));
        assert_eq!(
            upstreams.begin_call(later, |_| true),
            Some(0),
            "failed first"
        );
    }

    #[test]
    fn no_upstream_is_chosen_of_none() {
        let now = tokio::time::Instant::now().into_std();
        assert_eq!(Upstreams::new(0).begin_call(now, |_| true), None);
    }
}
