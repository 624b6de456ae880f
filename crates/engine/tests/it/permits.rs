//! Permits: a sequence without one is parked and loses no token, and permits are conserved.

use crate::support::{Asked, Bench, Random, STEPS_MAX, bench};
use engine::{Clocks, Next, PERMIT_KEPT, Request, SequencePermits, Terms};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use stream::End;

/// Permits shared by all requests of a test.
#[derive(Clone, Default)]
struct Yard(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    free: usize,
    taken: usize,
    most: usize,
    claims: usize,
    /// Permits that are returned and not given out again.
    recalled: usize,
    wakers: Vec<Waker>,
}

/// The permits of one request.
struct Counted {
    yard: Yard,
    taken: usize,
    claims: usize,
    panics: bool,
}

impl Yard {
    fn of(free: usize) -> Self {
        let yard = Self::default();
        yard.0.lock().unwrap().free = free;
        yard
    }

    fn counted(&self) -> Box<Counted> {
        Box::new(Counted {
            yard: self.clone(),
            taken: 0,
            claims: 0,
            panics: false,
        })
    }

    /// Free, taken, requested.
    fn stands(&self) -> [usize; 3] {
        let state = self.0.lock().unwrap();
        [state.free, state.taken, state.claims]
    }

    fn give(&self, places: usize) {
        let mut state = self.0.lock().unwrap();
        state.free += places;
        state.wakers.iter().for_each(Waker::wake_by_ref);
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

impl SequencePermits for Counted {
    fn wake_by(&mut self, waker: Waker) {
        self.yard.with(|state| state.wakers.push(waker));
    }

    fn take(&mut self) -> bool {
        assert!(self.claims > 0, "takes what it did not want");
        let taken = self.yard.with(|state| {
            let there = usize::from(state.free > 0);
            state.free -= there;
            state.taken += there;
            state.claims -= there;
            state.most = state.most.max(state.taken);
            there
        });
        self.claims -= taken;
        self.taken += taken;
        taken > 0
    }

    fn request(&mut self) {
        assert!(!self.panics, "simulated");
        self.claims += 1;
        self.yard.with(|state| state.claims += 1);
    }

    fn withdraw(&mut self) {
        assert!(self.claims > 0, "wants not what it did not want");
        self.claims -= 1;
        self.yard.with(|state| state.claims -= 1);
    }

    fn is_recalled(&mut self) -> bool {
        self.taken > 1 && self.yard.with(|state| state.recalled > 0)
    }

    fn give_back(&mut self) {
        assert!(self.taken > 0, "gives back what it did not take");
        self.taken -= 1;
        self.yard.with(|state| {
            state.taken -= 1;
            let recalled = usize::from(state.recalled > 0);
            state.recalled -= recalled;
            state.free += 1 - recalled;
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let left = (self.taken, self.claims);
        assert!(self.panics || left == (0, 0), "left behind: {left:?}");
    }
}

fn asked(bench: &Bench, yard: &Yard, over: Request, choices: usize) -> Asked {
    let request = Request {
        permits: Some(yard.counted()),
        ..over
    };
    bench.ask(request, choices)
}

/// All answers of such a request without permits.
fn alone(request: &dyn Fn(&Bench) -> Request, choices: usize) -> Vec<(Vec<u32>, Option<End>)> {
    let mut bench = bench();
    let mut asked = bench.ask(request(&bench), choices);
    bench.run();
    read(&mut asked)
}

fn read(asked: &mut Asked) -> Vec<(Vec<u32>, Option<End>)> {
    let answers = asked.answers.iter_mut();
    let read = answers.map(|answer| {
        answer.read();
        (answer.ids(), answer.end)
    });
    read.collect()
}

/// Sampling parameters that make choices differ.
fn sampled(bench: &Bench) -> Request {
    let mut request = bench.request(&[5, 6, 7, 8, 9], 20);
    request.sampling.temperature = 1.0;
    request.sampling.seed = 7;
    request
}

#[test]
fn choices_run_as_permits_become_free() {
    for places in [1, 2, 5, 9] {
        let (mut bench, yard) = (bench(), Yard::of(places));
        let request = sampled(&bench);
        let mut many = asked(&bench, &yard, request, 5);
        bench.run();
        assert_eq!(read(&mut many), alone(&sampled, 5), "{places} places");
        assert_eq!(yard.stands(), [places, 0, 0]);
        assert_eq!(yard.with(|state| state.most), places.min(5));
        bench.assert_empty();
    }
}

#[test]
fn youngest_choices_return_recalled_permits() {
    let (mut bench, yard) = (bench(), Yard::of(4));
    let request = sampled(&bench);
    let mut many = asked(&bench, &yard, request, 4);
    bench.steps(5);
    assert_eq!(yard.stands(), [0, 4, 0]);
    yard.with(|state| state.recalled = 9);
    bench.step();
    assert_eq!(yard.stands(), [0, 1, 3], "all but one, at the next step");
    let lengths =
        |many: &mut Asked| -> Vec<usize> { read(many).iter().map(|(ids, _)| ids.len()).collect() };
    let before = lengths(&mut many);
    bench.steps(3);
    let after = lengths(&mut many);
    assert_eq!((after[0], &after[1..]), (before[0] + 3, &before[1..]));
    yard.with(|state| state.recalled = 0);
    yard.give(3);
    bench.run();
    assert_eq!(read(&mut many), alone(&sampled, 4));
    assert_eq!(yard.stands(), [4, 0, 0]);
}

#[test]
fn request_without_permit_neither_starts_nor_times_out() {
    let (mut bench, yard) = (bench(), Yard::of(0));
    let clocks = Clocks {
        queue: Some(Duration::from_millis(5)),
        ..Clocks::default()
    };
    let request = Request {
        terms: Terms {
            clocks,
            ..Terms::default()
        },
        ..bench.request(&[1, 2, 3], 4)
    };
    let mut one = asked(&bench, &yard, request, 1);
    bench.steps(50);
    assert_eq!(bench.handle.stats().steps(), 0, "the model did nothing");
    assert_eq!(yard.stands(), [0, 0, 1]);
    yard.give(1);
    bench.run();
    assert_eq!(read(&mut one)[0].1, Some(End::Length));
    assert_eq!(yard.stands(), [1, 0, 0]);
}

#[test]
fn paused_sequence_returns_its_permit_and_requests_another() {
    let (mut bench, yard) = (bench(), Yard::of(1));
    let request = sampled(&bench);
    let mut first = asked(&bench, &yard, request, 1);
    bench.steps(6);
    bench.handle.pause(first.id);
    bench.step();
    assert_eq!(yard.stands(), [1, 0, 0], "at the next step");
    let request = bench.request(&[1, 2], 30);
    let mut second = asked(&bench, &yard, request, 1);
    bench.steps(3);
    bench.handle.resume(first.id);
    bench.steps(3);
    assert_eq!(yard.stands(), [0, 1, 1], "the other has it now");
    assert_eq!(bench.handle.stats().waiting(), 1);
    bench.run();
    assert_eq!(read(&mut first), alone(&sampled, 1));
    assert_eq!(read(&mut second)[0].1, Some(End::Length));
    let resumes = (first.progress.pauses(), first.progress.resumes());
    assert_eq!(resumes, (1, 1), "the wait for a place is no pause");
    assert_eq!(yard.stands(), [1, 0, 0]);
}

#[test]
fn sequence_without_credit_keeps_its_permit_for_a_while() {
    let (mut bench, yard) = (bench(), Yard::of(1));
    let request = Request {
        credit_window: 4,
        ..sampled(&bench)
    };
    let mut one = asked(&bench, &yard, request, 1);
    bench.run_until(|bench| bench.handle.stats().parked() == 1);
    let since = bench.now;
    bench.steps(20);
    assert_eq!(yard.stands(), [0, 1, 0]);
    let Next::Wait(until) = bench.step().next else {
        panic!("it stands still");
    };
    assert_eq!(
        until,
        since + PERMIT_KEPT,
        "and that is when it is looked at"
    );
    bench.now = until;
    bench.step();
    assert_eq!(yard.stands(), [1, 0, 0]);
    // It reads on, and finds a place.
    for _ in 0..STEPS_MAX {
        if read(&mut one)[0].1.is_some() {
            break;
        }
        bench.step();
    }
    assert_eq!(read(&mut one), alone(&sampled, 1));
    assert_eq!(yard.stands(), [1, 0, 0]);
}

#[test]
fn panicking_permits_are_needed_no_more() {
    crate::support::quiet_expected_panics();
    let (mut bench, yard) = (bench(), Yard::of(0));
    let mut places = yard.counted();
    places.panics = true;
    let request = Request {
        permits: Some(places),
        ..sampled(&bench)
    };
    let mut one = bench.ask(request, 2);
    bench.run();
    assert_eq!(read(&mut one), alone(&sampled, 2));
}

/// Under random calls in any order each answer equals the one alone, the limit holds, and all permits
/// are free in the end.
#[test]
fn permits_are_conserved_under_random_calls() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let places = 1 + random.below(4) as usize;
        let (mut bench, yard) = (bench(), Yard::of(places));
        let window = 3 * random.below(3);
        let all: Vec<_> = (0..8)
            .map(|_| {
                let request = Request {
                    credit_window: window,
                    ..sampled(&bench)
                };
                asked(&bench, &yard, request, 1 + random.below(4) as usize)
            })
            .collect();
        let (mut all, mut cancelled) = (all, [false; 8]);
        for step in 0..2000 {
            let at = random.below(8) as usize;
            match random.below(20) {
                0 => bench.handle.pause(all[at].id),
                1..4 => bench.handle.resume(all[at].id),
                4 if random.chance(5) => {
                    cancelled[at] = true;
                    bench.handle.cancel(all[at].id);
                }
                _ => drop(read(&mut all[at])),
            }
            if step > 1000 {
                all.iter().for_each(|asked| bench.handle.resume(asked.id));
                all.iter_mut().for_each(|asked| drop(read(asked)));
            }
            if random.chance(3) {
                bench.now += PERMIT_KEPT;
            }
            bench.step();
            let [free, taken, _] = yard.stands();
            assert_eq!(free + taken, places, "seed {seed}");
        }
        for (asked, cancelled) in all.iter_mut().zip(cancelled) {
            let n = asked.answers.len();
            let (got, want) = (read(asked), alone(&sampled, n));
            if cancelled {
                assert!(got.iter().zip(&want).all(|(a, b)| b.0.starts_with(&a.0)));
            } else {
                assert_eq!(got, want, "seed {seed}");
            }
        }
        assert_eq!(yard.stands(), [places, 0, 0], "seed {seed}");
        bench.assert_empty();
    }
}
