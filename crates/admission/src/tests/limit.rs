//! The adaptive limit, rule by rule.

use super::*;
use crate::limit::AdaptiveLimit;

/// An interval of a limit's life: streams, and the latencies that were reported in it.
struct Row {
    case: &'static str,
    running: usize,
    wait_ms: Option<u32>,
    itl_ms: Option<u32>,
    pending_ms: Option<u32>,
    want: usize,
}

fn row(case: &'static str, running: usize, wait_ms: impl Into<Option<u32>>, want: usize) -> Row {
    Row {
        case,
        running,
        wait_ms: wait_ms.into(),
        itl_ms: None,
        pending_ms: None,
        want,
    }
}

/// A floor below which a slow interval shows.
fn from_five() -> AdaptiveLimits {
    AdaptiveLimits {
        min_streams: 5,
        ..AdaptiveLimits::default()
    }
}

fn run(settings: AdaptiveLimits, rows: &[Row]) {
    let mut now = start();
    let mut limit = AdaptiveLimit::new(settings, now);
    for row in rows {
        limit.advance_intervals(row.running, None, now);
        for _ in 0..8 {
            if let Some(ms) = row.wait_ms {
                limit.record_prompt_wait(ms * MS, now + 4 * S);
            }
            if let Some(ms) = row.itl_ms {
                limit.record_itl(ms * MS, now + 4 * S);
            }
        }
        now += settings.adjustment_interval;
        let pending = row.pending_ms.map(|ms| ms * MS);
        limit.advance_intervals(row.running, pending, now);
        assert_eq!(limit.get(), row.want, "{}", row.case);
    }
}

#[test]
fn limit_grows_and_shrinks_by_rule() {
    run(
        from_five(),
        &[
            row("starts at the floor; no data is not good data", 5, None, 5),
            row("used and quick", 5, 100, 10),
            row("again", 10, 100, 15),
            row("used, but not much", 10, 100, 15),
            row("nearly over target", 15, 900, 15),
            row("what was slow still counts", 15, 100, 15),
            row("less and less", 15, 100, 15),
            row("still a twentieth of the weight", 15, 100, 15),
            row("four half-lives later it is forgotten", 15, 100, 20),
            row("too slow: a fifth less", 20, 1500, 16),
            row("still", 16, 1500, 13),
            row(
                "nobody has come since: unknown weighs less, slow is slow",
                13,
                None,
                11,
            ),
            row("little used", 2, None, 9),
            row("unused", 0, None, 7),
            row("unused", 0, None, 5),
            row("never below the floor", 0, None, 5),
        ],
    );
}

#[test]
fn pending_prompt_counts_as_slow_without_samples() {
    let stuck = Row {
        pending_ms: Some(1001),
        ..row("one prompt has waited too long", 10, None, 8)
    };
    let halting = Row {
        itl_ms: Some(600),
        ..row("tokens come too slowly", 10, 100, 8)
    };
    for bad in [stuck, halting] {
        run(from_five(), &[row("grow first", 5, 100, 10), bad]);
    }
}

#[test]
fn limit_waits_before_growth_after_slow_intervals() {
    let quick = |case, want| row(case, 40, 10, want);
    let settings = AdaptiveLimits {
        min_streams: 40,
        max_streams: 200,
        ..AdaptiveLimits::default()
    };
    let stuck = Row {
        pending_ms: Some(5000),
        ..row("slow", 45, 10, 40)
    };
    run(
        settings,
        &[
            quick("grow", 45),
            stuck,
            quick("careful", 40),
            quick("careful", 40),
            quick("grow", 45),
        ],
    );
}

#[test]
fn disabled_limit_stays_at_its_maximum() {
    let settings = AdaptiveLimits {
        enabled: false,
        ..AdaptiveLimits::default()
    };
    run(
        settings,
        &[row("slow", 50, 5000, 50), row("idle", 0, None, 50)],
    );
}

#[test]
fn intervals_without_requests_are_caught_up() {
    let mut now = start();
    let settings = from_five();
    let mut limit = AdaptiveLimit::new(settings, now);
    while limit.get() < 50 {
        (0..8).for_each(|_| limit.record_prompt_wait(10 * MS, now));
        now += settings.adjustment_interval;
        limit.advance_intervals(limit.get(), None, now);
    }
    limit.advance_intervals(0, None, now + 1000 * 3600 * S);
    assert_eq!(limit.get(), 5);
}

#[test]
fn new_settings_clamp_the_limit() {
    let at = start();
    let settings = |enabled, min_streams, max_streams| AdaptiveLimits {
        enabled,
        min_streams,
        max_streams,
        ..AdaptiveLimits::default()
    };
    let mut limit = AdaptiveLimit::new(settings(true, 5, 50), at);
    let rows = [
        ("above where it is", settings(true, 20, 50), 20),
        ("below where it is", settings(true, 1, 12), 12),
        ("around where it is", settings(true, 2, 90), 12),
        ("fixed", settings(false, 2, 40), 40),
        ("free again", settings(true, 2, 60), 40),
    ];
    for (case, settings, want) in rows {
        limit.set_settings(settings, at);
        assert_eq!(limit.get(), want, "{case}");
        assert_eq!(
            limit.interval_end(),
            at + settings.adjustment_interval,
            "{case}"
        );
    }
}

/// The limit after an interval in which all slots were granted, with quick answers before.
fn limit_after_grants(reach_the_engine: bool) -> usize {
    let mut now = start();
    let bounds = AdmissionBounds {
        adaptive: AdaptiveLimits::default(),
        ..fixed(0, 64)
    };
    let mut core = Core::new(bounds, now);
    core.set_decode_time(Some(Duration::ZERO));
    for _ in 0..8 {
        let id = core
            .add_ticket(request(Priority::Normal, 1, 1), now)
            .unwrap();
        core.first_token(id, now, now);
        core.token_gap(10 * MS, now);
        core.remove_ticket(id, now);
    }
    for _ in 0..32 {
        let id = core
            .add_ticket(request(Priority::Normal, 1, 1), now)
            .unwrap();
        if reach_the_engine && poll(&mut core, id, now) == TicketStatus::Running {
            core.request_slot(id, now);
            assert!(core.take_slot(id));
        }
    }
    now += bounds.adaptive.adjustment_interval;
    core.token_gap(10 * MS, now);
    core.check_invariants();
    core.snapshot().limit
}

/// Promise (Admission and keys): slots that never reach the engine do not raise the concurrency limit.
#[test]
fn slots_that_never_reach_the_engine_do_not_raise_the_limit() {
    assert!(limit_after_grants(true) > 8);
    assert_eq!(limit_after_grants(false), 8);
}
