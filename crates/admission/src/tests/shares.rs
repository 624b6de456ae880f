//! The order of admission between accounts and classes: rows of cases, and properties over seeds.
//!
//! Promise (Admission and keys): free slots go to keys by weight; a key is passed over for at most its class's ageing
//! steps and one more.

use super::*;
use proptest::prelude::*;

/// A request of this account, whose weight is as given.
fn of(account: u64, weight: u32, streams: usize) -> AdmissionRequest {
    let mut request = AdmissionRequest {
        account: Account {
            id: account,
            weight,
        },
        ..request(Priority::Normal, 1, 1)
    };
    request.need.streams = streams;
    request
}

fn is_running(core: &mut Core, id: u64, now: Instant) -> bool {
    poll(core, id, now) == TicketStatus::Running
}

/// Takes so many further places; how many it got.
fn takes(core: &mut Core, id: u64, wanted: usize, now: Instant) -> usize {
    (0..wanted).for_each(|_| core.request_slot(id, now));
    (0..wanted).filter(|_| core.take_slot(id)).count()
}

#[test]
fn flood_of_one_tenant_leaves_others_their_share() {
    let at = start();
    let mut core = Core::new(fixed(4, 200), at);
    let flood: Vec<_> = (0..100)
        .map(|_| core.add_ticket(of(1, 1, 1), at).unwrap())
        .collect();
    // Its requests wait; their account is served all the while.
    let mut now = at;
    for id in &flood[..20] {
        now += 100 * MS;
        core.remove_ticket(*id, now);
    }
    let (light, heavy) = (of(2, 1, 1), of(3, 3, 1));
    let light: Vec<_> = (0..4)
        .map(|_| core.add_ticket(light, now).unwrap())
        .collect();
    let heavy: Vec<_> = (0..6)
        .map(|_| core.add_ticket(heavy, now).unwrap())
        .collect();
    assert_eq!(
        core.queue_position(heavy[0], now),
        Some(1),
        "three times the weight"
    );
    for id in &flood[20..23] {
        core.remove_ticket(*id, now);
        core.check_invariants();
    }
    let mut running = |ids: &[u64]| {
        let running = ids.iter().filter(|&&id| is_running(&mut core, id, now));
        running.count()
    };
    let shares = (running(&flood[24..]), running(&light), running(&heavy));
    assert_eq!(shares, (0, 1, 2), "places go by weight");
}

#[test]
fn request_with_many_streams_leaves_a_slot_for_the_next() {
    let rows: &[(&str, usize, usize, usize)] = &[
        // Streams, the limit, what it gets.
        ("an empty server", 16, 5, 4),
        ("a large one", 16, 40, 16),
        ("a small one", 16, 3, 3),
        ("one place", 16, 1, 1),
    ];
    for &(case, streams, limit, gets) in rows {
        let at = start();
        let mut core = Core::new(fixed(limit, 8), at);
        let many = core.add_ticket(of(1, 1, streams), at).unwrap();
        assert_eq!(takes(&mut core, many, streams, at), gets, "{case}");
        core.check_invariants();
        let by = core.add_ticket(of(1, 1, 1), at).unwrap();
        let is_in = limit > gets;
        assert_eq!(is_running(&mut core, by, at), is_in, "{case}");
        // What the first gives back goes to who waits, unless it is its last.
        core.return_slot(many, false, at);
        core.check_invariants();
        assert_eq!(is_running(&mut core, by, at), limit > 1, "{case}");
        core.remove_ticket(by, at);
        core.remove_ticket(many, at);
        core.check_invariants();
        assert!(core.is_empty());
    }
}

#[test]
fn parked_ticket_holds_nothing_and_precedes_later_ones() {
    let at = start();
    let mut core = Core::new(fixed(2, 8), at);
    let [a, b] = std::array::from_fn(|_| core.add_ticket(of(1, 1, 1), at).unwrap());
    for id in [a, b] {
        assert_eq!(takes(&mut core, id, 1, at), 1);
        core.return_slot(id, false, at);
    }
    let now = core.snapshot();
    assert_eq!((now.open, now.running, now.pages_reserved), (2, 0, 0));
    // The places are lent, and asked for again; a later newcomer waits behind.
    let lent: Vec<_> = (0..2)
        .map(|_| core.add_ticket(of(1, 1, 1), at).unwrap())
        .collect();
    assert!(lent.iter().all(|&id| is_running(&mut core, id, at)));
    assert_eq!(takes(&mut core, b, 1, at), 0);
    let later = core.add_ticket(of(1, 1, 1), at + MS).unwrap();
    assert_eq!(takes(&mut core, a, 1, at + MS), 0);
    assert_eq!(core.queue_position(later, at + MS), Some(3));
    assert_eq!(
        core.snapshot().waiting,
        1,
        "who comes back is not in the queue's count"
    );
    core.remove_ticket(lent[0], at + MS);
    assert!(
        core.take_slot(a) && !core.take_slot(b),
        "in the order in which they came"
    );
    // Neither the queue's clock nor the end of all ends it.
    let end = at + 1000 * S;
    core.close(end);
    assert_eq!(poll(&mut core, b, end), TicketStatus::Running);
    core.remove_ticket(lent[1], end);
    assert!(core.take_slot(b));
    core.check_invariants();
}

#[test]
fn seats_bound_parked_sequences_and_one_tenant_leaves_some() {
    let at = start();
    let bounds = AdmissionBounds {
        seats: 8,
        ..fixed(100, 100)
    };
    let mut core = Core::new(bounds, at);
    let mut still = |account| {
        let id = core.add_ticket(of(account, 1, 1), at).unwrap();
        let is_in = is_running(&mut core, id, at);
        if is_in {
            assert_eq!(takes(&mut core, id, 1, at), 1);
            core.return_slot(id, false, at);
        }
        is_in
    };
    let first = (0..20).filter(|_| still(1)).count();
    let second = (0..20).filter(|_| still(2)).count();
    assert_eq!((first, second), (6, 2));
}

#[test]
fn tenant_is_passed_over_for_a_bounded_time() {
    let at = start();
    let (timeout, ageing) = (1000 * S, S);
    let queue = QueueLimits {
        max_depth: 1000,
        timeout,
        ageing,
    };
    let mut core = Core::new(
        AdmissionBounds {
            queue,
            ..fixed(2, 0)
        },
        at,
    );
    // One holds a place for good, and wants another in the background; others come again and again, each a new
    // account, urgent and of great weight.
    let _held = core.add_ticket(of(1, 1, 1), at).unwrap();
    let urgent = |account| AdmissionRequest {
        class: Priority::Critical,
        ..of(account, 1000, 1)
    };
    let mut runs = core.add_ticket(urgent(2), at).unwrap();
    let patient = AdmissionRequest {
        class: Priority::Background,
        ..of(1, 1, 1)
    };
    let patient = core.add_ticket(patient, at).unwrap();
    let mut now = at;
    for account in 3.. {
        let next = core.add_ticket(urgent(account), now).unwrap();
        now += 100 * MS;
        core.remove_ticket(runs, now);
        if is_running(&mut core, patient, now) {
            break;
        }
        runs = next;
        assert!(now < at + 60 * S, "passed over for ever");
    }
    // Four classes and one more step.
    assert!(
        now >= at + 5 * S && now <= at + 5 * S + 100 * MS,
        "{:?}",
        now - at
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// A bystander's one stream beside whatever large requests: it is let in at the latest when the first of the
    /// places that are held becomes free.
    #[test]
    fn bystander_waits_for_one_slot_at_most(
        limit in 1..12usize,
        large in prop::collection::vec((1..17usize, 0..3u64), 1..6),
        own in 0..3u64,
    ) {
        let at = start();
        let mut core = Core::new(fixed(limit, 64), at);
        let mut held = Vec::new();
        for (streams, account) in large {
            let id = core.add_ticket(of(account, 1, streams), at).unwrap();
            let got = takes(&mut core, id, streams, at);
            held.extend(std::iter::repeat_n(id, got));
            if got == 0 {
                core.remove_ticket(id, at); // others of its kind are before it
            }
        }
        let by = core.add_ticket(of(own + 3, 1, 1), at).unwrap();
        core.check_invariants();
        if !is_running(&mut core, by, at) {
            // Any of those that hold more than one gives one back; where each has one only, its request ends.
            let many = held.iter().find(|&id| held.iter().filter(|other| *other == id).count() > 1);
            match many {
                Some(&id) => core.return_slot(id, false, at),
                None => core.remove_ticket(held[0], at),
            }
        }
        prop_assert!(is_running(&mut core, by, at));
    }
}
