//! Tickets and permits as futures, in tokio's paused time.
//!
//! Promise (Admission and keys): the predicted wait of a queued stream is its position over the measured rate.

use super::*;
use crate::{Admission, Permit, Rejection, Ticket};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn ask(door: &Admission, pages: usize) -> Ticket {
    let asked = door.request_permit(request(Priority::Normal, pages, 10));
    asked.unwrap_or_else(|rejection| panic!("{rejection:?}"))
}

async fn admit(door: &Admission, request: AdmissionRequest) -> Result<Permit, Rejection> {
    door.request_permit(request)?.await
}

fn position(ticket: &Ticket) -> Option<usize> {
    ticket.queue_position()?.position()
}

fn ready(ticket: &mut Ticket, waker: &Waker) -> Option<Result<Permit, Rejection>> {
    match ticket.poll_admitted(&mut Context::from_waker(waker)) {
        Poll::Ready(told) => Some(told),
        Poll::Pending => None,
    }
}

pub(crate) fn permit(mut ticket: Ticket) -> Permit {
    match ready(&mut ticket, Waker::noop()) {
        Some(Ok(permit)) => permit,
        _ => panic!("not let in"),
    }
}

fn running(door: &Admission) -> (usize, usize, usize) {
    let now = door.snapshot();
    (now.running, now.waiting, now.pages_reserved)
}

#[tokio::test(start_paused = true)]
async fn free_slot_wakes_the_next_ticket_only() {
    let door = Admission::new(fixed(2, 8));
    let (first, _second) = (permit(ask(&door, 3)), permit(ask(&door, 4)));
    let mut waiting: Vec<(Ticket, Arc<Count>)> = (0..4)
        .map(|_| (ask(&door, 1), Arc::new(Count::default())))
        .collect();
    for (i, (ticket, count)) in waiting.iter_mut().enumerate() {
        assert_eq!(position(ticket), Some(i + 1));
        assert!(ready(ticket, &Waker::from(Arc::clone(count))).is_none());
    }
    drop(first);
    let woken = |waiting: &[(Ticket, Arc<Count>)]| -> Vec<usize> {
        let counts = waiting
            .iter()
            .map(|(_, count)| count.0.load(Ordering::Relaxed));
        counts.collect()
    };
    assert_eq!(woken(&waiting), [1, 0, 0, 0]);
    assert_eq!(position(&waiting[1].0), Some(1));
    assert_eq!(running(&door), (2, 3, 5));
    // The one that was let in is gone before it looked: its place goes on to the next.
    waiting.remove(0);
    assert_eq!(woken(&waiting), [1, 0, 0]);
    assert_eq!(running(&door), (2, 2, 5));
    // One in the middle leaves: nobody is woken, the others move up.
    waiting.remove(1);
    assert_eq!(woken(&waiting), [1, 0]);
    assert_eq!(position(&waiting[1].0), Some(1));
    waiting.clear();
    assert_eq!(running(&door), (1, 0, 4));
}

#[tokio::test(start_paused = true)]
async fn queue_timeout_and_request_deadline_both_hold() {
    let door = Admission::new(fixed(1, 8));
    let held = permit(ask(&door, 1));
    let timeout = QueueLimits::default().timeout;
    let hasty = AdmissionRequest {
        deadline: Some(tokio::time::Instant::now().into_std() + S),
        ..request(Priority::Normal, 1, 1)
    };
    let (normal, hasty) = tokio::join!(
        admit(&door, request(Priority::Normal, 1, 1)),
        admit(&door, hasty)
    );
    assert_eq!(hasty.err(), Some(Rejection::DeadlinePassed));
    assert!(
        matches!(normal.err(), Some(Rejection::QueueTimeout { waited, .. }) if waited >= timeout)
    );
    assert_eq!(running(&door), (1, 0, 1));
    drop(held);
    assert_eq!(running(&door), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn exact_estimate_replaces_the_first_one() {
    let door = Admission::new(AdmissionBounds {
        pages_limit: 10,
        ..fixed(8, 8)
    });
    let need = |pages| ResourceEstimate {
        streams: 1,
        pages,
        pages_more: pages,
        prompt_tokens: 5,
    };
    let big = permit(ask(&door, 6));
    let small = permit(ask(&door, 4));
    let mut third = ask(&door, 3);
    assert!(ready(&mut third, Waker::noop()).is_none());
    // Less than thought: the difference is free for the next.
    let big = big
        .try_update_estimate(need(3))
        .unwrap_or_else(|_| panic!("less fits"));
    assert_eq!(running(&door), (3, 0, 10));
    let third = permit(third);
    // More than is free: all is given back, and waited for in the old place; who fits may pass for a while.
    let Err(mut ticket) = big.try_update_estimate(need(5)) else {
        panic!("there is not so much")
    };
    let mut later = ask(&door, 1);
    assert_eq!(position(&ticket), Some(1));
    assert_eq!((position(&later), running(&door)), (None, (3, 1, 8)));
    // For one step of ageing, and no longer: then room is kept for it.
    tokio::time::advance(QueueLimits::default().ageing).await;
    let mut last = ask(&door, 1);
    assert_eq!((position(&last), running(&door)), (Some(2), (3, 2, 8)));
    drop(small);
    assert!(ready(&mut ticket, Waker::noop()).unwrap().is_ok());
    assert!(ready(&mut later, Waker::noop()).unwrap().is_ok());
    assert!(position(&last).is_none() && ready(&mut last, Waker::noop()).unwrap().is_ok());
    drop((third, later, last, ticket));
    assert_eq!(running(&door), (0, 0, 0), "permits were dropped too");
}

#[tokio::test(start_paused = true)]
async fn permit_is_released_on_panic() {
    let door = Admission::new(fixed(1, 1));
    let inside = door.clone();
    let task = tokio::spawn(async move {
        let _permit = admit(&inside, request(Priority::Normal, 1, 1)).await;
        panic!("in the middle of it");
    });
    assert!(task.await.is_err());
    assert_eq!(running(&door), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn closing_rejects_all_waiting_tickets() {
    let door = Admission::new(fixed(1, 8));
    let held = permit(ask(&door, 1));
    let mut waits = Box::pin(admit(&door, request(Priority::Low, 1, 1)));
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let poll = |waits: Pin<&mut dyn Future<Output = Result<Permit, Rejection>>>| {
        waits.poll(&mut Context::from_waker(&waker))
    };
    assert!(poll(waits.as_mut()).is_pending());
    door.close();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(
        matches!(poll(waits.as_mut()), Poll::Ready(Err(rejection)) if rejection.reason() == "shutting_down")
    );
    assert!(
        door.request_permit(request(Priority::Critical, 1, 1))
            .is_err()
    );
    assert_eq!(running(&door), (1, 0, 1), "who runs goes on");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_few_slots() {
    const PLACES: usize = 3;
    let door = Admission::new(fixed(PLACES, 1000));
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..400)
        .map(|i| {
            let (door, inside) = (door.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let class = Priority::ALL[i % 5];
                let Ok(permit) = admit(&door, request(class, i % 7, 3)).await else {
                    panic!("there is room for all")
                };
                assert!(inside.fetch_add(1, Ordering::SeqCst) < PLACES);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(running(&door), (0, 0, 0));
}

#[test]
fn new_bounds_keep_tickets_and_admit_what_fits() {
    let at = start();
    let mut core = Core::new(fixed(2, 8), at);
    let ids: Vec<_> = (0..5)
        .map(|_| {
            core.add_ticket(request(Priority::Normal, 4, 1), at)
                .unwrap()
        })
        .collect();
    let running = |core: &mut Core| {
        let is_in = |&&id: &&u64| poll(core, id, at) == TicketStatus::Running;
        ids.iter().filter(is_in).count()
    };
    assert_eq!(running(&mut core), 2);
    core.set_bounds(fixed(4, 0), at);
    core.check_invariants();
    assert_eq!(running(&mut core), 4, "who waited comes in");
    core.set_bounds(fixed(1, 0), at);
    assert_eq!(running(&mut core), 4, "nobody who is in is sent away");
    assert!(
        core.add_ticket(request(Priority::Normal, 1, 1), at)
            .is_err(),
        "no queue any more"
    );
    for &id in &ids[..4] {
        assert_ne!(poll(&mut core, ids[4], at), TicketStatus::Running);
        core.remove_ticket(id, at);
        core.check_invariants();
    }
    assert_eq!(
        poll(&mut core, ids[4], at),
        TicketStatus::Running,
        "it kept its place"
    );
}

#[test]
fn waiting_estimate_above_new_bounds_is_clamped() {
    let at = start();
    let mut core = Core::new(fixed(1, 8), at);
    let held = core
        .add_ticket(request(Priority::Normal, 1, 1), at)
        .unwrap();
    let waits = core
        .add_ticket(request(Priority::Normal, 100, 1), at)
        .unwrap();
    let bounds = AdmissionBounds {
        pages_limit: 10,
        ..fixed(1, 8)
    };
    core.set_bounds(bounds, at);
    core.remove_ticket(held, at);
    core.check_invariants();
    assert_eq!(poll(&mut core, waits, at), TicketStatus::Running);
    assert_eq!(core.snapshot().pages_reserved, 10);
}

#[tokio::test(start_paused = true)]
async fn predicted_wait_is_the_position_over_the_measured_rate() {
    let door = Admission::new(fixed(1, 8));
    let mut running = permit(ask(&door, 1));
    let mut waiting: Vec<Ticket> = (0..5).map(|_| ask(&door, 1)).collect();
    let predicted = |ticket: &Ticket| ticket.queue_position()?.predicted_wait();
    assert_eq!(predicted(&waiting[0]), None, "nothing was measured");
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(running);
        running = permit(waiting.remove(0));
    }
    let [first, second] = [0, 1].map(|at| predicted(&waiting[at]).expect("a rate"));
    assert!(
        first > Duration::ZERO && first < Duration::from_secs(4),
        "{first:?}"
    );
    let ratio = second.as_secs_f64() / first.as_secs_f64();
    assert!((ratio - 2.0).abs() < 1e-6, "{first:?} {second:?}");
}
