//! Every sample, with every size of window, against the plain engine, token for token.
//!
//! Promise (Workflows): every sample workflow, in windows of 1 to 16, one or two in flight, gives the answer of a
//! plain request, token for token.
//!
//! Promise (Workflows): any token of an answer may be the end, in every sample and size of window.

use crate::support::{Bench, EOS, sample, samples};
use engine::SamplingParams;
use serde_json::json;
use std::sync::Arc;
use std::task::{Context, Waker};
use stream::{End, Stop};

/// Sampling parameters of these temperatures, with a seed.
const HEATS: [(f32, u64); 2] = [(0.0, 0), (0.9, 11)];

fn sampling(temperature: f32, seed: u64) -> SamplingParams {
    SamplingParams {
        temperature,
        seed,
        ..SamplingParams::default()
    }
}

#[test]
fn sample_compiles_and_lists_its_inputs() {
    let samples = samples();
    assert_eq!(samples.len(), 8);
    for (name, document) in &samples {
        let program = crate::support::compile(document);
        assert_eq!(program.name(), name);
        assert!(program.description().ends_with('.'), "{name}");
        for input in program.inputs() {
            assert!(
                input.hidden || input.label.is_some(),
                "{name}: {}",
                input.name
            );
        }
    }
}

#[test]
fn text_whole_and_streamed_is_the_plain_answer() {
    check_text(&mut Bench::new(0.03));
}

pub(crate) fn check_text(bench: &mut Bench) {
    for (temperature, seed) in HEATS {
        for prompt in ["hello", "a longer question", "x"] {
            let ids = bench.asked(prompt);
            let wanted = bench.plain(&ids, &sampling(temperature, seed), 40);
            let given = json!({"prompt": prompt, "max_tokens": 40, "temperature": temperature, "seed": seed});
            for (name, told) in [("text_generation", false), ("streamed_generation", true)] {
                let mut run = bench.run(&sample(name), &given);
                let (ids, outcome) = bench.finish(&mut run);
                assert_eq!(outcome.end, End::Stop(Stop::Eos), "{name}: {outcome:?}");
                let text = bench
                    .model
                    .handle
                    .tokenizer
                    .encode(&said(&outcome), false)
                    .unwrap();
                assert_eq!(text, wanted, "{name}");
                assert_eq!(ids, if told { wanted.clone() } else { Vec::new() });
                drop(run);
                bench.assert_empty();
            }
        }
    }
}

#[test]
fn windows_of_every_size_say_the_same() {
    check_windows(&mut Bench::new(0.04));
}

pub(crate) fn check_windows(bench: &mut Bench) {
    let program = sample("batched_generation");
    for (temperature, seed) in HEATS {
        for prompt in ["hello", "to be or not"] {
            let ids = bench.asked(prompt);
            let wanted = bench.plain(&ids, &sampling(temperature, seed), 30);
            for batch in 1..=16 {
                for ahead in [false, true] {
                    let given = json!({
                        "prompt": prompt, "max_tokens": 30, "temperature": temperature, "seed": seed,
                        "batch_size": batch, "ahead": ahead,
                    });
                    let mut run = bench.run(&program, &given);
                    let (told, outcome) = bench.finish(&mut run);
                    assert_eq!(told, wanted, "batch {batch}, ahead {ahead}: {outcome:?}");
                    let position = ids.len() + wanted.len();
                    assert_eq!(run.sessions()[0].ids().len(), position);
                }
            }
        }
    }
    bench.assert_empty();
}

#[test]
fn second_turn_equals_a_fresh_run_over_the_transcript() {
    check_turns(&mut Bench::new(0.05));
}

pub(crate) fn check_turns(bench: &mut Bench) {
    for name in ["multi_turn_chat", "draft_then_revise"] {
        let program = sample(name);
        for batch in 1..=16 {
            for ahead in [false, true] {
                let chat = name == "multi_turn_chat";
                let given = if chat {
                    json!({"first": "hi", "second": "and then?", "system": "be kind",
                        "max_tokens": 25, "batch_size": batch, "ahead": ahead})
                } else {
                    json!({"prompt": "hi", "wish": "and then?",
                        "max_tokens": 25, "batch_size": batch, "ahead": ahead})
                };
                let mut run = bench.run(&program, &given);
                let (told, outcome) = bench.finish(&mut run);
                assert_eq!(outcome.end, End::Stop(Stop::Eos), "{outcome:?}");
                let encode = |text: &str| bench.model.handle.tokenizer.encode(text, true).unwrap();
                let head = if chat { "<system>be kind</s>\n" } else { "" };
                let first = encode(&format!("{head}<user>hi</s>\n<assistant>"));
                let turn = encode("</s>\n<user>and then?</s>\n<assistant>");
                let one = bench.plain(&first, &sampling(0.0, 0), 25);
                let transcript = [first, one.clone(), turn].concat();
                let two = bench.plain(&transcript, &sampling(0.0, 0), 25);
                assert_eq!(told, [one, two.clone()].concat(), "{name}, batch {batch}");
                assert_eq!(run.sessions()[0].ids(), [transcript, two].concat());
            }
        }
    }
    bench.assert_empty();
}

#[test]
fn best_of_n_returns_the_likeliest_of_its_answers() {
    check_best(&mut Bench::new(0.05));
}

pub(crate) fn check_best(bench: &mut Bench) {
    let given = json!({"prompt": "hi", "n": 5, "max_tokens": 12, "seed": 3});
    let mut run = bench.run(&sample("best_of_n"), &given);
    let (_, outcome) = bench.finish(&mut run);
    let ids = bench.asked("hi");
    let answers: Vec<String> = (3..8)
        .map(|seed| {
            let ids = bench.plain(&ids, &sampling(0.8, seed), 12);
            ids.into_iter().map(|id| char::from(id as u8)).collect()
        })
        .collect();
    let best = said(&outcome);
    assert!(answers.contains(&best), "{best} is none of {answers:?}");
    assert!(answers.iter().any(|answer| *answer != best), "all alike");
    drop(run);
    bench.assert_empty();
}

#[test]
fn client_that_accepts_suggestions_gets_the_plain_answer() {
    check_suggestions(&mut Bench::new(0.05));
}

pub(crate) fn check_suggestions(bench: &mut Bench) {
    let ids = bench.asked("hi");
    let plain = bench.plain(&ids, &sampling(0.0, 0), 20);
    let given = json!({"prompt": "hi", "max_tokens": 20});
    let mut run = bench.run(&sample("external_sampling"), &given);
    let (_, outcome) = bench.play(&mut run, |id, other| other.push(id).unwrap());
    let text: String = plain.iter().map(|id| char::from(*id as u8)).collect();
    assert_eq!(said(&outcome), text);
}

#[test]
fn tokens_chosen_by_the_client_are_followed() {
    let mut bench = Bench::new(0.0);
    let mut ids = bench.asked("hi");
    let given = json!({"prompt": "hi", "max_tokens": 20});
    let mut run = bench.run(&sample("external_sampling"), &given);
    let (mut step, mut chosen) = (0, Vec::new());
    let (suggested, outcome) = bench.play(&mut run, |id, other| {
        let own = match step {
            9 => EOS,
            step if step % 3 == 2 => u32::from(b'Z'),
            _ => id,
        };
        step += 1;
        chosen.push(own);
        other.push(own).unwrap();
    });
    // Each suggestion continues the suggestions chosen before.
    for (suggestion, own) in suggested.iter().zip(&chosen) {
        let next = bench.plain(&ids, &sampling(0.0, 0), 1);
        assert_eq!(next, [*suggestion]);
        ids.push(*own);
    }
    let text: String = chosen[..9].iter().map(|id| char::from(*id as u8)).collect();
    assert_eq!(said(&outcome), text);
}

#[test]
fn embeddings_of_a_list_equal_those_of_the_engine() {
    check_embeddings(&mut Bench::new(0.0));
}

pub(crate) fn check_embeddings(bench: &mut Bench) {
    for texts in [
        vec![],
        vec!["x"],
        vec!["hello", "to be or not to be", "x", "hello"],
    ] {
        let wanted: Vec<Vec<f32>> = texts
            .iter()
            .map(|text| {
                let ids = bench
                    .model
                    .handle
                    .tokenizer
                    .encode_prompt(text, false)
                    .unwrap();
                bench.embedded(&ids)
            })
            .collect();
        let mut run = bench.run(&sample("embeddings_of_a_list"), &json!({"texts": texts}));
        let (told, outcome) = bench.finish(&mut run);
        assert!(
            told.is_empty() && outcome.end == End::Stop(Stop::Eos),
            "{outcome:?}"
        );
        let vectors = outcome.value.expect("a list").to_json();
        assert_eq!(
            vectors,
            json!(wanted).as_array().map(|v| rounded(v)).unwrap()
        );
        drop(run);
        bench.assert_empty();
    }
}

/// Formats with the digits of an `f32`.
fn rounded(vectors: &[serde_json::Value]) -> serde_json::Value {
    let entry = |entry: &serde_json::Value| (entry.as_f64().unwrap() as f32).to_string();
    let vector = |vector: &serde_json::Value| -> Vec<f64> {
        let entries = vector.as_array().unwrap().iter();
        entries.map(|e| entry(e).parse().unwrap()).collect()
    };
    json!(vectors.iter().map(vector).collect::<Vec<_>>())
}

#[test]
fn invalid_embedding_input_fails_with_its_step() {
    let mut bench = Bench::new(0.0);
    let program = sample("embeddings_of_a_list");
    let long = "x".repeat(600);
    for (texts, words) in [
        (json!(["a", ""]), "no token"),
        (json!(["a", 3]), "item 1 is not a text"),
        (json!([long]), ""),
    ] {
        let mut run = bench.run(&program, &json!({"texts": texts}));
        let (_, outcome) = bench.finish(&mut run);
        if words.is_empty() {
            assert_eq!(outcome.end, End::Length, "longer than the context");
            continue;
        }
        let fault = outcome.fault.expect("words");
        assert!(fault.what.contains(words), "{fault}");
        assert!(fault.path.starts_with("steps[2].body"), "{fault}");
    }
    // Stopped while the engine runs the request.
    let mut run = bench.run(&program, &json!({"texts": ["hello"]}));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(run.poll(&mut cx, bench.now).is_pending());
    run.stop();
    bench.assert_empty();
}

#[test]
fn end_token_at_any_position_ends_each_sample() {
    check_ends(&mut Bench::new(0.0));
}

/// Each answering sample, with each token of the answer as the end token, in every size of window.
pub(crate) fn check_ends(bench: &mut Bench) {
    let ordinary = Arc::clone(&bench.model);
    let asked = bench.asked("hi");
    let mut ends = bench.plain(&asked, &sampling(0.0, 0), 9);
    ends.sort_unstable();
    ends.dedup();
    let mut ran = 0;
    for eos in ends {
        let mut model = (*ordinary).clone();
        model.handle.eos = Arc::from([eos]);
        bench.model = Arc::new(model);
        for (name, document) in samples() {
            let Some(mut given) = asks(&name) else {
                continue;
            };
            let program = crate::support::compile(&document);
            let inputs = program.inputs();
            let windows = inputs.iter().any(|input| input.name == "batch_size");
            let sizes = if windows { 1..=16 } else { 1..=1 };
            for (batch, ahead) in sizes.flat_map(|batch| [(batch, false), (batch, windows)]) {
                if windows {
                    (given["batch_size"], given["ahead"]) = (json!(batch), json!(ahead));
                }
                let (told, text) = wanted(bench, &name);
                let mut run = bench.run(&program, &given);
                let (ids, outcome) = bench.finish(&mut run);
                let case = format!("{name}, batch {batch}, ahead {ahead}, end {eos}: {outcome:?}");
                assert_eq!(outcome.end, End::Stop(Stop::Eos), "{case}");
                assert_eq!((ids, said(&outcome)), (told, text), "{case}");
                ran += 1;
            }
        }
    }
    assert!(ran > 300, "{ran}");
    bench.assert_empty();
}

#[test]
fn memory_of_a_run_does_not_depend_on_its_windows() {
    let mut bench = Bench::new(0.1);
    for (name, document) in samples() {
        if !document.to_string().contains("while_batched") || name == "external_sampling" {
            continue;
        }
        let chat = name == "multi_turn_chat";
        let mut held = Vec::new();
        for batch in 1..=16 {
            for ahead in [false, true] {
                let given = match name.as_str() {
                    "batched_generation" => json!({"prompt": "hi"}),
                    _ if chat => json!({"first": "hi", "second": "on"}),
                    _ => json!({"prompt": "hi", "wish": "on"}),
                };
                let mut given = given;
                (given["batch_size"], given["ahead"]) = (json!(batch), json!(ahead));
                given["max_tokens"] = json!(40);
                let mut run = bench.run(&crate::support::compile(&document), &given);
                let (told, outcome) = bench.finish(&mut run);
                assert_eq!(outcome.end, End::Stop(Stop::Eos), "{name}: {outcome:?}");
                held.push((told, run.value_bytes()));
            }
        }
        assert!(
            held.iter().all(|other| *other == held[0] && other.1 > 0),
            "{name}: {held:?}"
        );
    }
}

/// Inputs of an answering sample.
fn asks(name: &str) -> Option<serde_json::Value> {
    let mut given = match name {
        "multi_turn_chat" => json!({"first": "hi", "second": "on", "system": ""}),
        "draft_then_revise" => json!({"prompt": "hi", "wish": "on"}),
        "best_of_n" => json!({"prompt": "hi", "n": 2, "temperature": 0}),
        // One has no answer, the other is ended by its client.
        "embeddings_of_a_list" | "external_sampling" => return None,
        _ => json!({"prompt": "hi"}),
    };
    given["max_tokens"] = json!(9);
    Some(given)
}

/// The expected events and result: plain requests, one after the other.
fn wanted(bench: &mut Bench, name: &str) -> (Vec<u32>, String) {
    let text = |ids: &[u32]| -> String { ids.iter().map(|id| char::from(*id as u8)).collect() };
    let encode =
        |bench: &Bench, text: &str| bench.model.handle.tokenizer.encode(text, true).unwrap();
    let first = match name {
        "multi_turn_chat" => encode(bench, "<system></s>\n<user>hi</s>\n<assistant>"),
        _ => bench.asked("hi"),
    };
    let one = bench.plain(&first, &sampling(0.0, 0), 9);
    match name {
        "multi_turn_chat" | "draft_then_revise" => {
            let turn = encode(bench, "</s>\n<user>on</s>\n<assistant>");
            let transcript = [first, one.clone(), turn].concat();
            let two = bench.plain(&transcript, &sampling(0.0, 0), 9);
            ([one, two.clone()].concat(), text(&two))
        }
        "batched_generation" | "streamed_generation" => (one.clone(), text(&one)),
        _ => (Vec::new(), text(&one)),
    }
}

fn said(outcome: &workflow::Outcome) -> String {
    match &outcome.value {
        Some(workflow::Value::Text(text)) => text.to_string(),
        other => panic!("{other:?}: {outcome:?}"),
    }
}
