//! Admission against a naive twin, over time, and through its futures.

pub(crate) mod edge;
pub(crate) mod limit;
pub(crate) mod many_clients;
pub(crate) mod overload;
pub(crate) mod plant;
pub(crate) mod readmission;
pub(crate) mod serving;
pub(crate) mod shares;
pub(crate) mod twin;

use super::admission_core::{Core, TicketStatus};
use super::{
    AdaptiveLimits, AdmissionBounds, AdmissionRequest, Priority, QueueLimits, ResourceEstimate,
};
use engine::Account;
use std::task::Waker;
use std::time::{Duration, Instant};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
fn start() -> Instant {
    Instant::now()
}

/// `streams` at one time, `depth` more wait, as many pages as anybody likes.
fn fixed(streams: usize, depth: usize) -> AdmissionBounds {
    AdmissionBounds {
        adaptive: AdaptiveLimits {
            enabled: false,
            max_streams: streams,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: depth,
            ..QueueLimits::default()
        },
        open_max: 1 << 20,
        seats: 1 << 20,
        pages_limit: 1 << 20,
        retry_after: S,
    }
}

fn request(class: Priority, pages: usize, prompt_tokens: usize) -> AdmissionRequest {
    AdmissionRequest {
        class,
        account: Account { id: 0, weight: 1 },
        need: ResourceEstimate {
            streams: 1,
            pages,
            pages_more: pages,
            prompt_tokens,
        },
        is_recallable: false,
        deadline: None,
        who: 0,
    }
}

fn poll(core: &mut Core, id: u64, now: Instant) -> TicketStatus {
    core.poll_ticket(id, Waker::noop(), now)
}

#[test]
fn urgent_tickets_go_first_and_age_outweighs_class() {
    let at = start();
    let mut core = Core::new(fixed(1, 64), at);
    let ageing = QueueLimits::default().ageing;
    let mut arrive = |class, at| core.add_ticket(request(class, 1, 1), at).unwrap();
    let running = arrive(Priority::Normal, at);
    let background = arrive(Priority::Background, at);
    let normal = arrive(Priority::Normal, at + MS);
    let second = arrive(Priority::Normal, at + 2 * MS);
    let critical = arrive(Priority::Critical, at + 3 * MS);
    // More than two steps later a critical one comes behind the waiting normal ones, and more than four steps later
    // behind the one in the background.
    let later = arrive(Priority::Critical, at + 2 * ageing + 3 * MS);
    let last = arrive(Priority::Critical, at + 4 * ageing + MS);
    let order = [critical, normal, second, later, background, last];
    for (i, &id) in order.iter().enumerate() {
        assert_eq!(core.queue_position(id, at), Some(i + 1));
    }
    let end = at + 4 * ageing + 2 * MS;
    let mut runs = running;
    for next in order {
        core.remove_ticket(runs, end);
        core.check_invariants();
        assert_eq!(poll(&mut core, next, end), TicketStatus::Running);
        runs = next;
    }
}

#[test]
fn flood_of_one_class_leaves_capacity_for_others() {
    let at = start();
    let mut core = Core::new(fixed(1, 32), at);
    let mut fill = |class| {
        let got_in = (0..100).take_while(|_| core.add_ticket(request(class, 1, 1), at).is_ok());
        got_in.count()
    };
    assert_eq!(fill(Priority::High), 1 + 32);
    // Two each, a sixteenth of the depth, and no more than that in all.
    for class in [
        Priority::Background,
        Priority::Normal,
        Priority::Critical,
        Priority::Low,
    ] {
        assert_eq!(fill(class), 2, "{class:?}");
    }
    assert_eq!(fill(Priority::High), 0);
}

#[test]
fn idle_time_after_a_rejection_does_not_count_as_slow() {
    let mut now = start();
    let bounds = AdmissionBounds {
        pages_limit: 1,
        ..fixed(10, 0)
    };
    let mut core = Core::new(bounds, now);
    let mut told = Vec::new();
    for _ in 0..4 {
        let held = core
            .add_ticket(request(Priority::Normal, 1, 1), now)
            .unwrap();
        let rejection = core
            .add_ticket(request(Priority::Normal, 1, 1), now)
            .unwrap_err();
        told.push(rejection.retry_after().unwrap());
        now += 2 * S;
        core.remove_ticket(held, now);
        now += 25 * S;
    }
    // Nothing was measured before the first; each held its place for two seconds.
    assert_eq!(told[0], S);
    assert!(
        told[1..].iter().all(|&wait| wait >= 2 * S && wait < 3 * S),
        "{told:?}"
    );
}
