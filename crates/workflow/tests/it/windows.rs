//! Batched loops: an end, a stop or a failure at any token leaves the state of the last emitted token.
//!
//! Promise (Workflows): an end at every position of a window is rolled back, and the next turn is a fresh run over
//! the transcript; stop, failure, break and return cut where a plain loop would.

use crate::support::{Bench, compile};
use engine::SamplingParams;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use stream::{End, FailCode, Stop};
use workflow::{Call, CustomOp, Event, Field, Kind, Ops, Plan, Program, Role, Run, Value};

const PROMPT: [u32; 3] = [5, 6, 7];

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    }
}

/// A loop over `ids` with these steps before the end of its body, and those after it.
fn looped(body: &Json, after: &Json) -> Json {
    let mut steps = vec![json!({"op": "sample", "logits": "logits", "output": "token"})];
    steps.extend(body.as_array().expect("steps").iter().cloned());
    steps.push(json!({"op": "compute_int", "expr": "rounds + 1", "output": "rounds"}));
    let mut all = vec![
        json!({"op": "prefill", "input": "ids"}),
        json!({"op": "while_batched", "condition": true, "max_iterations": 20, "batch_size": "{batch}",
            "stream_async_poll": "{ahead}", "token_var": "token", "output_tokens": "out",
            "eos_token": "{eos_token}", "body": steps}),
    ];
    all.extend(after.as_array().expect("steps").iter().cloned());
    json!({
        "name": "looped",
        "inputs": [
            {"name": "ids", "type": "u32[]"},
            {"name": "batch", "type": "u32"},
            {"name": "ahead", "type": "bool"},
            {"name": "eos_token", "type": "u32"},
            {"name": "rounds", "type": "u32", "default": 0},
            {"name": "more", "type": "u32[]", "default": [9, 9]},
        ],
        "steps": all,
    })
}

fn given(batch: usize, ahead: bool, eos: u32) -> Json {
    json!({"ids": PROMPT, "batch": batch, "ahead": ahead, "eos_token": eos})
}

/// Every size of window, with and without asynchronous polling.
fn windows() -> impl Iterator<Item = (usize, bool)> {
    (1..=16).flat_map(|batch| [(batch, false), (batch, true)])
}

fn assert_at(run: &Run, told: &[u32], rounds: usize) {
    assert_eq!(run.sessions()[0].ids(), [&PROMPT, told].concat());
    assert_eq!(run.variable("out"), Some(&Value::tokens(told.to_vec())));
    assert_eq!(run.variable("rounds"), Some(&Value::Int(rounds as i64)));
}

#[test]
fn end_at_each_position_is_trimmed_and_the_next_turn_is_fresh() {
    let mut bench = Bench::new(0.0);
    let forward = json!([{"op": "graph_forward", "token_var": "token"}]);
    let next_turn = json!([
        {"op": "prefill", "input": "more"},
        {"op": "sample", "logits": "logits", "output": "second"},
    ]);
    let program = compile(&looped(&forward, &next_turn));
    let plain = bench.plain(&PROMPT, &greedy(), 20);
    for (at, &eos) in plain.iter().enumerate() {
        if plain[..at].contains(&eos) {
            continue; // ends earlier
        }
        let fresh = [&PROMPT, &plain[..at], &[9, 9]].concat();
        let second = bench.plain(&fresh, &greedy(), 1)[0];
        for (batch, ahead) in windows() {
            let mut run = bench.run(&program, &given(batch, ahead, eos));
            let (told, outcome) = bench.finish(&mut run);
            assert_eq!(told, plain[..at], "batch {batch}, ahead {ahead}");
            assert_eq!(outcome.end, End::Stop(Stop::Eos));
            assert_eq!(run.sessions()[0].ids(), fresh);
            assert_eq!(run.variable("second"), Some(&Value::Int(i64::from(second))));
            assert_eq!(run.variable("rounds"), Some(&Value::Int(at as i64)));
        }
    }
    bench.assert_empty();
}

#[test]
fn stop_keeps_the_state_of_the_last_emitted_token() {
    let mut bench = Bench::new(0.0);
    let forward = json!([{"op": "graph_forward", "token_var": "token"}]);
    let program = compile(&looped(&forward, &json!([])));
    let plain = bench.plain(&PROMPT, &greedy(), 20);
    for (batch, ahead) in windows() {
        for wanted in 0..9 {
            let mut run = bench.run(&program, &given(batch, ahead, 999));
            let mut told = Vec::new();
            while told.len() < wanted {
                match bench.next(&mut run) {
                    Event::Token { id, .. } => told.push(id),
                    _ => panic!("it ended"),
                }
            }
            if wanted == 0 {
                bench.step();
            }
            run.stop();
            assert_eq!(told, plain[..wanted]);
            if wanted > 0 {
                assert_at(&run, &told, wanted);
            }
            assert!(matches!(bench.next(&mut run), Event::Ended(o) if o.end == End::Cancelled));
            bench.assert_empty();
        }
    }
}

/// An op that fails when its input reaches its bound.
struct FailAt;

impl CustomOp for FailAt {
    fn fields(&self) -> &[Field] {
        &[
            Field {
                name: "input",
                role: Role::Input,
                kind: Kind::Int,
            },
            Field {
                name: "at",
                role: Role::Parameter,
                kind: Kind::Int,
            },
        ]
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), String> {
        if call.get("input") == call.get("at") {
            Err("as asked for".to_owned())
        } else {
            Ok(())
        }
    }
}

#[test]
fn failure_emits_and_keeps_complete_iterations() {
    let mut bench = Bench::new(0.0);
    let mut ops = Ops::default();
    ops.register_op("fail_at", FailAt).unwrap();
    ops.register_op("fail_at", FailAt).expect_err("taken");
    ops.register_op("sample", FailAt)
        .expect_err("the language's own");
    let plain = bench.plain(&PROMPT, &greedy(), 20);
    for bound in [0, 1, 5, 7] {
        let body = json!([
            {"op": "graph_forward", "token_var": "token"},
            {"op": "fail_at", "input": "rounds", "at": bound},
        ]);
        let document = looped(&body, &json!([])).to_string();
        let program = Arc::new(Program::compile(document.as_bytes(), &ops).unwrap());
        for (batch, ahead) in windows() {
            let mut run = bench.run(&program, &given(batch, ahead, 999));
            let (told, outcome) = bench.finish(&mut run);
            assert_eq!(told, plain[..bound], "batch {batch}, ahead {ahead}");
            assert_eq!(outcome.end, End::Failed(FailCode::Inference));
            let fault = outcome.fault.expect("words");
            assert_eq!(fault.path, "steps[1].body[2]");
            assert_eq!(fault.what, "as asked for");
            assert_at(&run, &told, bound);
        }
    }
    bench.assert_empty();
}

#[test]
fn breaks_returns_and_conditions_cut_where_a_plain_loop_would() {
    let mut bench = Bench::new(0.0);
    let plain = bench.plain(&PROMPT, &greedy(), 20);
    let eos = plain[12];
    let first_eos = plain.iter().position(|id| *id == eos).expect("is there");
    for at in [0, 3, 6, 18] {
        let leaves = ["break", "return"];
        for leave in leaves {
            let body = json!([
                {"op": "compute_int", "expr": format!("rounds >= {at}"), "output": "enough"},
                {"op": "if", "condition": "enough", "then": [{"op": leave}]},
                {"op": "graph_forward", "token_var": "token"},
            ]);
            let after = json!([{"op": "compute_int", "expr": "1", "output": "behind"}]);
            let program = compile(&looped(&body, &after));
            for (batch, ahead) in windows() {
                let mut run = bench.run(&program, &given(batch, ahead, eos));
                let (told, outcome) = bench.finish(&mut run);
                let until = at.min(first_eos);
                assert_eq!(
                    told,
                    plain[..until],
                    "{leave} at {at}, batch {batch}, ahead {ahead}"
                );
                assert_eq!(outcome.end, End::Stop(Stop::Eos));
                // Where the end came first, no iteration was left early.
                let behind = leave == "break" || first_eos < at;
                assert_eq!(run.variable("behind").is_some(), behind);
                assert_eq!(run.sessions()[0].ids(), [&PROMPT, &told[..]].concat());
            }
        }
    }
}

/// A loop over ids from outside, and two reads after it.
fn obeying() -> Json {
    json!({
        "name": "told",
        "inputs": [
            {"name": "batch", "type": "u32"},
            {"name": "ahead", "type": "bool"},
            {"name": "ids", "type": "u32[]"},
        ],
        "steps": [
            {"op": "prefill", "input": "ids"},
            {"op": "stream_init", "capacity": 64, "output": "orders"},
            {"op": "while_batched", "condition": true, "batch_size": "{batch}", "stream_async_poll": "{ahead}",
             "token_var": "token", "output_tokens": "out", "body": [
                {"op": "stream_read_u32", "channel": "orders", "wait": true, "output": "token"},
                {"op": "graph_forward", "token_var": "token"},
            ]},
            {"op": "stream_read_u32", "channel": "orders", "wait": true, "output": "after"},
            {"op": "stream_read_u32", "channel": "orders", "output": "nothing"},
        ],
    })
}

#[test]
fn ids_read_ahead_are_read_again_after_a_roll_back() {
    let mut bench = Bench::new(0.0);
    let program = compile(&obeying());
    for (batch, ahead) in windows() {
        for known in [true, false] {
            let given = json!({"ids": PROMPT, "batch": batch, "ahead": ahead});
            let mut run = bench.run(&program, &given);
            let Event::Opened {
                channel,
                mut writer,
            } = bench.next(&mut run)
            else {
                panic!("no channel");
            };
            assert_eq!(&*channel, "orders");
            writer
                .push_slice(&[10, 11, 12, crate::support::EOS])
                .unwrap();
            if !known {
                // An id that was read counts without a later one.
                let told: Vec<u32> = (0..3).map(|_| bench.token(&mut run)).collect();
                assert_eq!(told, [10, 11, 12]);
                assert!(bench.is_stuck(&mut run), "batch {batch}");
            }
            writer.push(13).unwrap();
            let (_, outcome) = bench.finish(&mut run);
            assert_eq!(outcome.end, End::Stop(Stop::Eos), "{outcome:?}");
            let out = Value::tokens(vec![10, 11, 12]);
            assert_eq!(run.variable("out"), Some(&out));
            let after = run.variable("after");
            assert_eq!(after, Some(&Value::Int(13)), "batch {batch}, ahead {ahead}");
            assert_eq!(run.variable("nothing"), Some(&Value::Int(-1)));
            let ids = [&PROMPT[..], &[10, 11, 12]].concat();
            assert_eq!(run.sessions()[0].ids(), ids);
        }
    }
}

#[test]
fn run_beyond_context_or_bounds_ends_with_length() {
    let mut bench = Bench::new(0.0);
    let document = json!({
        "name": "endless",
        "inputs": [{"name": "batch", "type": "u32"}, {"name": "ids", "type": "u32[]"}],
        "steps": [
            {"op": "prefill", "input": "ids"},
            {"op": "while_batched", "condition": true, "batch_size": "{batch}", "token_var": "token",
             "output_tokens": "out", "body": [
                {"op": "sample", "logits": "logits", "output": "token"},
                {"op": "graph_forward", "token_var": "token"},
            ]},
        ],
    });
    let program = compile(&document);
    let plain = bench.plain(&PROMPT, &greedy(), 509);
    for batch in [1, 3, 16] {
        let given = json!({"ids": PROMPT, "batch": batch});
        let mut run = bench.run(&program, &given);
        let (told, outcome) = bench.finish(&mut run);
        assert_eq!(outcome.end, End::Length, "{outcome:?}");
        assert_eq!(told, plain, "batch {batch}");

        let mut plan = Plan::default();
        plan.limits.tokens_max = 21;
        let mut run = bench.run_with(&program, &given, plan);
        let (told, outcome) = bench.finish(&mut run);
        assert_eq!(
            (told.len(), outcome.end),
            (21, End::Stop(Stop::Eos)),
            "the loop says none"
        );

        plan.limits.tokens_max = 4096;
        plan.limits.ops_max = 60;
        let mut run = bench.run_with(&program, &given, plan);
        let (told, outcome) = bench.finish(&mut run);
        assert_eq!(outcome.end, End::Failed(FailCode::Inference));
        assert_eq!(told, plain[..told.len()]);
        drop(run);
        bench.assert_empty();
    }
}
