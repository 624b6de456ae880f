//! Upstreams that are down, refuse, or lie.
//!
//! Promise (Upstreams): an upstream's fault is a 502, or an error event, that names the upstream, also where it
//! answers each time with a failure. A request that no upstream took is a 503 that may be sent again. Secrets that an
//! upstream repeats are not logged, and stop strings of conversations are not sent.
//! Also held by `upstream/tests/it/kinds.rs`, `upstream/src/http_call.rs`, `wire/src/shared/finish_reason.rs`.
//!
//! Promise (Upstreams): an upstream that is down, refuses, sends endless lines, wrong JSON, wrong ids or too many
//! tokens ends or moves one request, and affects no other.

use crate::fake_server::{Behavior, FakeServer, answer};
use crate::rig::{Asked, PROMPT, Rig, read_all};
use generate::request::GenerationParams;
use stream::{End, FailCode};

/// The end of a request on an upstream that behaves like this, and the number of calls.
async fn end_with(behavior: Behavior) -> (Vec<u32>, End, usize) {
    let server = FakeServer::start(behavior).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let (ids, end) = read_all(&mut readers[0]).await;
    let calls = server.requests.lock().unwrap().len();
    (ids, end, calls)
}

fn event(choice: &str) -> Behavior {
    Behavior::Body(format!("data: {{\"choices\":[{choice}]}}\n\n").into_bytes())
}

#[tokio::test]
async fn refused_and_misunderstood_requests_fail_at_once() {
    for behavior in [
        Behavior::Status(400, "{\"error\":\"no\"}"),
        Behavior::Status(401, ""),
        Behavior::Status(404, "model"),
        Behavior::EndlessLine,
        Behavior::Body(b"data: {\n\n".to_vec()),
        Behavior::Body(b"data: {\"error\":{\"message\":\"out of memory\"}}\n\n".to_vec()),
        event(r#"{"text":"abc"}"#),
        event(r#"{"text":"a","token_ids":[300]}"#),
        event(r#"{"text":"a","token_ids":[-3]}"#),
        event(r#"{"text":"a","token_ids":[3],"prompt_token_ids":[1,2,3]}"#),
        event(r#"{"text":"a","token_ids":[3],"finish_reason":"abort"}"#),
    ] {
        let (ids, end, calls) = end_with(behavior).await;
        assert_eq!((ids, calls), (vec![], 1));
        assert_eq!(end, End::Failed(FailCode::Upstream(0)));
    }
}

#[tokio::test]
async fn more_tokens_than_requested_end_with_length() {
    let many = vec!["4"; 100].join(",");
    let (ids, end, _) = end_with(event(&format!(r#"{{"token_ids":[{many}]}}"#))).await;
    assert_eq!((ids, end), (vec![4; 24], End::Length));
}

#[tokio::test]
async fn upstream_without_a_token_before_each_cut_fails_after_three_calls() {
    let (ids, end, calls) = end_with(Behavior::Cut(0)).await;
    assert_eq!((ids, calls), (vec![], 3));
    assert_eq!(end, End::Failed(FailCode::Upstream(0)));
}

#[tokio::test]
async fn upstream_that_fails_on_a_request_each_time_is_named() {
    for status in [500, 502, 504] {
        let (ids, end, calls) = end_with(Behavior::Status(status, "broken")).await;
        assert_eq!((ids, calls), (vec![], 3), "{status}");
        assert_eq!(end, End::Failed(FailCode::Upstream(0)), "{status}");
    }
    // An overloaded one may take the request later.
    for status in [429, 503, 529] {
        let (_, end, _) = end_with(Behavior::Status(status, "busy")).await;
        assert_eq!(end, End::Failed(FailCode::NoEngine), "{status}");
    }
}

#[tokio::test]
async fn overloaded_upstream_leaves_requests_to_the_other() {
    let (busy, free) = (
        FakeServer::start(Behavior::Status(503, "busy")).await,
        FakeServer::start(Behavior::Serve).await,
    );
    let rig = Rig::new(&[&busy, &free]).await;
    for _ in 0..3 {
        let mut readers = rig.submit(Asked::default());
        assert_eq!(
            read_all(&mut readers[0]).await,
            (answer(&PROMPT, 24), End::Length)
        );
    }
    assert_eq!(busy.requests.lock().unwrap().len(), 1, "it rests");
}

#[tokio::test]
async fn request_without_any_live_upstream_may_be_sent_again() {
    let server = FakeServer::start(Behavior::Serve).await;
    server.kill();
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let end = End::Failed(FailCode::NoEngine);
    assert_eq!(read_all(&mut readers[0]).await, (vec![], end));
}

#[tokio::test]
async fn request_that_upstreams_cannot_compute_is_rejected() {
    let server = FakeServer::start(Behavior::Serve).await;
    let rig = Rig::new(&[&server]).await;
    let params = GenerationParams {
        reasoning_budget: Some(5),
        ..GenerationParams::default()
    };
    let why = rig.try_submit(Asked {
        params,
        ..Asked::default()
    });
    let why = why.err().unwrap();
    assert!(why.contains("reasoning_budget"), "{why}");
    assert_eq!(server.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn requests_end_when_the_handle_shuts_down() {
    let server = FakeServer::start(Behavior::Body(Vec::new())).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    rig.handle.shutdown(tokio::time::Instant::now().into_std());
    let (_, end) = read_all(&mut readers[0]).await;
    assert_eq!(end, End::Failed(FailCode::Shutdown));
    rig.relay.finish().await;
}
