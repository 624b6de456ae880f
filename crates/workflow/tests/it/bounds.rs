//! Bounds of a run's values, and the work that it does between two rests.
//!
//! Promise (Workflows): everything that grows in a run has a named limit, reported with its step's path; the memory
//! of a run does not depend on its windows.
//! Also held by `workflow/tests/it/samples.rs`.
//!
//! Promise (Workflows): a run executes a bounded number of instructions between two yields; long texts are processed
//! by another thread, and other requests have their turn.
//! Also held by `gateway/src/workflows/run_driver_tests.rs`.

use crate::support::{Bench, compile, object};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use stream::{End, FailCode, Stop};
use workflow::{
    Call, CustomOp, Event, Field, Kind, Observer, Ops, Plan, Program, Role, Run, UNITS_PER_POLL,
    Value,
};

/// An op that appends a text, or a list, to itself.
struct Twice(Kind);

impl CustomOp for Twice {
    fn fields(&self) -> &[Field] {
        match self.0 {
            Kind::Text => &[
                Field {
                    name: "input",
                    role: Role::Input,
                    kind: Kind::Text,
                },
                Field {
                    name: "output",
                    role: Role::Output,
                    kind: Kind::Text,
                },
            ],
            _ => &[
                Field {
                    name: "input",
                    role: Role::Input,
                    kind: Kind::Array,
                },
                Field {
                    name: "output",
                    role: Role::Output,
                    kind: Kind::Array,
                },
            ],
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), String> {
        let doubled = match call.get("input") {
            Some(Value::Text(text)) => Value::text(&text.repeat(2)),
            Some(Value::Array(items)) => Value::Array(Arc::new([&items[..], &items[..]].concat())),
            _ => return Err("nothing to double".to_owned()),
        };
        call.set("output", doubled);
        Ok(())
    }
}

fn ops() -> Ops {
    let mut ops = Ops::default();
    ops.register_op("twice", Twice(Kind::Text)).expect("new");
    ops.register_op("twice_list", Twice(Kind::Array))
        .expect("new");
    ops
}

fn compiled(document: &Json) -> Arc<Program> {
    let program = Program::compile(document.to_string().as_bytes(), &ops());
    Arc::new(program.unwrap_or_else(|faults| panic!("{faults}")))
}

/// A program of these steps, with a variable of each kind.
fn document(steps: &Json) -> Json {
    json!({
        "name": "n",
        "inputs": [
            {"name": "ids", "type": "u32[]", "default": [97, 98, 99]},
            {"name": "text", "type": "text", "default": "abc"},
            {"name": "list", "type": "array", "default": [{"role": "user", "content": "hi"}]},
            {"name": "n", "type": "u32", "default": 97},
        ],
        "steps": steps,
    })
}

/// Steps of an endless loop.
fn looped(body: &Json) -> Json {
    document(
        &json!([{"op": "while", "condition": true, "max_iterations": 1_000_000, "body": body}]),
    )
}

/// A run with this bound of its values, in bytes.
fn plan(value_bytes_max: usize) -> Plan {
    let mut plan = Plan::default();
    plan.limits.value_bytes_max = value_bytes_max;
    plan
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_way_to_grow_comes_to_the_bound_and_is_told_by_it() {
    let cases = [
        (
            "tokenize after a base",
            looped(&json!([
                {"op": "tokenize", "input": "text", "base_tokens": "ids", "output": "ids"},
            ])),
            "steps[0].body[0]",
        ),
        (
            "tokenize what was made text",
            looped(&json!([
                {"op": "detokenize", "input": "ids", "output": "text"},
                {"op": "tokenize", "input": "text", "base_tokens": "ids", "output": "ids"},
            ])),
            "steps[0].body[1]",
        ),
        (
            "append_token",
            looped(&json!([{"op": "append_token", "input": "n", "output": "ids"}])),
            "steps[0].body[0]",
        ),
        (
            "format_chat",
            looped(&json!([{"op": "format_chat", "input": "text", "output": "text"}])),
            "steps[0].body[0]",
        ),
        (
            "a conversation that goes on",
            looped(&json!([
                {"op": "format_chat", "input": "text", "mode": "delta", "output": "turn"},
            ])),
            "steps[0].body[0]",
        ),
        (
            "an added op's text",
            looped(&json!([{"op": "twice", "input": "text", "output": "text"}])),
            "steps[0].body[0]",
        ),
        (
            "an added op's list",
            looped(&json!([{"op": "twice_list", "input": "list", "output": "list"}])),
            "steps[0].body[0]",
        ),
        (
            "append_item",
            looped(&json!([{"op": "append_item", "input": "text", "output": "list"}])),
            "steps[0].body[0]",
        ),
        (
            "a list into itself",
            looped(&json!([{"op": "append_item", "input": "list", "output": "list"}])),
            "steps[0].body[0]",
        ),
        (
            "vectors",
            looped(&json!([
                {"op": "forward", "inputs": {"input_ids": "ids"}, "outputs": {"embedding": "vector"}},
                {"op": "append_item", "input": "vector", "output": "list"},
            ])),
            "steps[0].body[1]",
        ),
        (
            "a transcript",
            looped(&json!([{"op": "prefill", "input": "ids"}])),
            "steps[0].body[0]",
        ),
        (
            "forwarded tokens",
            looped(&json!([{"op": "graph_forward", "token_var": "n"}])),
            "steps[0].body[0]",
        ),
        (
            "what a window keeps",
            document(&json!([
                {"op": "while_batched", "condition": true, "batch_size": 4000, "token_var": "n",
                 "output_tokens": "out", "body": [
                    {"op": "append_token", "input": "n", "output": "ids"},
                ]},
            ])),
            "steps[0]",
        ),
        (
            "what a window keeps of nothing but itself",
            document(&json!([
                {"op": "while_batched", "condition": true, "batch_size": 4000, "token_var": "n",
                 "output_tokens": "out", "body": [{"op": "capture_begin"}]},
            ])),
            "steps[0]",
        ),
    ];
    for (label, document, path) in cases {
        let mut bench = Bench::new(0.0);
        let most = if path.contains("body") { 1500 } else { 100_000 };
        let mut run = bench.run_with(&compiled(&document), &json!({}), plan(most));
        let (_, outcome) = bench.finish(&mut run);
        assert_eq!(
            outcome.end,
            End::Failed(FailCode::Inference),
            "{label}: {outcome:?}"
        );
        let fault = outcome.fault.expect("words");
        assert!(fault.path.starts_with(path), "{label}: {fault}");
        assert!(fault.what.contains("value_bytes_max"), "{label}: {fault}");
        assert!(run.value_bytes() <= most, "{label}: {}", run.value_bytes());
    }
}

#[test]
fn inputs_count_towards_the_memory_bound() {
    let bench = Bench::new(0.0);
    let program = compile(&document(&json!([])));
    let model = |_: Option<&str>| Some(Arc::clone(&bench.model));
    for given in [
        json!({"text": "x".repeat(5000)}),
        json!({"ids": vec![1; 2000]}),
        json!({"list": vec![json!("word"); 200]}),
    ] {
        let faults = Run::new(&program, &object(&given), model, plan(4000), bench.now);
        let faults = faults.err().expect("too much");
        let name = given.as_object().unwrap().keys().next().unwrap();
        assert_eq!(&faults.0[0].path, name);
        assert!(faults.to_string().contains("value_bytes_max"), "{faults}");
    }
}

#[test]
fn returned_values_and_ids_read_ahead_are_bounded() {
    let mut bench = Bench::new(0.0);
    let mut limited = Plan::default();
    limited.limits.returned_bytes_max = 10;
    let steps = json!([{"op": "return", "value": "text"}]);
    let mut run = bench.run_with(
        &compile(&document(&steps)),
        &json!({"text": "0123456789"}),
        limited,
    );
    assert_eq!(bench.finish(&mut run).1.end, End::Stop(Stop::Eos));
    let mut run = bench.run_with(
        &compile(&document(&steps)),
        &json!({"text": "0123456789a"}),
        limited,
    );
    let fault = bench.finish(&mut run).1.fault.expect("too long");
    assert!(
        fault.path == "steps[0]" && fault.what.contains("returned_bytes_max"),
        "{fault}"
    );

    limited.limits.channel_items_max = 8;
    let read = json!({"op": "stream_read_u32", "channel": "orders", "wait": true, "output": "n"});
    let program = compile(&document(&json!([
        {"op": "stream_init", "capacity": 8, "output": "orders"},
        {"op": "while_batched", "condition": true, "batch_size": 2, "token_var": "n", "output_tokens": "out",
         "body": [{"op": "while", "condition": true, "max_iterations": 10, "body": [read]}]},
    ])));
    let mut run = bench.run_with(&program, &json!({}), limited);
    let Event::Opened { mut writer, .. } = bench.next(&mut run) else {
        panic!("no channel");
    };
    writer.push_slice(&[1; 8]).expect("room");
    assert!(bench.is_stuck(&mut run), "it reads all");
    writer.push_slice(&[2; 4]).expect("room");
    let fault = bench.finish(&mut run).1.fault.expect("too many");
    assert!(fault.what.contains("channel_items_max"), "{fault}");
}

/// An observer that counts instructions.
struct Count(Arc<AtomicU64>);

impl Observer for Count {
    fn op(&mut self, _: &str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn drain(&mut self, _: &str, _: usize) {}
}

#[test]
fn million_instructions_are_split_into_bounded_polls() {
    let bench = Bench::new(0.0);
    let spin = json!([{"op": "compute_int", "expr": "n + 1", "output": "n"}]);
    let tell = json!([
        {"op": "stream_init", "capacity": 1, "output": "out"},
        {"op": "while", "condition": true, "max_iterations": 1_000_000, "body": [
            {"op": "stream_write_u32", "channel": "out", "input": "n"},
        ]},
    ]);
    for (document, told_most) in [(looped(&spin), 0), (document(&tell), 4096)] {
        let mut run = bench.run(&compile(&document), &json!({}));
        let count = Arc::new(AtomicU64::new(0));
        run.observe(Box::new(Count(Arc::clone(&count))));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut since, mut told, mut turns) = (0, 0, 0);
        let end = loop {
            let done = count.load(Ordering::Relaxed);
            assert!(
                done - since <= UNITS_PER_POLL,
                "{} in one piece",
                done - since
            );
            match run.poll(&mut cx, bench.now) {
                Poll::Ready(Some(Event::Rest)) => {
                    (since, turns) = (count.load(Ordering::Relaxed), turns + 1);
                }
                Poll::Ready(Some(Event::Token { .. })) => told += 1,
                Poll::Ready(Some(Event::Ended(outcome))) => break outcome.end,
                Poll::Ready(_) | Poll::Pending => panic!("something else"),
            }
        };
        assert_eq!(told, told_most);
        let all = count.load(Ordering::Relaxed) + told;
        assert!(turns >= all / UNITS_PER_POLL, "{turns} turns for {all}");
        match told {
            0 => assert_eq!(end, End::Failed(FailCode::Inference)),
            _ => assert_eq!(end, End::Length),
        }
    }
}

#[test]
fn long_text_is_not_processed_in_a_poll() {
    let bench = Bench::new(0.0);
    let steps = json!([
        {"op": "tokenize", "input": "text", "mode": "continue", "output": "many"},
        {"op": "detokenize", "input": "many", "output": "again"},
        {"op": "twice", "input": "text", "output": "two"},
        {"op": "compute_int", "expr": "text.len + 0", "output": "n"},
    ]);
    let text = "x".repeat(1 << 20);
    let mut limits = Plan::default();
    limits.limits.value_bytes_max = 16 << 20;
    let mut run = bench.run_with(&compiled(&document(&steps)), &json!({"text": text}), limits);
    run.labour(); // no effect before the heavy step
    let mut cx = Context::from_waker(Waker::noop());
    for (before, after) in [("many", "again"), ("again", "two")] {
        assert!(run.variable(before).is_some() && run.variable(after).is_none());
        for _ in 0..3 {
            let event = run.poll(&mut cx, bench.now);
            assert!(matches!(event, Poll::Ready(Some(Event::Heavy))), "{after}");
        }
        run.labour();
        assert!(run.variable(after).is_some(), "{after}");
    }
    run.labour(); // no effect after the heavy step
    assert_eq!(run.variable("n"), Some(&Value::Int(97)));
    let Poll::Ready(Some(Event::Ended(outcome))) = run.poll(&mut cx, bench.now) else {
        panic!("no end");
    };
    assert_eq!(outcome.end, End::Stop(Stop::Eos), "{outcome:?}");
    assert_eq!(run.variable("n"), Some(&Value::Int(1 << 20)));
}

#[test]
fn long_texts_are_more_work_than_short_ones() {
    let mut bench = Bench::new(0.0);
    let program = compile(&looped(&json!([
        {"op": "tokenize", "input": "text", "mode": "continue", "output": "ids"},
    ])));
    let mut plan = Plan::default();
    plan.limits.ops_max = 10_000;
    let count = Arc::new(AtomicU64::new(0));
    let mut counted = |text: String| {
        count.store(0, Ordering::Relaxed);
        let mut run = bench.run_with(&program, &json!({"text": text}), plan);
        run.observe(Box::new(Count(Arc::clone(&count))));
        let (_, outcome) = bench.finish(&mut run);
        let fault = outcome.fault.expect("it goes round for ever");
        assert!(fault.what.contains("ops_max"), "{fault}");
        count.load(Ordering::Relaxed)
    };
    let (short, long) = (counted("x".to_owned()), counted("x".repeat(6400)));
    assert!(short >= 10_000 && long < 350, "{short} and {long}");
}
