use super::*;
use crate::{Follower, ParkReason, Policy, Transition};

struct Counts {
    free: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    recalled: Arc<AtomicUsize>,
}

impl Counts {
    fn new(free: usize) -> Self {
        Self {
            free: Arc::new(AtomicUsize::new(free)),
            held: Arc::default(),
            recalled: Arc::default(),
        }
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn set_free(&self, free: usize) {
        self.free.store(free, Ordering::Relaxed);
    }
}

/// A request with a window of four tokens, and the readers of its choices.
fn submitted(
    bench: &mut Bench,
    choices: usize,
    counts: &Counts,
    change: impl FnOnce(&mut Request),
) -> (RelayedRequest, Vec<Reader<Token>>) {
    let (mut request, readers) = bench.request(choices, &[]);
    request.permits = Some(Box::new(Permits {
        free: Arc::clone(&counts.free),
        held: Arc::clone(&counts.held),
        recalled: Arc::clone(&counts.recalled),
    }));
    change(&mut request);
    bench.handle.submit(request).unwrap();
    (bench.take(), readers)
}

fn append(relayed: &mut RelayedRequest, choice: usize, count: u32, now: Instant) {
    (0..count).for_each(|id| relayed.append(choice, token(id), &[], now).unwrap());
}

#[test]
fn choice_without_credit_gives_its_permit_back_and_gets_credit_with_the_next_one() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(1));
    let (mut relayed, mut readers) = submitted(&mut bench, 1, &counts, |_| {});
    let mut now = bench.now;
    assert!(relayed.update_permits(now) && relayed.may_compute(0));
    append(&mut relayed, 0, 4, now);
    let held = relayed.update_permits(now) && counts.held() == 1;
    assert!(held && relayed.may_compute(0), "for a while");
    now += crate::PERMIT_KEPT;
    assert!(!relayed.update_permits(now) && counts.held() == 0);
    assert!(!relayed.may_compute(0) && !relayed.waits_for_permit());
    // Another request has the permit when the reader comes back.
    counts.set_free(0);
    assert_eq!(read(&mut readers[0]).0.len(), 4);
    readers[0].accept(4);
    assert!(!relayed.update_permits(now) && !relayed.may_compute(0));
    assert!(relayed.waits_for_permit());
    counts.set_free(1);
    assert!(relayed.update_permits(now) && relayed.may_compute(0) && counts.held() == 1);
    drop(relayed);
    assert_eq!(counts.held(), 0);
}

#[test]
fn request_may_run_while_one_of_its_choices_has_a_permit() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(2));
    let (mut relayed, readers) = submitted(&mut bench, 2, &counts, |_| {});
    let mut now = bench.now;
    assert!(relayed.update_permits(now));
    append(&mut relayed, 0, 4, now);
    append(&mut relayed, 1, 3, now);
    relayed.update_permits(now);
    now += crate::PERMIT_KEPT;
    assert!(relayed.update_permits(now) && counts.held() == 1);
    assert!(!relayed.may_compute(0) && relayed.may_compute(1));
    append(&mut relayed, 1, 1, now);
    relayed.update_permits(now);
    now += crate::PERMIT_KEPT;
    assert!(!relayed.update_permits(now) && counts.held() == 0);
    readers[0].accept(1);
    assert!(relayed.update_permits(now) && counts.held() == 1);
    assert!(relayed.may_compute(0) && !relayed.may_compute(1));
}

#[test]
fn youngest_choice_gives_a_recalled_permit_back_and_gets_no_credit_until_one_is_free() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(3));
    let (mut relayed, _readers) = submitted(&mut bench, 3, &counts, |_| {});
    let now = bench.now;
    let computing = |relayed: &RelayedRequest| [0, 1, 2].map(|choice| relayed.may_compute(choice));
    assert!(relayed.update_permits(now) && counts.held() == 3);
    counts.recalled.store(1, Ordering::Relaxed);
    for _ in 0..2 {
        assert!(relayed.update_permits(now));
        assert_eq!(counts.held(), 2);
        assert_eq!(computing(&relayed), [true, true, false]);
    }
    counts.recalled.store(1, Ordering::Relaxed);
    assert!(relayed.update_permits(now));
    assert_eq!(computing(&relayed), [true, false, false]);
    // What was on its way arrives all the same.
    append(&mut relayed, 2, 2, now);
    counts.set_free(2);
    assert!(relayed.update_permits(now) && counts.held() == 3);
    assert_eq!(computing(&relayed), [true; 3]);
}

#[test]
fn choices_without_a_credit_window_keep_recalled_permits() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(2));
    let change = |request: &mut Request| request.credit_window = 0;
    let (mut relayed, _readers) = submitted(&mut bench, 2, &counts, change);
    counts.recalled.store(1, Ordering::Relaxed);
    assert!(relayed.update_permits(bench.now) && relayed.update_permits(bench.now));
    assert_eq!(counts.held(), 2);
}

#[test]
fn choice_that_an_engine_may_compute_on_keeps_its_permit() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(1));
    let (mut relayed, _readers) = submitted(&mut bench, 1, &counts, |_| {});
    let mut now = bench.now;
    append(&mut relayed, 0, 3, now);
    relayed.note_placed();
    append(&mut relayed, 0, 3, now);
    relayed.update_permits(now);
    now += crate::PERMIT_KEPT;
    assert!(relayed.update_permits(now), "one of four tokens is left");
    append(&mut relayed, 0, 1, now);
    relayed.update_permits(now);
    now += crate::PERMIT_KEPT;
    assert!(!relayed.update_permits(now));
    relayed.note_unplaced();
    assert!(!relayed.update_permits(now) && !relayed.waits_for_permit());
}

#[test]
fn reader_clock_ends_a_choice_that_no_engine_has() {
    let second = Duration::from_secs(1);
    for policy in [Policy::Cancel, Policy::Keep] {
        let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(2));
        let (mut relayed, mut readers) = submitted(&mut bench, 2, &counts, |request| {
            request.terms.clocks.reader = Some(2 * second);
            request.terms.policy = policy;
        });
        let now = bench.now;
        append(&mut relayed, 0, 4, now);
        append(&mut relayed, 1, 1, now);
        relayed.update_permits(now);
        relayed.finish_stalled(now + second);
        assert_eq!(read(&mut readers[0]).1, None);
        relayed.finish_stalled(now + 2 * second);
        let late = (policy == Policy::Cancel).then_some(End::TimedOut(Clock::Reader));
        assert_eq!(read(&mut readers[0]).1, late);
        assert_eq!(read(&mut readers[1]).1, None, "the other reader is ahead");
    }
}

#[test]
fn paused_request_waits_for_a_permit_and_no_reader_clock_runs() {
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(1));
    let (mut relayed, readers) = submitted(&mut bench, 1, &counts, |request| {
        request.terms.clocks.reader = Some(Duration::from_secs(1));
    });
    let now = bench.now;
    append(&mut relayed, 0, 4, now);
    relayed.update_permits(now);
    bench.handle.pause(relayed.id());
    assert!(!relayed.update_permits(now) && counts.held() == 0);
    let later = now + Duration::from_secs(9);
    relayed.finish_stalled(later);
    assert!(!relayed.has_ended());
    bench.handle.resume(relayed.id());
    counts.set_free(0);
    assert!(!relayed.update_permits(later) && !relayed.waits_for_permit());
    relayed.show_parked(later);
    assert_eq!(relayed.phase(), Phase::Parked);
    readers[0].accept(4);
    assert!(!relayed.update_permits(later) && relayed.waits_for_permit());
    assert!(!relayed.may_compute(0));
}

#[test]
fn request_that_waits_for_a_permit_is_shown_as_parked_for_want_of_a_place() {
    #[derive(Debug)]
    struct Told(Arc<Mutex<Vec<Transition>>>);
    impl Follower for Told {
        fn transition(&self, what: Transition, _: Instant) {
            self.0.lock().unwrap().push(what);
        }
    }
    let told = Arc::new(Mutex::default());
    let (mut bench, counts) = (bench(EngineConfig::default()), Counts::new(1));
    let (mut relayed, readers) = submitted(&mut bench, 1, &counts, |request| {
        request.progress = Arc::new(Progress::followed(Box::new(Told(Arc::clone(&told)))));
    });
    let now = bench.now;
    let report = |phase| RelayedProgress {
        phase,
        prompt_done: 3,
        cached_tokens: 0,
    };
    relayed.update_permits(now);
    append(&mut relayed, 0, 4, now);
    relayed.apply_progress(report(Phase::Parked), now);
    relayed.update_permits(now);
    let later = now + crate::PERMIT_KEPT;
    relayed.update_permits(later);
    counts.set_free(0);
    readers[0].accept(4);
    for _ in 0..3 {
        relayed.update_permits(later);
        relayed.apply_progress(report(Phase::Parked), later);
    }
    counts.set_free(1);
    relayed.update_permits(later);
    relayed.apply_progress(report(Phase::Running), later);
    let reason = ParkReason::NoPermit;
    let expected = [
        Transition::Backpressure,
        Transition::Parked { reason },
        Transition::Resumed,
    ];
    let told = told.lock().unwrap();
    let last = &told[told.len() - expected.len()..];
    assert_eq!(last, expected, "{told:?}");
}
