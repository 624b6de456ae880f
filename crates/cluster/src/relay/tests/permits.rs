//! Requests whose readers rest: they give their permits back, and no engine is searched for them meanwhile.

use super::bench::*;
use super::*;
use ::engine::{PERMIT_KEPT, Request, SequencePermits};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use stream::{Clock, Reader};

/// Permits that are free.
struct Permits(Arc<AtomicUsize>);

impl SequencePermits for Permits {
    fn wake_by(&mut self, _: Waker) {}

    fn request(&mut self) {}

    fn take(&mut self) -> bool {
        let take = |free: usize| free.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, get, take).is_ok()
    }

    fn withdraw(&mut self) {}

    fn give_back(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request on engine `A` with this many choices and a window of two tokens, each of which has its two tokens and gave
/// the permit back.
fn resting(
    bench: &mut Bench,
    choices: usize,
    change: impl FnOnce(&mut Request),
) -> (Vec<Reader<::engine::Token>>, Run, Arc<AtomicUsize>) {
    let free = Arc::new(AtomicUsize::new(choices));
    bench.show(&[A]);
    let readers = bench.submit_with(choices, |request| {
        request.credit_window = 2;
        request.permits = Some(Box::new(Permits(Arc::clone(&free))));
        change(request);
    });
    let run = bench.placed();
    for choice in 0..choices as u32 {
        bench.tokens_of(A, &run, (choice, 0), &[5, 6]);
    }
    bench.orders();
    bench.now += PERMIT_KEPT;
    bench.orders();
    assert_eq!(free.load(Ordering::Relaxed), choices, "given back");
    (readers, run, free)
}

fn has_credit(orders: &[crate::messages::Order]) -> bool {
    let is_credit = |kind: &OrderKind| matches!(kind, OrderKind::Credit { .. });
    orders.iter().any(|order| is_credit(&order.kind))
}

#[test]
fn request_without_an_engine_is_not_placed_before_a_reader_comes_back_and_a_permit_is_free() {
    let mut bench = bench();
    let (mut readers, run, free) = resting(&mut bench, 1, |_| {});
    bench.show(&[B]);
    assert!(bench.sent().is_none(), "nothing is to be computed");
    bench.now += Duration::from_secs(3600);
    assert!(bench.sent().is_none());
    assert_eq!(read(&mut readers[0]), (vec![5, 6], None), "still open");
    free.store(0, Ordering::Relaxed);
    readers[0].accept(1);
    bench.now += Duration::from_secs(3600);
    assert!(bench.sent().is_none(), "another request has the permit");
    free.store(1, Ordering::Relaxed);
    let (engine, again) = bench.sent().expect("placed again");
    assert_eq!((engine, again.attempt), (B, run.attempt + 1));
    assert_eq!(again.choices[0].ids, [5, 6]);
    bench.answer(B, &again, RunReply::Accepted);
    bench.tokens(B, &again, 2, &[7]);
    bench.end(B, &again, 3, End::Stop(Stop::Eos));
    let rest = (vec![7], Some(End::Stop(Stop::Eos)));
    assert_eq!(read(&mut readers[0]), rest);
    assert_eq!(bench.told.moves(), 1);
    assert_eq!(free.load(Ordering::Relaxed), 1);
}

#[test]
fn time_without_an_engine_counts_from_the_readers_return() {
    let mut bench = bench();
    let (mut readers, ..) = resting(&mut bench, 1, |_| {});
    bench.show(&[]);
    assert!(bench.sent().is_none());
    bench.now += Duration::from_secs(3600);
    assert!(bench.sent().is_none());
    readers[0].accept(2);
    assert!(bench.sent().is_none());
    bench.now += Duration::from_secs(59);
    assert!(bench.sent().is_none());
    assert_eq!(read(&mut readers[0]), (vec![5, 6], None));
    bench.now += Duration::from_secs(1);
    assert!(bench.sent().is_none());
    let failed = Some(End::Failed(FailCode::NoEngine));
    assert_eq!(read(&mut readers[0]), (vec![], failed));
}

#[test]
fn engine_gets_credit_with_the_permit() {
    let mut bench = bench();
    let (readers, _, free) = resting(&mut bench, 1, |_| {});
    free.store(0, Ordering::Relaxed);
    readers[0].accept(2);
    assert!(!has_credit(&bench.orders()));
    free.store(1, Ordering::Relaxed);
    assert!(has_credit(&bench.orders()));
}

#[test]
fn request_is_placed_for_the_choice_that_is_wanted() {
    let mut bench = bench();
    let (readers, _, free) = resting(&mut bench, 2, |_| {});
    bench.show(&[B]);
    assert!(bench.sent().is_none());
    readers[1].accept(2);
    let (_, again) = bench.sent().expect("placed again");
    assert_eq!(again.choices.len(), 2);
    bench.answer(B, &again, RunReply::Accepted);
    // The engine may compute a window of the other choice, which has a permit for that.
    bench.orders();
    assert_eq!(free.load(Ordering::Relaxed), 0);
    bench.tokens_of(B, &again, (0, 2), &[7, 8]);
    bench.orders();
    bench.now += PERMIT_KEPT;
    bench.orders();
    assert_eq!(free.load(Ordering::Relaxed), 1, "until it is parked again");
}

#[test]
fn request_without_an_engine_ends_by_its_own_clocks_and_by_a_cancel() {
    let second = Duration::from_secs(1);
    type Change = fn(&mut Request);
    let rows: [(Change, End); 3] = [
        (|_| {}, End::Cancelled),
        (
            |request| request.terms.clocks.reader = Some(Duration::from_secs(5)),
            End::TimedOut(Clock::Reader),
        ),
        (
            |request| request.terms.clocks.total = Some(Duration::from_secs(5)),
            End::TimedOut(Clock::Total),
        ),
    ];
    for (change, end) in rows {
        let mut bench = bench();
        let (mut readers, ..) = resting(&mut bench, 1, change);
        bench.show(&[]);
        assert!(bench.sent().is_none() && !bench.relay.is_empty(), "{end:?}");
        match end {
            End::Cancelled => readers.clear(),
            _ => bench.now += 5 * second,
        }
        assert!(bench.sent().is_none());
        assert!(bench.relay.is_empty(), "{end:?}");
        if let Some(reader) = readers.first_mut() {
            assert_eq!(read(reader).1, Some(end));
        }
    }
}

#[test]
fn engine_that_shuts_down_gives_a_parked_request_back_and_the_next_one_gets_it_later() {
    let mut bench = bench();
    let (mut readers, run, _) = resting(&mut bench, 1, |_| {});
    bench.show(&[A, B]);
    bench.end(A, &run, 2, End::Failed(FailCode::Shutdown));
    assert!(bench.sent().is_none());
    readers[0].accept(2);
    let (engine, again) = bench.sent().expect("placed again");
    assert_eq!(engine, B);
    assert_eq!(again.choices[0].ids, [5, 6]);
    assert_eq!(read(&mut readers[0]), (vec![5, 6], None));
}
