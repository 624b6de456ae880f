//! Failures of the model, too few pages, cancellations, shutdown; and the ends without an error.

use super::scene::{
    Neighbor, TOKENS, VICTIM, all, at_most, end, in_the_engine, letters, nothing_runs, steps,
    undisturbed, victims, wide, without_gap,
};
use super::ways::{Way, delete, listed, ways};
use crate::support::client::{get, post};
use crate::support::dialects::Fate;
use crate::support::{DEVICE, Rig, wait_until};
use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use model::DeviceFault;
use serde_json::{Value, json};
use server::{QueueLimits, ServerConfig};
use std::time::Duration;

#[test]
fn normal_ends() {
    let rig = Rig::with(letters(), wide());
    let text = undisturbed(&json!({})).text().to_owned();
    assert_eq!(text.len() as u64, TOKENS);
    let stop = &text[9..13];
    let stopped = text.split(stop).next().expect("some text");
    let tokens = (stopped.len() + stop.len()) as u64;
    let eos = u32::from(text.as_bytes()[9]);
    let ended = text.split(char::from(text.as_bytes()[9])).next();
    let ended = ended.expect("some text");
    for (over, fate, text, tokens) in [
        (json!({}), Fate::Length, &*text, TOKENS),
        (json!({"stop": [stop]}), Fate::StopString, stopped, tokens),
        (
            json!({"stop_token_ids": [eos]}),
            Fate::Eos,
            ended,
            ended.len() as u64,
        ),
    ] {
        let neighbor = Neighbor::begin(&rig);
        for victim in victims(&rig, &over, "", without_gap) {
            let (name, polled) = (victim.way.name(), matches!(victim.way, Way::Polled));
            let story = victim.ends(&rig, fate);
            assert!(polled || story.text() == text, "{name}: {story:?}");
            assert_eq!(story.tokens, Some(tokens), "{name}, {fate:?}");
        }
        neighbor.expect_unaffected(&rig);
    }
    nothing_runs(&rig);
}

#[test]
fn end_of_sequence_from_the_model() {
    let talkative = FakeConfig {
        eos_probability: 0.05,
        ..letters()
    };
    let rig = Rig::with(talkative, wide());
    let over = json!({"ignore_eos": false, "max_tokens": 400});
    for has in [without_gap, Way::has_gap] {
        let mut lengths = Vec::new();
        for victim in victims(&rig, &over, "", has) {
            let tokens = victim.ends(&rig, Fate::Eos).tokens.expect("counted");
            lengths.push(tokens);
        }
        assert!((1..400).contains(&lengths[0]), "{lengths:?}");
        assert!(lengths.iter().all(|n| *n == lengths[0]), "{lengths:?}");
    }
}

/// A request whose response has `~` after some letters.
fn says_it() -> Value {
    json!({"logit_bias": {"126": 36}, "temperature": 1, "max_tokens": 200})
}

/// Promise (Streams): a forward pass that panics, fails or returns no numbers ends the request that caused it, with
/// its usage; other answers are those of undisturbed requests.
#[test]
fn failure_within_one_request() {
    let whole = undisturbed(&says_it()).text().to_owned();
    let at = whole.find('~').expect("said at last");
    assert!(at > 0, "{whole}");
    for (kind, fate) in [
        (FaultKind::Panic, Fate::Panic),
        (FaultKind::Error, Fate::Inference),
        (FaultKind::NotFinite, Fate::NotFinite),
        (FaultKind::NotANumber, Fate::NotFinite),
    ] {
        let mut faulty = letters();
        faulty.faults = vec![Fault {
            at: FaultAt::Token(u32::from(b'~')),
            kind,
        }];
        let rig = Rig::gated(faulty, wide());
        let neighbor = Neighbor::begin(&rig);
        let victims = victims(&rig, &says_it(), "", all);
        rig.gate.open();
        end(&rig, victims, fate, &whole[..=at]);
        neighbor.expect_unaffected(&rig);
        nothing_runs(&rig);
    }
}

/// Eight letters, after which one step of the lexer takes more work than a token may.
fn limited() -> Value {
    let pattern = format!("^[a-z]{{8}}{}$", "a?".repeat(1000));
    let schema = json!({"type": "string", "pattern": pattern});
    let form = json!({"type": "json_schema", "json_schema": {"name": "it", "schema": schema}});
    json!({"response_format": form, "temperature": 1})
}

/// Promise (Structured output): a constraint that reaches a per-token limit ends its answer with `grammar_limit`,
/// which is no server error, in every API; no other request is affected.
/// Also held by `text/tests/it/grammars/hostile.rs`.
#[test]
fn grammar_limit_reached() {
    let rig = Rig::with(letters(), wide());
    let neighbor = Neighbor::begin(&rig);
    for victim in victims(&rig, &limited(), "", all) {
        let name = victim.way.name();
        let story = victim.ends(&rig, Fate::Constraint);
        assert!(story.text().len() <= 9, "{name}: {story:?}");
    }
    neighbor.expect_unaffected(&rig);
    assert!(rig.engine.stats().endings().constraint > 0);
    nothing_runs(&rig);
}

/// Promise (Streams): a forward pass that fails once affects no request.
#[test]
fn step_that_fails_once_affects_no_client() {
    let whole = undisturbed(&json!({}));
    for kind in [FaultKind::Panic, FaultKind::Error] {
        let mut faulty = letters();
        faulty.faults = vec![Fault {
            at: FaultAt::Call(5),
            kind,
        }];
        let rig = Rig::gated(faulty, wide());
        let neighbor = Neighbor::begin(&rig);
        let victims = victims(&rig, &json!({}), "", all);
        in_the_engine(&rig, victims.len() + 1);
        rig.gate.open();
        end(&rig, victims, Fate::Length, whole.text());
        neighbor.expect_unaffected(&rig);
        assert!(rig.engine.stats().retries() > 0, "it failed");
    }
}

/// Promise (Settings and operation): a server whose device is lost says so: readiness is 503 with the reason, `/health` is not
/// `ok`, and a metric is 1, until the device is opened again.
/// Also held by `engine/tests/it/failures.rs`, `millrace/tests/it/device/failures.rs ::
/// streams_outlive_a_driver_without_memory`.
#[test]
fn server_whose_device_is_lost_is_not_ready() {
    let mut faulty = letters();
    // A device is opened again twice.
    let faults = (0..3).map(|call| Fault {
        at: FaultAt::Call(call),
        kind: FaultKind::Device(DeviceFault::Lost),
    });
    faulty.faults = faults.collect();
    let rig = Rig::with(faulty, wide());
    let named = format!("\nmillrace_device_info{{model=\"fake\",device=\"{DEVICE}\"}} 1\n");
    for is_lost in [false, true] {
        let ready = get(rig.addr, "/health/readiness");
        let (status, name) = if is_lost {
            (503, "unavailable")
        } else {
            (200, "ready")
        };
        assert_eq!(
            (ready.head.status, &ready.json()["status"]),
            (status, &json!(name))
        );
        let reason = format!("the model's device {DEVICE} is lost");
        assert_eq!(ready.body.contains(&reason), is_lost, "{}", ready.body);
        let health = get(rig.addr, "/health").json();
        assert_eq!(health["status"] != "ok", is_lost, "{health}");
        let metrics = get(rig.addr, "/metrics").body;
        let lost = format!("\nmillrace_device_lost {}\n", u8::from(is_lost));
        assert!(
            metrics.contains(&lost) && metrics.contains(&named),
            "{metrics}"
        );
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4});
        let failed = post(rig.addr, "/v1/chat/completions", &body);
        let code = failed.json()["error"]["code"].clone();
        assert_eq!(code, "device_failed", "{}", failed.body);
    }
}

/// Promise (Streams): a shortage of pages delays answers and never changes them; a request larger than the KV cache
/// is rejected with the numbers.
/// Also held by `server/tests/it/endings/faults.rs :: request_larger_than_kv_cache`.
#[test]
fn kv_pages_short_for_all_requests() {
    let whole = undisturbed(&json!({}));
    let mut short = letters();
    short.dims.pages = 12;
    let hopeful = ServerConfig {
        reservation: server::Reservation {
            overcommit_percent: 100_000,
            ..server::Reservation::default()
        },
        ..wide()
    };
    let rig = Rig::gated(short, hopeful);
    let neighbor = Neighbor::begin(&rig);
    let victims = victims(&rig, &json!({}), "", all);
    in_the_engine(&rig, victims.len() + 1);
    rig.gate.open();
    end(&rig, victims, Fate::Length, whole.text());
    neighbor.expect_unaffected(&rig);
    assert!(rig.engine.stats().preemptions() > 0, "pages were short");
    nothing_runs(&rig);
}

#[test]
fn request_larger_than_kv_cache() {
    let mut small = letters();
    small.dims.pages = 8;
    let rig = Rig::gated(small, wide());
    let neighbor = Neighbor::begin(&rig);
    let victims = victims(&rig, &json!({"max_tokens": 200}), "", all);
    // Pages are counted after the prompt is tokenized, which needs a permit; the neighbor has all permits.
    rig.gate.open();
    end(&rig, victims, Fate::NeverFits, "");
    neighbor.expect_unaffected(&rig);
}

/// Promise (Streams): a timeout names itself, in every wire protocol: `queue`, `first_token`, `idle`, `total`,
/// `reader`.
/// Also held by `server/tests/it/endings/clocks.rs`.
#[test]
fn queue_timeout() {
    let impatient = ServerConfig {
        queue: QueueLimits {
            timeout: Duration::from_millis(100),
            ..QueueLimits::default()
        },
        ..at_most(1)
    };
    let rig = Rig::gated(letters(), impatient);
    let neighbor = Neighbor::begin(&rig);
    let victims = victims(&rig, &json!({}), "", all);
    end(&rig, victims, Fate::Queue, "");
    in_the_engine(&rig, 1);
    rig.gate.open();
    neighbor.expect_unaffected(&rig);
}

/// Promise (Streams): a deadline that cannot be met is rejected before a step is taken; one that passes while running
/// ends the stream with its usage.
/// Also held by `server/tests/it/endings/clocks.rs :: deadline_passed_while_running`.
#[test]
fn unreachable_deadline_is_rejected_before_a_step() {
    let rig = Rig::gated(letters(), at_most(1));
    // A stream held the only slot for 200 ms, so no slot is expected to be free earlier.
    let first = Way::Streamed(crate::support::dialects::JOBS).ask(&rig, "first", &json!({}), "");
    let first = first.named(&rig);
    super::clocks::pass(Duration::from_millis(200));
    rig.gate.allow(TOKENS);
    first.ends(&rig, Fate::Length);
    nothing_runs(&rig);
    let neighbor = Neighbor::begin(&rig);
    in_the_engine(&rig, 1);
    let before = TOKENS + 1;
    wait_until("the neighbor's first step", || {
        rig.engine.stats().steps() == before
    });
    for (over, fields) in [
        (json!({"deadline_ms": 50}), ""),
        (json!({}), "request-timeout-ms: 50\r\n"),
    ] {
        let victims = victims(&rig, &over, fields, all);
        end(&rig, victims, Fate::Unattainable, "");
    }
    assert_eq!(rig.engine.stats().steps(), before, "nothing was computed");
    in_the_engine(&rig, 1);
    rig.gate.open();
    neighbor.expect_unaffected(&rig);
}

/// Victims with some text, and a neighbor; the model waits for the gate.
fn begun(rig: &Rig, has: fn(Way) -> bool) -> (Neighbor, Vec<super::ways::Asked>) {
    let neighbor = Neighbor::begin(rig);
    let victims = victims(rig, &json!({}), "", has);
    in_the_engine(rig, victims.len() + 1);
    steps(rig, 4);
    (neighbor, victims)
}

/// Promise (Streams): `DELETE` ends a stream for all its readers; a disconnecting client ends a plain stream and not
/// a resumable one.
/// Also held by `server/tests/it/endings/faults.rs :: clients_that_disconnect_and_reconnect`.
#[test]
fn cancellation_by_id() {
    let whole = undisturbed(&json!({}));
    let rig = Rig::gated(letters(), wide());
    let (neighbor, victims) = begun(&rig, all);
    // Streams are listed in the order of opening, the neighbor first.
    let ids: Vec<_> = listed(&rig)[1..].to_vec();
    assert_eq!(ids.len(), victims.len());
    for stream in &ids {
        delete(&rig, stream["id"].as_str().expect("a name"));
    }
    rig.gate.open();
    end(&rig, victims, Fate::Cancelled, whole.text());
    neighbor.expect_unaffected(&rig);
    nothing_runs(&rig);
    let cancelled = rig.engine.stats().endings().cancelled;
    assert_eq!(cancelled, ids.len() as u64);
}

#[test]
fn clients_that_disconnect_and_reconnect() {
    let whole = undisturbed(&json!({}));
    let rig = Rig::gated(letters(), wide());
    let (neighbor, victims) = begun(&rig, all);
    let plain = victims.iter().filter(|v| !v.way.is_resumable()).count();
    let back: Vec<_> = victims.into_iter().filter_map(|v| v.left(&rig)).collect();
    assert!(plain > 0 && !back.is_empty());
    wait_until("who cannot come back is forgotten", || {
        listed(&rig).len() == back.len() + 1
    });
    rig.gate.open();
    end(&rig, back, Fate::Length, whole.text());
    neighbor.expect_unaffected(&rig);
    nothing_runs(&rig);
    let cancelled = rig.engine.stats().endings().cancelled;
    assert_eq!(cancelled, plain as u64);
}

/// A polling client cannot read the end of a job after the server has shut down.
fn is_told(way: Way) -> bool {
    !matches!(way, Way::Polled)
}

fn closing(rig: &mut Rig) {
    rig.ask_to_stop();
    rig.wait_until_leaving();
    rig.gate.open();
}

/// Promise (Streams): a server that shuts down lets streams finish, or ends them with an error.
/// Also held by `server/tests/it/endings/faults.rs :: shutdown_without_grace`.
#[test]
fn graceful_shutdown() {
    let whole = undisturbed(&json!({}));
    let mut rig = Rig::gated(letters(), wide());
    let (neighbor, victims) = begun(&rig, is_told);
    closing(&mut rig);
    end(&rig, victims, Fate::Length, whole.text());
    neighbor.expect_unaffected(&rig);
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn shutdown_without_grace() {
    let whole = undisturbed(&json!({}));
    let brief = ServerConfig {
        drain: Duration::ZERO,
        drain_flush: Duration::from_secs(30),
        ..wide()
    };
    let mut rig = Rig::gated(letters(), brief);
    // All streams end with the same error, so there is no neighbor.
    let (_, victims) = begun(&rig, is_told);
    closing(&mut rig);
    end(&rig, victims, Fate::Shutdown, whole.text());
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn table_has_every_way_to_read() {
    let names: std::collections::BTreeSet<_> = ways().into_iter().map(Way::name).collect();
    let dialects = crate::support::dialects::ALL_DIALECTS.len();
    assert_eq!(names.len(), 2 + 4 * dialects + dialects * dialects);
    assert!(!VICTIM.is_empty());
}
