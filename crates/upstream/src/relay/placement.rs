//! Where a choice is computed: only where the rest is that of the same answer, on the upstream with the fewest running calls of those
//! that did not fail just now.

use super::choice_run::ChoiceRun;
use crate::body::{continues_exactly, unsupported_by};
use crate::model_probe::{FoundModel, UpstreamKind};
use generate::request::GenerationParams;
use std::time::{Duration, Instant};

/// Where the next call of a choice may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// To every upstream: there are no tokens yet.
    Anywhere,
    /// To every upstream that continues from ids.
    ByIds,
    /// To upstreams of this kind: their random numbers are the same.
    SameKind(UpstreamKind),
    /// Nowhere.
    Lost,
}

impl Placement {
    /// The placement of a choice, of which `before` tokens are from before the submission; `covers_text`: these may be ids
    /// that only have an upstream's text.
    pub(super) fn of(
        run: &ChoiceRun,
        (before, covers_text): (usize, bool),
        params: &GenerationParams,
    ) -> Self {
        if run.generated + before == 0 {
            return Self::Anywhere;
        }
        if run.has_cover || before > 0 && covers_text {
            return Self::Lost;
        }
        match &run.source {
            _ if continues_exactly(params) => Self::ByIds,
            // Which upstream has computed the tokens from before is not known.
            Some(kind @ UpstreamKind::Millrace(_)) if before == 0 => Self::SameKind(kind.clone()),
            _ => Self::Lost,
        }
    }

    /// Whether an upstream may compute a request of so many tokens, prompt and answer together.
    pub(super) fn allows(
        &self,
        model: &FoundModel,
        tokens_max: usize,
        params: &GenerationParams,
    ) -> bool {
        let has_room = model.context_max.is_none_or(|most| tokens_max <= most);
        let may = match self {
            Self::Anywhere => true,
            Self::ByIds => model.kind != UpstreamKind::OpenAiText,
            Self::SameKind(kind) => model.kind == *kind,
            Self::Lost => false,
        };
        may && has_room && unsupported_by(&model.kind, params).is_none()
    }
}

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
    use engine::SamplingParams;

    fn params(temperature: f32) -> GenerationParams {
        GenerationParams {
            sampling: SamplingParams {
                temperature,
                ..SamplingParams::default()
            },
            ..GenerationParams::default()
        }
    }

    fn run(generated: usize, source: UpstreamKind, has_cover: bool) -> ChoiceRun {
        ChoiceRun {
            generated,
            source: Some(source),
            has_cover,
            ..ChoiceRun::new(tokio::time::Instant::now().into_std())
        }
    }

    #[test]
    fn choice_continues_only_where_the_rest_is_the_same() {
        let millrace = UpstreamKind::Millrace("1".to_owned());
        let other = UpstreamKind::Millrace("2".to_owned());
        let same = Placement::SameKind(millrace.clone());
        for (generated, before, source, covers, temperature, expected) in [
            (0, 0, &millrace, false, 1.0, Placement::Anywhere),
            (3, 0, &UpstreamKind::OpenAi, false, 0.0, Placement::ByIds),
            (3, 0, &UpstreamKind::OpenAi, false, 1.0, Placement::Lost),
            (3, 0, &UpstreamKind::LlamaCpp, true, 0.0, Placement::Lost),
            (3, 0, &millrace, false, 1.0, same.clone()),
            (3, 5, &millrace, false, 1.0, Placement::Lost),
            (0, 5, &millrace, false, 0.0, Placement::ByIds),
            (0, 5, &UpstreamKind::LlamaCpp, true, 0.0, Placement::Lost),
        ] {
            let run = run(generated, source.clone(), covers && before == 0);
            let placement = Placement::of(&run, (before, covers), &params(temperature));
            assert_eq!(placement, expected, "{generated} {before} {source:?}");
        }
        let model = |kind: &UpstreamKind, context_max| FoundModel {
            name: "m".to_owned(),
            kind: kind.clone(),
            context_max,
        };
        let allows = |placement: &Placement, kind: &UpstreamKind, most| {
            placement.allows(&model(kind, most), 100, &params(1.0))
        };
        assert!(allows(&same, &millrace, Some(100)) && !allows(&same, &other, None));
        assert!(!allows(&Placement::Anywhere, &millrace, Some(99)));
        assert!(!allows(&Placement::ByIds, &UpstreamKind::OpenAiText, None));
        assert!(!allows(&Placement::Lost, &millrace, None));
    }

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
