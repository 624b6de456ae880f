//! Promise (Streams): deliveries are bounded, in flight and waiting, and one key takes at most half of either.
//! Also held by `server/tests/it/webhooks/rejections.rs`.

use super::*;
use crate::ended::{EndedStream, EventRecord};

const SECOND: u64 = 1_000_000;

fn settings() -> WebhookSettings {
    WebhookSettings {
        in_flight_max: 4,
        waiting_max: 4,
        attempts_max: 3,
        dead_letters_max: 2,
        ..WebhookSettings::default()
    }
}

fn stream(n: u8) -> StreamId {
    StreamId::from_random([n; 16])
}

fn add(table: &mut DeliveryTable, n: u8, owner: u64, now_unix_us: u64) {
    let end: EndedStream = serde_json::from_value(serde_json::json!({
        "id": "resp_1", "object": "response", "stream_id": stream(n).to_string(), "dialect": "openai.responses",
        "model": "m", "status": "completed", "ending": "eos", "error": null,
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "created_at": 1, "ended_at": 2,
        "links": {"result": "/v1/responses/resp_1", "events": "/v1/streams/1/events"},
    }))
    .expect("an end");
    let names = (stream(n), Owner(owner));
    let record = EventRecord::new("https://a.test/", names, &end, now_unix_us);
    table.insert(Delivery {
        record: Arc::new(record),
        state: DeliveryState::due(now_unix_us),
        is_in_flight: false,
        blob: None,
    });
}

fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered {
        status,
        retry_after: None,
    }
}

#[test]
fn failed_attempts_are_repeated_later_and_then_end() {
    let (mut table, settings) = (DeliveryTable::default(), settings());
    add(&mut table, 1, 7, 0);
    let mut now = 0;
    for (failed, change) in [
        (1, Change::Retried),
        (2, Change::Retried),
        (3, Change::Died),
    ] {
        assert_eq!(table.begin_attempt(now, &settings), Some(stream(1)));
        assert_eq!(table.begin_attempt(now, &settings), None, "in flight");
        let done = table.finish_attempt(stream(1), &answered(500), (now, 200), &settings);
        assert_eq!(done, change, "attempt {failed}");
        assert_eq!(table.begin_attempt(now, &settings), None, "not due");
        if change == Change::Retried {
            let due = table.next_due(now).expect("a next attempt");
            assert_eq!(due - now, 5 * SECOND * 4_u64.pow(failed - 1));
            now = due;
        }
    }
    assert_eq!((table.waiting(), table.dead_letters()), (0, 1));
    assert_eq!(table.next_due(now), None);
}

#[test]
fn success_removes_the_delivery_and_410_ends_it() {
    let (mut table, settings) = (DeliveryTable::default(), settings());
    for (n, status, change) in [
        (1, 200, Change::Delivered),
        (2, 204, Change::Delivered),
        (3, 410, Change::Died),
        (4, 301, Change::Retried),
        (5, 404, Change::Retried),
    ] {
        add(&mut table, n, u64::from(n), 0);
        let attempt = table.begin_attempt(0, &settings);
        assert_eq!(attempt, Some(stream(n)));
        let done = table.finish_attempt(stream(n), &answered(status), (0, 0), &settings);
        assert_eq!(done, change, "{status}");
        table.remove(stream(n));
    }
    let gone = table.finish_attempt(stream(1), &answered(200), (0, 0), &settings);
    assert_eq!(gone, Change::Deleted);
}

#[test]
fn retry_after_is_respected_up_to_the_age() {
    let (mut table, settings) = (DeliveryTable::default(), settings());
    add(&mut table, 1, 7, 0);
    let later = |seconds| AttemptOutcome::Answered {
        status: 503,
        retry_after: Some(Duration::from_secs(seconds)),
    };
    table.begin_attempt(0, &settings);
    table.finish_attempt(stream(1), &later(100), (0, 0), &settings);
    assert_eq!(table.next_due(0), Some(100 * SECOND));
    table.begin_attempt(100 * SECOND, &settings);
    table.finish_attempt(stream(1), &later(1), (100 * SECOND, 200), &settings);
    assert_eq!(
        table.next_due(100 * SECOND),
        Some(120 * SECOND),
        "the backoff is longer"
    );
    add(&mut table, 2, 7, 0);
    table.begin_attempt(0, &settings);
    let week = table.finish_attempt(stream(2), &later(7 * 86_400), (0, 0), &settings);
    assert_eq!(week, Change::Died, "older than age_max by then");
}

#[test]
fn one_key_has_at_most_half_of_each_bound() {
    let (mut table, settings) = (DeliveryTable::default(), settings());
    let places = [1, 1, 1, 2, 2, 3].map(|owner| table.reserve(Owner(owner), &settings));
    assert_eq!(places, [true, true, false, true, true, false]);
    table.release(Owner(1));
    assert!(table.reserve(Owner(3), &settings));
    table.reserve_always(Owner(3));
    assert_eq!(table.waiting(), 5);
    let mut table = DeliveryTable::default();
    for n in 1..=5 {
        add(&mut table, n, 1, u64::from(n));
    }
    add(&mut table, 6, 2, 6);
    let begun: Vec<_> = std::iter::from_fn(|| table.begin_attempt(9, &settings)).collect();
    assert_eq!(
        begun,
        [stream(1), stream(6), stream(2)],
        "fewest in flight first"
    );
    assert_eq!(
        table.next_due(9),
        None,
        "what is due waits for the end of an attempt"
    );
}

#[test]
fn oldest_dead_letter_of_the_key_with_the_most_is_evicted() {
    let (mut table, settings) = (DeliveryTable::default(), settings());
    for (n, owner) in [(1, 5), (2, 6), (3, 6)] {
        add(&mut table, n, owner, u64::from(n));
        table.give_up(stream(n), "why", &settings);
    }
    let left: Vec<_> = table.all().map(|one| one.record.stream).collect();
    assert_eq!(left, [stream(1), stream(3)]);
}

#[test]
fn records_are_read_back() {
    let mut table = DeliveryTable::default();
    add(&mut table, 1, u64::MAX, 5);
    let delivery = table.get(stream(1)).expect("present");
    let encoded = delivery.record.encode().expect("short");
    let decoded = EventRecord::decode(&encoded).expect("read back");
    assert_eq!(decoded, *delivery.record);
    assert!(EventRecord::decode(b"{}").is_err());
    let mut state = delivery.state.clone();
    state.set_failure(&"ä".repeat(300));
    let read = DeliveryState::decode(Some(&state.encode()), 9);
    assert_eq!(read, state);
    assert_eq!(DeliveryState::decode(Some(b"["), 9), DeliveryState::due(9));
}
