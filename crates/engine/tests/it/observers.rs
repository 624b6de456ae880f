//! Notifications of observers and followers, and the handling of their panics.

use crate::clocks::model;
use crate::support::Bench;
use crate::support::watched::Watched;
use engine::Transition::{self, Ended, FirstToken, Queued, Started};
use engine::{EngineConfig, Follower, Observer, Progress, Request, RequestId, StepFacts};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use stream::End;

fn bench() -> (Bench, Watched) {
    let mut bench = Bench::new(model(), EngineConfig::default());
    let watched = Watched::default();
    bench.engine.observe(watched.observer());
    (bench, watched)
}

/// Panics at the third transition.
struct Clumsy(u32);

impl Observer for Clumsy {
    fn transition(&mut self, _: RequestId, _: Transition, _: Instant) {
        self.0 += 1;
        assert!(self.0 < 3, "simulated");
    }
    fn step(&mut self, _: &StepFacts) {}
}

impl Drop for Clumsy {
    fn drop(&mut self) {
        assert!(self.0 < 3, "simulated");
    }
}

#[test]
fn panicking_observer_is_dropped_and_counted() {
    crate::support::quiet_expected_panics();
    let (mut bench, _) = bench();
    bench.engine.observe(Box::new(Clumsy(0)));
    let answer = bench.answer(bench.request(&[1, 2], 10));
    assert_eq!(answer.end, Some(End::Length));
    assert_eq!(bench.handle.stats().observer_panics(), 1);
}

/// Records the transitions of one request.
#[derive(Debug)]
struct Diary(Arc<Mutex<Vec<Transition>>>);

impl Follower for Diary {
    fn transition(&self, what: Transition, _: Instant) {
        self.0.lock().unwrap().push(what);
        assert_ne!(what, Transition::Started, "simulated");
    }
}

#[test]
fn follower_gets_its_request_only_and_may_panic() {
    crate::support::quiet_expected_panics();
    let (mut bench, _) = bench();
    let told = Arc::default();
    let diary = Diary(Arc::clone(&told));
    let followed = Request {
        progress: Arc::new(Progress::followed(Box::new(diary))),
        ..bench.request(&[1, 2], 3)
    };
    let other = bench.ask(bench.request(&[3], 3), 1);
    assert_eq!(bench.answer(followed).end, Some(End::Length));
    let story = [Queued, Started, FirstToken, Ended(End::Length)];
    assert_eq!(*told.lock().unwrap(), story);
    assert_eq!(bench.handle.stats().observer_panics(), 1);
    drop(other);
}

#[test]
fn steps_are_reported_with_their_facts() {
    let (mut bench, watched) = bench();
    let request = bench.request(&[1; 6], 3);
    let progress = Arc::clone(&request.progress);
    bench.answer(request);
    let facts = |rows_prefill, rows_decode, tokens| StepFacts {
        rows_prefill,
        rows_decode,
        rows_draft: 0,
        batch: 1,
        tokens,
        duration_ns: 1_000_000,
    };
    let expected = [
        facts(4, 0, 0),
        facts(2, 0, 1),
        facts(0, 1, 1),
        facts(0, 1, 1),
    ];
    watched.with(|told| assert_eq!(told.steps, expected));
    let stats = bench.handle.stats();
    assert_eq!(stats.time_to_first_token().sum_ns, 2_000_000);
    assert_eq!(stats.queue_wait().count(), 1);
    let between = stats.inter_token();
    assert_eq!((between.count(), between.sum_ns), (2, 2_000_000));
    // The request's own account says the same.
    assert_eq!((progress.gaps(), progress.gaps_ns()), (2, 2_000_000));
    assert_eq!(progress.gap_max_ns(), 1_000_000);
    let all = progress.last_token_ns() - progress.first_token_ns();
    assert_eq!(all, 2_000_000);
}
