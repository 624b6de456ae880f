//! What `/metrics` counts.

use crate::support::client::Client;
use crate::support::exported::{CHAT, Exported, ask, read_again, rig, used};
use crate::support::named::{self, RESUMABLE, call, chat, get, kept, send, stream_id};
use crate::support::{Rig, config, fake, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, ServerConfig};

/// After [`used`].
const AFTER_USE: &[(&str, f64)] = &[
    (
        r#"millrace_http_requests_total{route="/v1/chat/completions",status="200"}"#,
        2.0,
    ),
    (
        r#"millrace_http_requests_total{route="/v1/chat/completions",status="400"}"#,
        1.0,
    ),
    (
        r#"millrace_http_requests_total{route="/v1/completions",status="200"}"#,
        1.0,
    ),
    (
        r#"millrace_http_requests_total{route="none",status="404"}"#,
        1.0,
    ),
    (r#"millrace_rejections_total{reason="not_found"}"#, 1.0),
    (
        r#"millrace_answers_total{dialect="openai.chat",outcome="complete"}"#,
        2.0,
    ),
    (
        r#"millrace_answers_total{dialect="openai.completions",outcome="complete"}"#,
        1.0,
    ),
    ("millrace_answers_open", 0.0),
    ("millrace_answer_seconds_count", 3.0),
    ("millrace_admission_wait_seconds_count", 3.0),
    ("millrace_socket_time_to_first_token_seconds_count", 1.0),
    ("millrace_engine_queue_wait_seconds_count", 3.0),
    ("millrace_engine_time_to_first_token_seconds_count", 3.0),
    ("millrace_engine_inter_token_seconds_count", 40.0),
    ("millrace_prefill_rows_total", 6.0),
    ("millrace_step_prefill_rows_sum", 6.0),
    (r#"millrace_admission_streams{state="running"}"#, 0.0),
    ("millrace_admission_waiting", 0.0),
    ("millrace_streams_registered_total", 3.0),
    (r#"millrace_streams{state="open"}"#, 0.0),
    ("millrace_prompt_tokens_total", 6.0),
    ("millrace_generated_tokens_total", 43.0),
    (r#"millrace_endings_total{kind="length"}"#, 3.0),
    (r#"millrace_endings_total{kind="cancelled"}"#, 0.0),
    (r#"millrace_pages{state="used"}"#, 0.0),
    (r#"millrace_log_bytes{pool="tokens"}"#, 0.0),
    (r#"millrace_build_info{version="0.1.0",model="fake"}"#, 1.0),
];

#[test]
fn metrics_count_requests_and_tokens() {
    let rig = rig();
    used(&rig);
    wait_until("the connections are seen to be closed", || {
        Exported::from(&rig).value("millrace_connections_open") == 1.0
    });
    wait_until("the last step is told", || {
        let told = Exported::from(&rig);
        told.value("millrace_step_seconds_count") == told.value("millrace_steps_total")
    });
    let told = Exported::from(&rig);
    for (sample, want) in AFTER_USE {
        assert_eq!(told.value(sample), *want, "{sample}");
    }
    for sample in [
        r#"millrace_http_bytes_total{direction="received"}"#,
        r#"millrace_http_bytes_total{direction="sent"}"#,
        "millrace_steps_total",
    ] {
        assert!(told.value(sample) > 0.0, "{sample}");
    }
}

/// Reads a frame that has text in it.
///
/// Promise (Cluster): the forecast is fed from the counters of a running server.
#[test]
fn wanted_engines_follow_requests() {
    let fake = FakeConfig {
        eos_probability: 0.0,
        ..fake()
    };
    let config = ServerConfig {
        demand_interval: std::time::Duration::from_millis(600),
        ..config()
    };
    let rig = Rig::with(fake, config);
    assert_eq!(Exported::from(&rig).value("millrace_requests_total"), 0.0);
    wait_until("the advice follows", || {
        used(&rig);
        let exported = Exported::from(&rig);
        let requests = exported.value(r#"millrace_demand_requests_per_second{at="now"}"#);
        let tokens = exported.value(r#"millrace_demand_tokens_per_second{at="horizon"}"#);
        let engine = exported.value("millrace_engine_capacity_tokens_per_second");
        let wanted = exported.value("millrace_engines_wanted");
        requests > 0.0 && tokens > requests && engine > 0.0 && wanted > 0.0 && wanted < 1e6
    });
    let exported = Exported::from(&rig);
    let (requests, admitted) = (
        exported.value("millrace_requests_total"),
        exported.value("millrace_admission_wait_seconds_count"),
    );
    assert_eq!(requests, admitted);
}

fn token(client: &mut Client) {
    loop {
        let chunk = client.chunk().expect("a frame");
        if chunk.contains(r#""content":""#) && !chunk.contains(r#""content":"""#) {
            return;
        }
    }
}

#[test]
fn each_frame_with_tokens_is_timed_once() {
    const FIRST: &str = "millrace_socket_time_to_first_token_seconds_count";
    const NEXT: &str = "millrace_socket_inter_token_seconds_count";
    let rig = Rig::gated(crate::support::fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true));
    client.head();
    for frames in 1..5_u32 {
        rig.gate.allow(1);
        token(&mut client);
        wait_until("its frame is taken", || {
            let told = Exported::from(&rig);
            told.value(FIRST) + told.value(NEXT) >= f64::from(frames)
        });
        let told = Exported::from(&rig);
        let counts = (told.value(FIRST), told.value(NEXT));
        assert_eq!(counts, (1.0, f64::from(frames - 1)));
    }
}

#[test]
fn replays_are_counted_separately() {
    let rig = rig();
    read_again(&rig);
    let of = |family: &str| format!(r#"{family}{{dialect="openai.chat",outcome="complete"}}"#);
    let (answers, attached) = (of("millrace_answers_total"), of("millrace_attached_total"));
    wait_until("both readers are over", || {
        let told = Exported::from(&rig);
        (told.value(&answers), told.value(&attached)) == (1.0, 1.0)
    });
    let told = Exported::from(&rig);
    for (sample, want) in [
        ("millrace_socket_time_to_first_token_seconds_count", 1.0),
        ("millrace_prompt_tokens_total", 2.0),
        ("millrace_streams_registered_total", 1.0),
        ("millrace_attached_open", 0.0),
    ] {
        assert_eq!(told.value(sample), want, "{sample}");
    }
}

#[test]
fn error_within_a_stream_is_counted() {
    let one = ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        ..config()
    };
    let rig = Rig::gated(crate::support::fake(), one);
    let (mut holder, mut waiter) = (Client::connect(rig.addr), Client::connect(rig.addr));
    holder.post(CHAT, &ask("hi", true));
    holder.head();
    waiter.post(CHAT, &ask("hi", true));
    let head = waiter.head();
    let id = head.get("x-stream-id").expect("its name");
    let told = Exported::from(&rig);
    let running = r#"millrace_admission_streams{state="running"}"#;
    assert_eq!(told.value(running), 1.0);
    assert_eq!(told.value("millrace_admission_waiting"), 1.0);
    let mut other = Client::connect(rig.addr);
    other.send(format!("DELETE /v1/streams/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
    assert_eq!(other.reply().head.status, 202);
    let cancelled = r#"millrace_rejections_total{reason="cancelled"}"#;
    wait_until("it is counted", || {
        Exported::from(&rig).value(cancelled) == 1.0
    });
}

#[test]
fn disconnected_client_is_counted() {
    let rig = Rig::gated(crate::support::fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true));
    rig.gate.allow(2);
    client.head();
    drop(client);
    let left = r#"millrace_answers_total{dialect="openai.chat",outcome="left"}"#;
    wait_until("it is counted", || Exported::from(&rig).value(left) == 1.0);
}

#[test]
fn json_metrics_equal_the_prometheus_text() {
    let rig = rig();
    used(&rig);
    let mut client = Client::connect(rig.addr);
    client.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n");
    let told = client.reply().json();
    assert_eq!(told["generated_tokens"], 43);
    assert_eq!(told["socket_time_to_first_token"]["count"], 1);
    assert!(told["socket_time_to_first_token"]["p99_s"].as_f64() > Some(0.0));
    let stalls = &told["reader_stall"];
    assert_eq!(
        stalls["p50_s"].is_null(),
        stalls["count"] == 0,
        "no data is no number"
    );
}

/// The milliseconds under this name.
fn ms(told: &Value, name: &str) -> f64 {
    let figure = told[name].as_f64();
    figure.unwrap_or_else(|| panic!("{name} of {told}"))
}

/// A mean and a maximum that can be of the same times.
fn assert_gaps(told: &Value) {
    let gaps = &told["inter_token_ms"];
    let (mean, max) = (ms(gaps, "mean"), ms(gaps, "max"));
    assert!(0.0 < mean && mean <= max, "{told}");
}

#[test]
fn stream_has_its_own_metrics() {
    const WINDOW: u64 = 8;
    let config = ServerConfig {
        credit_window: WINDOW,
        ..kept()
    };
    let rig = Rig::with(named::fake(), config);
    let fields = format!("{RESUMABLE}x-stream-acks: explicit\r\n");
    let body = chat(&json!({"max_tokens": 20}));
    let mut client = send(&rig, "POST", CHAT, &fields, &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    let told = || get(&rig, &path, "").json();
    let made = |tokens| told()["completion_tokens"] == tokens;
    wait_until("it is parked", || told()["parked"] == "credit");
    let first = told()["measures"].clone();
    let counts =
        |told: &Value| ["parks", "resumes", "pauses", "preemptions"].map(|n| told[n].as_u64());
    assert_eq!(counts(&first), [1, 0, 0, 0].map(Some));
    // The engine sleeps, and the stall grows all the same.
    wait_until("it stalls", || {
        ms(&told()["measures"], "stall_ms") > ms(&first, "stall_ms") + 5.0
    });
    call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    wait_until("it is paused", || told()["measures"]["pauses"] == 1);
    assert_eq!(told()["parked"], "paused");
    let stalled = ms(&told()["measures"], "stall_ms");
    let ack = |index: u64| {
        call(
            &rig,
            "POST",
            &format!("{path}/ack"),
            "",
            &json!({"index": index}),
        )
    };
    ack(WINDOW);
    call(&rig, "POST", &format!("{path}/resume"), "", &Value::Null);
    wait_until("it goes on as far as it may", || made(2 * WINDOW));
    wait_until("it is parked again", || told()["parked"] == "credit");
    ack(20);
    assert!(client.body().ends_with("data: [DONE]\n\n"));
    wait_until("it has ended", || told()["state"] == "ended");
    let told = told();
    assert!(told.get("parked").is_none(), "{told}");
    let measures = &told["measures"];
    assert_eq!(counts(measures), [2, 2, 1, 0].map(Some));
    // It was the only one: its account is everybody's.
    let stall_ns = rig.engine.stats().reader_stall_ns();
    assert_eq!(ms(measures, "stall_ms"), (stall_ns / 1000) as f64 / 1000.0);
    assert!(ms(measures, "stall_ms") >= stalled);
    assert_eq!(rig.engine.stats().parks(), 2);
    assert_gaps(measures);
    let rate = ms(measures, "tokens_per_s");
    let alone = 1000.0 / ms(&measures["inter_token_ms"], "mean");
    assert!(0.0 < rate && rate < alone, "stalls are in it: {measures}");
    let wait = ms(measures, "queue_wait_ms");
    assert!(wait >= ms(&told["timings_ms"], "started"), "{told}");
    assert!(ms(&measures["socket"], "frames") >= 3.0, "{measures}");
    assert_gaps(&measures["socket"]);
}

#[test]
fn queued_stream_reports_its_waiting_time() {
    let narrow = AdaptiveLimits {
        enabled: false,
        max_streams: 1,
        ..AdaptiveLimits::default()
    };
    let config = ServerConfig {
        adaptive_limits: narrow,
        ..kept()
    };
    let rig = Rig::gated(named::fake(), config);
    let mut first = send(&rig, "POST", CHAT, "", &chat(&json!({})));
    first.head();
    let mut second = send(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"max_tokens": 1})),
    );
    let path = format!("/v1/streams/{}", stream_id(&second.head()));
    let told = || get(&rig, &path, "").json();
    let waited = || ms(&told()["measures"], "queue_wait_ms");
    let before = waited();
    wait_until("it waits on", || waited() > before);
    rig.gate.open();
    second.body();
    wait_until("it has ended", || told()["state"] == "ended");
    let told = told();
    let wait = ms(&told["measures"], "queue_wait_ms");
    assert!(
        before < wait && wait < ms(&told["timings_ms"], "ended") + 1.0,
        "{told}"
    );
    let none = &told["measures"];
    assert_eq!(
        [&none["tokens_per_s"], &none["inter_token_ms"]],
        [&Value::Null; 2]
    );
}
