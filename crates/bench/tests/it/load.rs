//! Load generation against a scripted server.
//!
//! Promise (Settings and operation): a load test counts the server's tokens however they are framed, an open loop
//! never waits for answers, and failures are distinguished.
//! Also held by `bench/src/load/request_trace.rs`, `bench/src/load/report.rs`.

use crate::support::{ReceivedRequest, ScriptedServer, chat, error_response, stream};
use bench::load::{Arrivals, Endpoint, LatencyTargets, LoadOptions, LoadReport, run};
use serde_json::Value;
use std::num::NonZeroU32;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn options(server: &ScriptedServer, arrivals: Arrivals, requests: usize) -> LoadOptions {
    LoadOptions {
        target: server.url().parse().unwrap(),
        endpoint: Endpoint::Chat,
        model: None,
        api_key: None,
        prompt_tokens: 100,
        max_tokens: NonZeroU32::new(6).unwrap(),
        ignore_eos: false,
        temperature: 0.0,
        arrivals,
        requests,
        warmup: 0,
        seed: 1,
        timeout: Duration::from_secs(60),
        targets: LatencyTargets::default(),
        pid: None,
    }
}

/// Number of words in the only message of a chat request.
fn words(request: &ReceivedRequest) -> usize {
    request.body["messages"][0]["content"]
        .as_str()
        .map_or(0, |text| text.split(' ').count())
}

/// Six tokens in three frames; the prompt has four tokens plus two per word.
fn answer(request: &ReceivedRequest) -> Vec<u8> {
    let prompt = 4 + 2 * words(request);
    stream(&[
        chat("a"),
        chat("bc"),
        chat("def"),
        crate::support::usage(prompt, 6),
    ])
}

fn is_probe(request: &ReceivedRequest) -> bool {
    request.body["max_tokens"] == 1
}

#[test]
fn tokens_are_counted_by_usage_and_prompts_have_the_requested_length() {
    let server = ScriptedServer::start(answer);
    let options = LoadOptions {
        api_key: Some("secret".to_owned()),
        ignore_eos: true,
        ..options(&server, Arrivals::Clients(3), 12)
    };
    let report = run(options).unwrap();
    assert_eq!((report.requests, report.answered), (12, 12));
    assert_eq!((report.tokens, report.frames), (72, 36));
    assert_eq!(report.between_tokens_ms.count, 12 * 5);
    assert_eq!(
        report.between_tokens_ms.p50, 0.0,
        "three of five waits are none"
    );
    assert_eq!(report.between_frames_ms.count, 24);
    assert_eq!(report.prompt_tokens, 12 * 100);
    assert!(!report.counted_by_frames && report.goodput.is_none());
    assert_eq!(report.model, "scripted");
    let request = server.received();
    let measured: Vec<_> = request
        .iter()
        .filter(|request| !is_probe(request))
        .collect();
    assert_eq!((request.len(), measured.len()), (14, 12), "two probes");
    for request in &measured {
        assert_eq!(request.authorization.as_deref(), Some("Bearer secret"));
        assert_eq!(request.body["model"], "scripted");
        assert_eq!(request.body["ignore_eos"], true);
        assert_eq!(request.body["stream_options"]["include_usage"], true);
        assert_eq!(words(request), 48);
    }
    let mut prompts: Vec<String> = measured
        .iter()
        .map(|a| a.body["messages"].to_string())
        .collect();
    prompts.sort();
    prompts.dedup();
    assert_eq!(prompts.len(), 12, "no prefix cache helps");
}

#[test]
fn prompt_tokens_come_from_a_non_streaming_response_without_stream_usage() {
    let server = ScriptedServer::start(|request| {
        if request.body["stream"] == true {
            return stream(&[chat("a")]);
        }
        let prompt = 4 + 2 * words(request);
        crate::support::counted(&serde_json::json!({"content": "a"}), prompt)
    });
    run(options(&server, Arrivals::Clients(1), 2)).unwrap();
    let request = server.received();
    let (probes, measured): (Vec<_>, Vec<_>) =
        request.iter().partition(|request| is_probe(request));
    assert_eq!((probes.len(), measured.len()), (4, 2));
    assert!(measured.iter().all(|request| words(request) == 48));
}

#[test]
fn failures_are_classified_and_their_tokens_not_counted() {
    let scripts: Mutex<Vec<Vec<u8>>> = Mutex::new(vec![
        error_response(503),
        error_response(429),
        error_response(429),
        crate::support::cut(&[chat("a")]),
        stream(&[chat("a"), serde_json::json!({"error": {"message": "no"}})]),
        stream(&[]),
        crate::support::raw(b"data: <html>\n\n"),
    ]);
    let server = ScriptedServer::start(move |request| {
        let next = (!is_probe(request))
            .then(|| scripts.lock().unwrap().pop())
            .flatten();
        next.unwrap_or_else(|| answer(request))
    });
    let targets = LatencyTargets {
        first_token: Some(Duration::from_secs(60)),
        between_tokens: None,
    };
    let report = run(LoadOptions {
        targets,
        ..options(&server, Arrivals::Clients(1), 8)
    })
    .unwrap();
    let failures: Vec<_> = report
        .failures
        .iter()
        .map(|(k, n)| (k.as_str(), *n))
        .collect();
    let wanted = [
        ("cut", 1),
        ("error in the stream", 1),
        ("malformed", 1),
        ("no token", 1),
        ("status 429", 2),
        ("status 503", 1),
    ];
    assert_eq!(failures, wanted);
    assert_eq!((report.requests, report.answered, report.tokens), (8, 1, 6));
    let good = report.goodput.unwrap();
    assert_eq!((good.answers, good.share), (1, 0.125));
}

#[test]
fn open_loop_does_not_wait_for_responses() {
    const TOGETHER: usize = 20;
    // The server answers when all requests have arrived: a closed loop would deadlock.
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let server = ScriptedServer::start(move |request| {
        if !is_probe(request) {
            let (waiting, all_here) = &*gate;
            let mut waiting = waiting.lock().unwrap();
            *waiting += 1;
            all_here.notify_all();
            drop(
                all_here
                    .wait_while(waiting, |waiting| *waiting < TOGETHER)
                    .unwrap(),
            );
        }
        answer(request)
    });
    let report = run(options(
        &server,
        Arrivals::Poisson { rate: 1000.0 },
        TOGETHER,
    ))
    .unwrap();
    assert_eq!(
        (report.answered, report.tokens),
        (TOGETHER, 6 * TOGETHER as u64)
    );
    assert_eq!(report.late_ms.count, TOGETHER);
}

#[test]
fn completions_without_usage_count_frames() {
    let text = |text: &str| serde_json::json!({"choices": [{"text": text, "index": 0}]});
    let server = ScriptedServer::start(move |_| stream(&[text("a"), text("b")]));
    let options = LoadOptions {
        endpoint: Endpoint::Completions,
        model: Some("mine".to_owned()),
        ..options(&server, Arrivals::Clients(2), 4)
    };
    let report = run(options).unwrap();
    assert!(report.counted_by_frames);
    assert_eq!((report.tokens, report.prompt_tokens), (8, 0));
    let request = server.received();
    assert!(
        request
            .iter()
            .all(|request| request.path == "/v1/completions")
    );
    assert!(
        request
            .iter()
            .all(|request| request.body["model"] == "mine")
    );
    let longest = request
        .iter()
        .filter_map(|a| a.body["prompt"].as_str())
        .map(|p| p.split(' ').count());
    assert_eq!(
        longest.max(),
        Some(100),
        "a word is a token until the server says otherwise"
    );
}

#[test]
fn unusable_server_is_an_immediate_error() {
    let refusing = ScriptedServer::start(|_| error_response(401));
    let error = run(options(&refusing, Arrivals::Clients(1), 1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("status 401") && error.contains("/v1/chat/completions"),
        "{error}"
    );
    let rows = [
        (Arrivals::Clients(0), 1, "clients is 0"),
        (Arrivals::Poisson { rate: 0.0 }, 1, "rate is 0"),
        (Arrivals::Poisson { rate: f64::NAN }, 1, "rate is NaN"),
        (Arrivals::Clients(1), 0, "requests is 0"),
    ];
    for (arrivals, requests, named) in rows {
        let error = run(options(&refusing, arrivals, requests))
            .unwrap_err()
            .to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn reports_are_tables_and_json() {
    let server = ScriptedServer::start(answer);
    let targets = LatencyTargets {
        first_token: None,
        between_tokens: Some(Duration::from_secs(60)),
    };
    let pid = Some(std::process::id());
    let report: LoadReport = run(LoadOptions {
        targets,
        pid,
        ..options(&server, Arrivals::Clients(1), 2)
    })
    .unwrap();
    let text = report.to_string();
    for part in [
        "2 of 2 requests",
        "12 tokens in 6 frames",
        "between tokens",
        "goodput: 100.0%",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["tokens"], 12);
    assert!(json["first_token_ms"]["p99"].is_f64());
    assert!(
        json["server_resident_bytes"].as_u64() > Some(0),
        "this very process"
    );
}
