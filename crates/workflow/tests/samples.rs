//! Every sample, in every size of window: what the plain engine says, token for token.

mod support;

use engine::Sampling;
use serde_json::json;
use stream::{End, Stop};
use support::{Bench, EOS, sample, samples};

/// Temperatures, with a seed.
const HEATS: [(f32, u64); 2] = [(0.0, 0), (0.9, 11)];

fn sampling(temperature: f32, seed: u64) -> Sampling {
    Sampling {
        temperature,
        seed,
        ..Sampling::default()
    }
}

#[test]
fn every_sample_compiles_and_says_what_it_takes() {
    let samples = samples();
    assert_eq!(samples.len(), 7);
    for (name, document) in &samples {
        let program = support::compile(document);
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
    let mut bench = Bench::new(0.03);
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
    let mut bench = Bench::new(0.04);
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
fn a_second_turn_is_what_a_fresh_run_over_the_transcript_is() {
    let mut bench = Bench::new(0.05);
    for name in ["multi_turn_chat", "draft_then_revise"] {
        let program = sample(name);
        for batch in 1..=16 {
            for ahead in [false, true] {
                let chat = name == "multi_turn_chat";
                let given = match chat {
                    true => json!({"first": "hi", "second": "and then?", "system": "be kind",
                        "max_tokens": 25, "batch_size": batch, "ahead": ahead}),
                    false => json!({"prompt": "hi", "wish": "and then?",
                        "max_tokens": 25, "batch_size": batch, "ahead": ahead}),
                };
                let mut run = bench.run(&program, &given);
                let (told, outcome) = bench.finish(&mut run);
                assert_eq!(outcome.end, End::Stop(Stop::Eos), "{outcome:?}");
                let encode = |text: &str| bench.model.tokenizer.encode(text, true).unwrap();
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
    let mut bench = Bench::new(0.05);
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
fn a_client_that_takes_what_is_suggested_gets_the_plain_answer() {
    let mut bench = Bench::new(0.05);
    let ids = bench.asked("hi");
    let plain = bench.plain(&ids, &sampling(0.0, 0), 20);
    let given = json!({"prompt": "hi", "max_tokens": 20});
    let mut run = bench.run(&sample("external_sampling"), &given);
    let (_, outcome) = bench.play(&mut run, |id, other| other.push(id).unwrap());
    let text: String = plain.iter().map(|id| char::from(*id as u8)).collect();
    assert_eq!(said(&outcome), text);
}

#[test]
fn a_client_that_chooses_itself_is_followed() {
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
    // Each suggestion is what follows all that was chosen before it.
    for (suggestion, own) in suggested.iter().zip(&chosen) {
        let next = bench.plain(&ids, &sampling(0.0, 0), 1);
        assert_eq!(next, [*suggestion]);
        ids.push(*own);
    }
    let text: String = chosen[..9].iter().map(|id| char::from(*id as u8)).collect();
    assert_eq!(said(&outcome), text);
}

fn said(outcome: &workflow::Outcome) -> String {
    match &outcome.value {
        Some(workflow::Value::Text(text)) => text.to_string(),
        other => panic!("{other:?}: {outcome:?}"),
    }
}
