//! Answers of Millrace, of llama.cpp's server, and of servers without token ids.

use crate::fake_server::{Behavior, FakeServer, LLAMA_EOS, seeded_answer};
use crate::rig::{Asked, PROMPT, Rig, read_all};
use generate::request::GenerationParams;
use serde_json::json;
use stream::{End, FailCode, Stop};
use upstream::UpstreamApi;

/// No cut.
const WHOLE: usize = usize::MAX;

fn sampled(choices: usize) -> Asked {
    Asked {
        temperature: 0.7,
        penalty: 0.5,
        choices,
        ..Asked::default()
    }
}

/// Tokens of a text, each a byte, and the end.
fn llama_answer(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).chain([LLAMA_EOS]).collect()
}

fn text_of(ids: &[u32]) -> String {
    let bytes = ids.iter().map(|&id| u8::try_from(id).unwrap());
    String::from_utf8(bytes.collect()).unwrap()
}

#[tokio::test]
async fn sampled_choice_of_a_killed_millrace_continues_on_another() {
    let (first, second) = (
        FakeServer::start(Behavior::Millrace(9)).await,
        FakeServer::start(Behavior::Millrace(WHOLE)).await,
    );
    let rig = Rig::new(&[&first, &second]).await;
    let mut readers = rig.submit(sampled(1));
    let (ids, end) = read_all(&mut readers[0]).await;
    let expected = seeded_answer(&PROMPT, &json!({"seed": 7}), 24);
    assert_eq!((&ids, end), (&expected, End::Length));
    let requests = second.requests.lock().unwrap();
    assert_eq!(requests[0]["prompt"], json!(PROMPT));
    assert_eq!(requests[0]["continue_token_ids"], json!(expected[..8]));
    assert_eq!(requests[0]["max_tokens"], 24, "of the whole answer");
    for (name, off) in [
        ("top_k", json!(-1)),
        ("top_p", json!(1.0)),
        ("min_p", json!(0.0)),
        ("frequency_penalty", json!(0.0)),
        ("repetition_penalty", json!(1.0)),
    ] {
        assert_eq!(requests[0][name], off, "{name} is no default of the server");
    }
    let counts = rig.status.counts();
    assert_eq!((counts.calls, counts.continuations, counts.cut), (2, 1, 1));
    assert_eq!((counts.tokens, counts.in_flight), (24, 0));
}

#[tokio::test]
async fn sampled_choice_does_not_continue_on_a_server_of_another_kind() {
    let (first, second) = (
        FakeServer::start(Behavior::Millrace(9)).await,
        FakeServer::start(Behavior::Serve).await,
    );
    let rig = Rig::new(&[&first, &second]).await;
    // The first server cuts each call after some tokens, so the choice reaches its end there alone.
    let mut readers = rig.submit(sampled(1));
    let (ids, end) = read_all(&mut readers[0]).await;
    let expected = seeded_answer(&PROMPT, &json!({"seed": 7}), 24);
    assert_eq!((ids, end), (expected, End::Length));
    assert_eq!(second.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn choices_of_a_millrace_are_those_of_one_request() {
    let server = FakeServer::start(Behavior::Millrace(WHOLE)).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(sampled(3));
    for (choice, reader) in readers.iter_mut().enumerate() {
        let body = json!({"seed": 7, "continue_choice": choice});
        assert_eq!(read_all(reader).await.0, seeded_answer(&PROMPT, &body, 24));
    }
}

#[tokio::test]
async fn greedy_choice_of_llama_cpp_continues_from_its_ids() {
    let answer = llama_answer("hello, world");
    let (first, second) = (
        FakeServer::start(Behavior::LlamaCpp(answer.clone(), 5)).await,
        FakeServer::start(Behavior::LlamaCpp(answer.clone(), WHOLE)).await,
    );
    let rig = Rig::new(&[&first, &second]).await;
    let mut readers = rig.submit(Asked::default());
    let (ids, end) = read_all(&mut readers[0]).await;
    assert_eq!(
        (text_of(&ids).as_str(), end),
        ("hello, world", End::Stop(Stop::Eos))
    );
    let requests = first.requests.lock().unwrap();
    let expected = json!({
        "model": "m", "prompt": PROMPT, "n_predict": 24, "stream": true, "return_tokens": true, "cache_prompt": true,
        "temperature": 0.0, "seed": 7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0,
        "repeat_last_n": PROMPT.len() + 24, "presence_penalty": 0.0, "frequency_penalty": 0.0, "dynatemp_range": 0,
        "dry_multiplier": 0, "xtc_probability": 0, "mirostat": 0, "ignore_eos": false,
    });
    assert_eq!(*requests, [expected]);
}

#[tokio::test]
async fn characters_of_several_tokens_are_whole_and_end_continuation() {
    let text = "é 🦙 ü";
    let server = FakeServer::start(Behavior::LlamaCpp(llama_answer(text), WHOLE)).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let (ids, end) = read_all(&mut readers[0]).await;
    assert_eq!((text_of(&ids).as_str(), end), (text, End::Stop(Stop::Eos)));

    let server = FakeServer::start(Behavior::LlamaCpp(llama_answer(text), 2)).await;
    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let (ids, end) = read_all(&mut readers[0]).await;
    assert_eq!(
        (text_of(&ids).as_str(), end),
        ("é ", End::Failed(FailCode::Upstream(0)))
    );
}

#[tokio::test]
async fn stop_string_of_llama_cpp_is_cut_off_and_named() {
    for (text, expected, end) in [
        ("one wörld", "one ", End::Stop(Stop::StopString(0))),
        ("one wö", "one wö", End::Stop(Stop::Eos)),
    ] {
        let server = FakeServer::start(Behavior::LlamaCpp(llama_answer(text), WHOLE)).await;
        let rig = Rig::new(&[&server]).await;
        let params = GenerationParams {
            stops: vec!["wör".to_owned()],
            ..GenerationParams::default()
        };
        let mut readers = rig.submit(Asked {
            params,
            ..Asked::default()
        });
        let (ids, found) = read_all(&mut readers[0]).await;
        assert_eq!((text_of(&ids).as_str(), found), (expected, end), "{text}");
    }
}

#[tokio::test]
async fn stop_strings_of_a_conversation_are_not_sent() {
    for is_conversation in [false, true] {
        for behavior in [
            Behavior::Serve,
            Behavior::LlamaCpp(llama_answer("one"), WHOLE),
        ] {
            let server = FakeServer::start(behavior).await;
            let rig = Rig::new(&[&server]).await;
            let params = GenerationParams {
                stops: vec!["END".to_owned()],
                ..GenerationParams::default()
            };
            let mut readers = rig.submit(Asked {
                params,
                is_conversation,
                ..Asked::default()
            });
            read_all(&mut readers[0]).await;
            let body = server.requests.lock().unwrap()[0].clone();
            let sent = (!is_conversation).then(|| serde_json::json!(["END"]));
            assert_eq!(body.get("stop"), sent.as_ref(), "{is_conversation}");
        }
    }
}

#[tokio::test]
async fn pieces_of_text_are_the_log_where_there_are_no_ids() {
    let pieces = vec!["", "hé", "llo", " 🦙", "</s>"];
    let server = FakeServer::start(Behavior::Text(pieces.clone())).await;
    let rig = Rig::with_api(UpstreamApi::OpenAiText, &[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let (ids, end) = read_all(&mut readers[0]).await;
    assert_eq!(
        (text_of(&ids), end),
        (pieces.concat(), End::Stop(Stop::Eos))
    );
    let body = server.requests.lock().unwrap()[0].clone();
    assert_eq!(body.get("return_token_ids"), None);

    let rig = Rig::new(&[&server]).await;
    let mut readers = rig.submit(Asked::default());
    let end = read_all(&mut readers[0]).await.1;
    assert_eq!(
        end,
        End::Failed(FailCode::Upstream(0)),
        "text must be allowed"
    );
}

#[tokio::test]
async fn part_that_no_usable_server_computes_is_named() {
    let server = FakeServer::start(Behavior::LlamaCpp(Vec::new(), WHOLE)).await;
    let rig = Rig::new(&[&server]).await;
    let why = rig.try_submit(Asked {
        min_tokens: 5,
        ..Asked::default()
    });
    assert!(why.err().unwrap().contains("min_tokens"));
}
