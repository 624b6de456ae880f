//! Streams of an earlier process, and requests on hold.
//!
//! Promise (Journal): recovered streams are submitted readers first, then by class, then by work; they are admitted
//! beyond the limits, and new requests wait behind them.
//! Also held by `gateway/src/recovery/continuation.rs`.

use super::edge::permit;
use super::*;
use crate::Rejection;

#[test]
fn held_tickets_wait_until_the_hold_ends() {
    let at = start();
    let mut core = Core::new(fixed(2, 8), at);
    core.set_hold(true, at);
    let asked = request(Priority::Normal, 1, 1);
    let tickets: Vec<_> = (0..3)
        .map(|_| core.add_ticket(asked, at).unwrap())
        .collect();
    for &ticket in &tickets {
        assert!(matches!(
            poll(&mut core, ticket, at),
            TicketStatus::Waiting { .. }
        ));
    }
    core.check_invariants();
    let late = at + QueueLimits::default().timeout;
    let last = core.add_ticket(asked, at + S).unwrap();
    let timed_out = poll(&mut core, tickets[0], late);
    let is_timeout = matches!(
        timed_out,
        TicketStatus::Rejected(Rejection::QueueTimeout { .. })
    );
    assert!(is_timeout, "held requests time out: {timed_out:?}");
    core.set_hold(false, late);
    core.check_invariants();
    assert_eq!(poll(&mut core, last, late), TicketStatus::Running);
}

#[test]
fn readmitted_streams_run_beyond_the_limits_and_are_counted() {
    let at = start();
    let bounds = AdmissionBounds {
        pages_limit: 10,
        open_max: 1,
        seats: 1,
        ..fixed(2, 0)
    };
    let mut core = Core::new(bounds, at);
    core.set_hold(true, at);
    let asked = request(Priority::Background, 4, 100);
    let readmitted: Vec<_> = (0..5).map(|_| core.readmit_ticket(asked, at)).collect();
    core.check_invariants();
    for &ticket in &readmitted {
        assert_eq!(poll(&mut core, ticket, at), TicketStatus::Running);
    }
    let snapshot = core.snapshot();
    assert_eq!((snapshot.running, snapshot.pages_reserved), (5, 20));
    core.set_hold(false, at);
    let newcomer = core.add_ticket(request(Priority::Critical, 4, 1), at);
    assert!(newcomer.is_err(), "no room beside them");
    for ticket in readmitted {
        core.remove_ticket(ticket, at);
        core.check_invariants();
    }
    assert!(core.is_empty());
    assert_eq!(core.snapshot().pages_reserved, 0);
    let newcomer = core.add_ticket(request(Priority::Low, 4, 1), at).unwrap();
    assert_eq!(poll(&mut core, newcomer, at), TicketStatus::Running);
}

#[test]
fn requeued_stream_precedes_requests_that_arrived_later() {
    let arrived = start();
    let at = arrived + 10 * S;
    let mut core = Core::new(fixed(1, 1), at);
    core.set_hold(true, at);
    let asked = request(Priority::Normal, 1, 1);
    let newcomer = core.add_ticket(asked, at).unwrap();
    let requeued: Vec<_> = (0..4)
        .map(|i| core.requeue_ticket(asked, arrived + i * MS, at))
        .collect();
    core.set_hold(false, at);
    for ticket in requeued.into_iter().chain([newcomer]) {
        core.check_invariants();
        assert_eq!(poll(&mut core, ticket, at), TicketStatus::Running);
        core.remove_ticket(ticket, at);
    }
}

#[test]
fn parked_stream_continues_while_new_requests_are_on_hold() {
    let at = start();
    let mut core = Core::new(fixed(1, 8), at);
    core.set_hold(true, at);
    let ran = core.readmit_ticket(request(Priority::Normal, 1, 1), at);
    core.request_slot(ran, at);
    assert!(core.take_slot(ran));
    core.return_slot(ran, false, at);
    let newcomer = core.add_ticket(request(Priority::Critical, 1, 1), at);
    core.request_slot(ran, at);
    core.check_invariants();
    assert!(core.take_slot(ran), "a slot is free");
    let status = poll(&mut core, newcomer.unwrap(), at);
    assert!(matches!(status, TicketStatus::Waiting { .. }));
}

#[tokio::test(start_paused = true)]
async fn dropped_permit_of_a_readmitted_stream_frees_the_slot() {
    let door = crate::Admission::new(fixed(1, 8));
    let readmitted = door.readmit(request(Priority::Normal, 3, 1));
    let waiting = door.requeue(request(Priority::Normal, 3, 1), start());
    assert_eq!(door.snapshot().waiting, 1);
    drop(readmitted);
    let _running = permit(waiting);
    assert_eq!(door.snapshot().running, 1);
}
