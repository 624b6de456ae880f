//! The load against a server that plays a script.

use crate::support::{Asked, Scripted, chat, refusal, stream};
use bench::load::{Arrivals, Endpoint, Objective, Report, Wish, run};
use serde_json::Value;
use std::num::NonZeroU32;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn wish(server: &Scripted, arrivals: Arrivals, requests: usize) -> Wish {
    Wish {
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
        objective: Objective::default(),
        pid: None,
    }
}

/// The words of a chat's only message.
fn words(asked: &Asked) -> usize {
    asked.body["messages"][0]["content"]
        .as_str()
        .map_or(0, |text| text.split(' ').count())
}

/// Six tokens in three frames, and four tokens of prompt beside two for each word.
fn answer(asked: &Asked) -> Vec<u8> {
    let prompt = 4 + 2 * words(asked);
    stream(&[
        chat("a"),
        chat("bc"),
        chat("def"),
        crate::support::usage(prompt, 6),
    ])
}

fn is_probe(asked: &Asked) -> bool {
    asked.body["max_tokens"] == 1
}

#[test]
fn tokens_are_the_servers_and_the_prompt_is_as_long_as_wished() {
    let server = Scripted::start(answer);
    let wish = Wish {
        api_key: Some("secret".to_owned()),
        ignore_eos: true,
        ..wish(&server, Arrivals::Clients(3), 12)
    };
    let report = run(wish).unwrap();
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
    let asked = server.asked();
    let measured: Vec<_> = asked.iter().filter(|asked| !is_probe(asked)).collect();
    assert_eq!((asked.len(), measured.len()), (14, 12), "two probes");
    for asked in &measured {
        assert_eq!(asked.authorization.as_deref(), Some("Bearer secret"));
        assert_eq!(asked.body["model"], "scripted");
        assert_eq!(asked.body["ignore_eos"], true);
        assert_eq!(asked.body["stream_options"]["include_usage"], true);
        assert_eq!(words(asked), 48);
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
fn a_server_that_counts_in_whole_answers_alone_is_asked_for_one() {
    let server = Scripted::start(|asked| {
        if asked.body["stream"] == true {
            return stream(&[chat("a")]);
        }
        let prompt = 4 + 2 * words(asked);
        crate::support::counted(&serde_json::json!({"content": "a"}), prompt)
    });
    run(wish(&server, Arrivals::Clients(1), 2)).unwrap();
    let asked = server.asked();
    let (probes, measured): (Vec<_>, Vec<_>) = asked.iter().partition(|asked| is_probe(asked));
    assert_eq!((probes.len(), measured.len()), (4, 2));
    assert!(measured.iter().all(|asked| words(asked) == 48));
}

#[test]
fn failures_are_told_apart_and_their_tokens_do_not_count() {
    let scripts: Mutex<Vec<Vec<u8>>> = Mutex::new(vec![
        refusal(503),
        refusal(429),
        refusal(429),
        crate::support::cut(&[chat("a")]),
        stream(&[chat("a"), serde_json::json!({"error": {"message": "no"}})]),
        stream(&[]),
        crate::support::raw(b"data: <html>\n\n"),
    ]);
    let server = Scripted::start(move |asked| {
        let next = (!is_probe(asked))
            .then(|| scripts.lock().unwrap().pop())
            .flatten();
        next.unwrap_or_else(|| answer(asked))
    });
    let objective = Objective {
        first_token: Some(Duration::from_secs(60)),
        between_tokens: None,
    };
    let report = run(Wish {
        objective,
        ..wish(&server, Arrivals::Clients(1), 8)
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
fn an_open_loop_does_not_wait_for_answers() {
    const TOGETHER: usize = 20;
    // Nobody is answered before all have asked: a client that waits would wait for ever.
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let server = Scripted::start(move |asked| {
        if !is_probe(asked) {
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
        answer(asked)
    });
    let report = run(wish(&server, Arrivals::Poisson { rate: 1000.0 }, TOGETHER)).unwrap();
    assert_eq!(
        (report.answered, report.tokens),
        (TOGETHER, 6 * TOGETHER as u64)
    );
    assert_eq!(report.late_ms.count, TOGETHER);
}

#[test]
fn completions_are_measured_as_well_and_frames_counted_without_usage() {
    let text = |text: &str| serde_json::json!({"choices": [{"text": text, "index": 0}]});
    let server = Scripted::start(move |_| stream(&[text("a"), text("b")]));
    let wish = Wish {
        endpoint: Endpoint::Completions,
        model: Some("mine".to_owned()),
        ..wish(&server, Arrivals::Clients(2), 4)
    };
    let report = run(wish).unwrap();
    assert!(report.counted_by_frames);
    assert_eq!((report.tokens, report.prompt_tokens), (8, 0));
    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.path == "/v1/completions"));
    assert!(asked.iter().all(|asked| asked.body["model"] == "mine"));
    let longest = asked
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
fn a_server_that_cannot_be_used_is_named_at_once() {
    let refusing = Scripted::start(|_| refusal(401));
    let error = run(wish(&refusing, Arrivals::Clients(1), 1))
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
        let error = run(wish(&refusing, arrivals, requests))
            .unwrap_err()
            .to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn reports_are_tables_and_json() {
    let server = Scripted::start(answer);
    let objective = Objective {
        first_token: None,
        between_tokens: Some(Duration::from_secs(60)),
    };
    let pid = Some(std::process::id());
    let report: Report = run(Wish {
        objective,
        pid,
        ..wish(&server, Arrivals::Clients(1), 2)
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
