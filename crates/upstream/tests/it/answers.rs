//! Answers of upstreams that speak the protocol, alive and killed.
//!
//! Promise (Upstreams): a greedy answer of an upstream that is killed continues on another with the same tokens, and
//! a sampled one of a Millrace on another Millrace; one that cannot continue exactly ends with an error.
//! Also held by `upstream/tests/it/kinds.rs`, `millrace/tests/it/upstreams.rs`.

use crate::fake_server::{Behavior, FakeServer, answer};
use crate::rig::{Asked, PROMPT, Rig, read, read_all, wait_for};
use serde_json::json;
use std::sync::atomic::Ordering;
use stream::{End, FailCode, Stop};

#[tokio::test]
async fn tokens_of_an_upstream_are_the_log() {
    let server = FakeServer::start(Behavior::Serve).await;
    let rig = Rig::new(&[&server]).await;
    let [mut reader] = <[_; 1]>::try_from(rig.submit(Asked::default()))
        .ok()
        .unwrap();
    assert_eq!(
        read_all(&mut reader).await,
        (answer(&PROMPT, 24), End::Length)
    );
    let requests = server.requests.lock().unwrap();
    let expected = json!({
        "model": "m", "prompt": PROMPT, "max_tokens": 24, "stream": true,
        "return_token_ids": true, "temperature": 0.0,
        // What is off is named, so that the server's own defaults do not count.
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    });
    assert_eq!(*requests, [expected]);
}

#[tokio::test]
async fn end_of_sequence_token_is_no_part_of_the_answer() {
    let server = FakeServer::start(Behavior::Eos(5)).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let expected = (answer(&PROMPT, 5), End::Stop(Stop::Eos));
    assert_eq!(read_all(&mut readers[0]).await, expected);
}

#[tokio::test]
async fn greedy_choice_of_a_killed_upstream_continues_on_the_other() {
    let (first, second) = (
        FakeServer::start(Behavior::Serve).await,
        FakeServer::start(Behavior::Serve).await,
    );
    let rig = Rig::new(&[&first, &second]).await;
    let asked = Asked {
        max_tokens: 3000,
        credit_window: 8,
        ..Asked::default()
    };
    let mut readers = rig.submit(asked);
    let mut ids = Vec::new();
    wait_for("some tokens", async || {
        ids.extend(read(&mut readers[0]).0);
        readers[0].accept(ids.len() as u64);
        (ids.len() > 20).then_some(())
    })
    .await;
    first.kill();
    let end = wait_for("the end", async || {
        let (more, end) = read(&mut readers[0]);
        ids.extend(more);
        readers[0].accept(ids.len() as u64);
        end
    })
    .await;
    assert_eq!((ids, end), (answer(&PROMPT, 3000), End::Length));
    assert_eq!(first.requests.lock().unwrap().len(), 1);
    let continued = second.requests.lock().unwrap()[0]["prompt"]
        .as_array()
        .unwrap()
        .len();
    assert!(continued > PROMPT.len() + 20, "{continued}");
}

#[tokio::test]
async fn upstream_that_always_cuts_after_some_tokens_ends_nothing() {
    let server = FakeServer::start(Behavior::Cut(5)).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    assert_eq!(
        read_all(&mut readers[0]).await,
        (answer(&PROMPT, 24), End::Length)
    );
    assert_eq!(server.requests.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn choice_that_cannot_continue_exactly_names_its_upstream() {
    for (temperature, penalty) in [(0.7, 0.0), (0.0, 0.5)] {
        let server = FakeServer::start(Behavior::Cut(5)).await;
        let rig = Rig::new(&[&server]).await;
        let mut readers = rig.submit(Asked {
            temperature,
            penalty,
            ..Asked::default()
        });
        let (ids, end) = read_all(&mut readers[0]).await;
        let failed = End::Failed(FailCode::Upstream(0));
        assert_eq!((ids.len(), end), (5, failed), "a prefix, and an error");
        assert_eq!(server.requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn choices_are_calls_with_seeds_of_their_own() {
    let server = FakeServer::start(Behavior::Serve).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked {
        temperature: 0.5,
        choices: 3,
        ..Asked::default()
    });
    for reader in &mut readers {
        assert_eq!(read_all(reader).await.1, End::Length);
    }
    let requests = server.requests.lock().unwrap();
    let mut seeds: Vec<_> = requests
        .iter()
        .map(|r| r["seed"].as_u64().unwrap())
        .collect();
    seeds.sort_unstable();
    assert_eq!(seeds, [7, 8, 9]);
}

#[tokio::test]
async fn dropped_reader_closes_the_call() {
    let server = FakeServer::start(Behavior::Serve).await;
    let rig = Rig::new(&[&server]).await;
    let asked = Asked {
        max_tokens: 4000,
        credit_window: 4,
        ..Asked::default()
    };
    let mut readers = rig.submit(asked);
    wait_for("a token", async || {
        (!read(&mut readers[0]).0.is_empty()).then_some(())
    })
    .await;
    drop(readers);
    wait_for("the connection is closed", async || {
        (server.closed.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    assert_eq!(rig.handle.stats().running(), 0);
}

#[tokio::test]
async fn tokens_stop_at_the_credit_window() {
    let server = FakeServer::start(Behavior::Serve).await;
    let rig = Rig::new(&[&server]).await;
    let asked = Asked {
        max_tokens: 4000,
        credit_window: 16,
        ..Asked::default()
    };
    let mut readers = rig.submit(asked);
    wait_for("all written that sockets take", async || {
        let before = server.written.load(Ordering::SeqCst);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let after = server.written.load(Ordering::SeqCst);
        (before > 0 && before == after).then_some(())
    })
    .await;
    let (ids, end) = read(&mut readers[0]);
    assert_eq!(end, None);
    assert_eq!(ids.len(), 16);
    assert!(
        server.written.load(Ordering::SeqCst) < 4000,
        "the upstream waits"
    );
}
