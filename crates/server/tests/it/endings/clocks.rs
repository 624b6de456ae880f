//! Timeouts, each with the name of its clock, and deadlines.

use super::scene::{
    Neighbor, all, end, in_the_engine, letters, nothing_runs, steps, undisturbed, victims, wide,
};
use super::ways::{Asked, Way, delete, listed};
use crate::support::dialects::{DIALECTS, Fate};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::{ServerConfig, StreamClocks, StreamLimits};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Passes before the first check, and between two steps.
const AT_ONCE: Option<Duration> = Some(Duration::from_nanos(1));
/// Longer than anything else in a test takes.
const LONG: Duration = Duration::from_secs(2);

/// Waits for this long.
#[expect(clippy::disallowed_methods, reason = "clocks fire when it has")]
pub(crate) fn pass(time: Duration) {
    let since = Instant::now();
    wait_until("time goes by", || since.elapsed() > time);
}

/// Ends are kept until they are read, also on a loaded machine.
fn with(clocks: StreamClocks) -> ServerConfig {
    ServerConfig {
        clocks,
        streams: StreamLimits {
            retention: Duration::from_secs(3600),
            ..StreamLimits::default()
        },
        ..wide()
    }
}

#[test]
fn first_token_timeout() {
    let mut narrow = letters();
    narrow.dims.rows_max = 32;
    let rig = Rig::gated(
        narrow,
        with(StreamClocks {
            first_token: AT_ONCE,
            ..StreamClocks::default()
        }),
    );
    let neighbor = Neighbor::begin(&rig);
    in_the_engine(&rig, 1);
    steps(&rig, 1);
    // A prompt that takes more than one step, so that the clock is checked before the first token.
    let long: Vec<Asked> = super::ways::ways()
        .into_iter()
        .map(|way| way.ask(&rig, &"long ".repeat(20), &json!({}), ""))
        .collect();
    let long: Vec<Asked> = long.into_iter().map(|asked| asked.named(&rig)).collect();
    in_the_engine(&rig, long.len() + 1);
    rig.gate.open();
    end(&rig, long, Fate::FirstToken, "");
    neighbor.expect_unaffected(&rig);
    nothing_runs(&rig);
}

#[test]
fn idle_timeout() {
    const AT_A_TIME: usize = 2;
    let over = json!({"max_tokens": 99});
    let mut narrow = letters();
    (narrow.dims.rows_max, narrow.dims.logit_rows_max) = (AT_A_TIME, AT_A_TIME);
    let rig = Rig::gated(
        narrow,
        with(StreamClocks {
            idle: AT_ONCE,
            ..StreamClocks::default()
        }),
    );
    let whole = undisturbed(&over);
    let victims = victims(&rig, &over, "", all);
    in_the_engine(&rig, victims.len());
    // Who has a token and no row in a step has waited for too long. All but the last get no row because the others begin.
    while listed(&rig).iter().any(|s| s["completion_tokens"] == 0) {
        steps(&rig, 16);
    }
    // As many urgent requests as a step has rows: no row is left for the last.
    let crowd: Vec<_> = (0..AT_A_TIME)
        .map(|_| Neighbor::urgent(&rig, "critical"))
        .collect();
    let is_there = |s: &Value| s["state"] == "ended" || s["choices"][0].is_object();
    wait_until("all are in the engine", || {
        listed(&rig).iter().all(is_there)
    });
    rig.gate.open();
    end(&rig, victims, Fate::Idle, whole.text());
    for neighbor in crowd {
        neighbor.expect_unaffected(&rig);
    }
    nothing_runs(&rig);
}

/// Victims with some text whose time runs out, and a neighbor that starts after `stop_clock`.
fn run_out(rig: &Rig, over: &Value, fate: Fate, stop_clock: impl FnOnce()) {
    let whole = undisturbed(&json!({}));
    let victims = victims(rig, over, "", all);
    in_the_engine(rig, victims.len());
    // On a loaded machine their time is over before.
    rig.gate.allow(4);
    pass(LONG);
    stop_clock();
    let neighbor = Neighbor::begin(rig);
    rig.gate.open();
    end(rig, victims, fate, whole.text());
    neighbor.expect_unaffected(rig);
    nothing_runs(rig);
}

#[test]
fn total_timeout() {
    let (handle, server) = sync_channel(1);
    Rig::set_next_server(move |server| {
        handle.send(server.reconfigure()).expect("the test waits");
        server
    });
    let rig = Rig::gated(
        letters(),
        with(StreamClocks {
            total: Some(LONG),
            ..StreamClocks::default()
        }),
    );
    // The neighbor may take longer on a loaded machine.
    let stop_clock = || server.recv().expect("a server").apply(wide());
    run_out(&rig, &json!({}), Fate::Total, stop_clock);
}

#[test]
fn deadline_passed_while_running() {
    let rig = Rig::gated(letters(), wide());
    let ms = u64::try_from(LONG.as_millis()).expect("a short time");
    run_out(&rig, &json!({"deadline_ms": ms}), Fate::Deadline, || {});
}

/// Promise (Streams): a resumable stream without a reader is parked and retained; a plain one ends by the reader
/// timeout.
#[test]
fn reader_timeout_and_resumable_streams() {
    const WINDOW: u64 = 8;
    let over = json!({"max_tokens": 99});
    let whole = undisturbed(&over);
    let config = ServerConfig {
        credit_window: WINDOW,
        streams: StreamLimits {
            detached_tokens: 0,
            detached_wait: Duration::from_secs(3600),
            ..StreamLimits::default()
        },
        ..with(StreamClocks {
            reader: AT_ONCE,
            ..StreamClocks::default()
        })
    };
    let rig = Rig::gated(letters(), config);
    // Credit is returned by acknowledgements only, and there are none.
    let all = victims(&rig, &over, "x-stream-acks: explicit\r\n", all);
    in_the_engine(&rig, all.len());
    rig.gate.open();
    let (kept, plain): (Vec<_>, Vec<_>) = all.into_iter().partition(|v| v.way.is_resumable());
    end(&rig, plain, Fate::Reader, &whole.text()[..8]);
    // Resumable streams wait for their clients.
    let parked = || listed(&rig).iter().all(|s| s["state"] == "parked");
    wait_until("they wait", || listed(&rig).len() == kept.len() && parked());
    let brief = json!({"max_tokens": WINDOW - 1});
    let beside = Way::Streamed(&DIALECTS[0]).ask(&rig, "hi", &brief, "");
    let beside = beside.ends(&rig, Fate::Length);
    assert_eq!(beside.text(), &whole.text()[..7], "the neighbor");
    for stream in listed(&rig) {
        assert_eq!(stream["completion_tokens"], WINDOW);
        delete(&rig, stream["id"].as_str().expect("a name"));
    }
    end(&rig, kept, Fate::Cancelled, &whole.text()[..8]);
    nothing_runs(&rig);
}
