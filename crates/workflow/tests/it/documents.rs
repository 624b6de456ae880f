//! Invalid documents: each is rejected with the locations of its errors; none panics.
//!
//! Promise (Workflows): a broken document is rejected with the places of all its errors; none panics.

use crate::support::{Bench, Random, object, samples};
use serde_json::{Value as Json, json};
use workflow::{Faults, Ops, Plan, Program, Run};

fn compile(document: &Json) -> Result<Program, Faults> {
    Program::compile(document.to_string().as_bytes(), &Ops::default())
}

fn with_steps(steps: &Json) -> Json {
    json!({
        "name": "n",
        "inputs": [
            {"name": "ids", "type": "u32[]"}, {"name": "n", "type": "u32", "default": 3},
            {"name": "text", "type": "text", "default": "x"}, {"name": "heat", "type": "f32", "default": 1},
        ],
        "steps": steps,
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn wrong_steps_are_told_with_their_places() {
    let cases = [
        (json!([{"op": "dance"}]), "steps[0].op", "unknown"),
        (json!([{"op": "forward"}]), "steps[0].inputs", "input_ids"),
        (
            json!([{"op": "forward", "inputs": {"input_ids": "text"}, "outputs": {"embedding": "v"}}]),
            "steps[0].inputs.input_ids",
            "token list",
        ),
        (
            json!([{"op": "forward", "inputs": {"input_ids": "ids"}, "outputs": {"embedding": "n"}}]),
            "steps[0].outputs.embedding",
            "it is an integer",
        ),
        (
            json!([{"op": "forward", "inputs": {"input_ids": "ids", "mask": "ids"}, "outputs": {}}]),
            "steps[0].outputs",
            "embedding",
        ),
        (
            json!([{"op": "get_item", "input": "ids", "output": "x"}]),
            "steps[0].input",
            "an array",
        ),
        (
            json!([{"op": "append_item", "input": "logits", "output": "x"}]),
            "steps[0].input",
            "nothing has set",
        ),
        (json!([{}]), "steps[0]", "`op`"),
        (json!([3]), "steps[0]", "`op`"),
        (json!([{"op": "break"}]), "steps[0]", "outside"),
        (
            json!([{"op": "if", "condition": "n", "then": [{"op": "continue"}]}]),
            "steps[0].then[0]",
            "outside",
        ),
        (json!([{"op": "prefill"}]), "steps[0].input", "missing"),
        (
            json!([{"op": "prefill", "input": "nope"}]),
            "steps[0].input",
            "nothing has set",
        ),
        (
            json!([{"op": "prefill", "input": "text"}]),
            "steps[0].input",
            "token list",
        ),
        (
            json!([{"op": "prefill", "input": "ids", "mode": "some"}]),
            "steps[0].mode",
            "one of delta",
        ),
        (
            json!([{"op": "prefill", "input": "ids", "wait": true}]),
            "steps[0].wait",
            "unknown",
        ),
        (
            json!([{"op": "prefill", "input": "{ids}"}]),
            "steps[0].input",
            "nothing has set",
        ),
        (
            json!([{"op": "sample", "logits": "logits", "output": "t"}]),
            "steps[0].logits",
            "nothing has set",
        ),
        (
            json!([{"op": "prefill", "input": "ids"},
            {"op": "sample", "logits": "logits", "output": "t", "temperature": "{text}"}]),
            "steps[1].temperature",
            "a text",
        ),
        (
            json!([{"op": "prefill", "input": "ids"},
            {"op": "sample", "logits": "logits", "output": "t", "top_k": 1.5}]),
            "steps[1].top_k",
            "an integer",
        ),
        (
            json!([{"op": "prefill", "input": "ids"},
            {"op": "sample", "logits": "logits", "output": "text"}]),
            "steps[1].output",
            "it is a text",
        ),
        (
            json!([{"op": "compute_int", "expr": "n ** 2", "output": "m"}]),
            "steps[0].expr",
            "operator",
        ),
        (
            json!([{"op": "compute_int", "expr": "heat + 2", "output": "m"}]),
            "steps[0].expr",
            "a float",
        ),
        (
            json!([{"op": "compute_int", "expr": "1", "output": "not a name"}]),
            "steps[0].output",
            "a name is",
        ),
        (
            json!([{"op": "stream_init", "output": "c"}]),
            "steps[0].capacity",
            "missing",
        ),
        (
            json!([{"op": "stream_init", "output": "c", "capacity": 4},
            {"op": "stream_write_u32", "channel": "c", "input": "n"},
            {"op": "stream_read_u32", "channel": "c", "output": "m"}]),
            "steps[2].channel",
            "other end",
        ),
        (
            json!([{"op": "while", "condition": "text", "body": []}]),
            "steps[0].condition",
            "a bool",
        ),
        (
            json!([{"op": "while", "condition": true, "body": {}}]),
            "steps[0].body",
            "list of steps",
        ),
        (
            json!([{"op": "while", "condition": true, "phases": [{"op": "dance"}]}]),
            "steps[0].phases[0].op",
            "unknown",
        ),
        (
            json!([{"op": "while_batched", "condition": true, "token_var": "t", "output_tokens": "o", "body": [
            {"op": "while_batched", "condition": true, "token_var": "t", "output_tokens": "p", "body": []}]}]),
            "steps[0].body[0]",
            "another while_batched",
        ),
    ];
    for (steps, path, words) in cases {
        let faults = compile(&with_steps(&steps)).expect_err("refused");
        let found = faults.0.iter().find(|fault| fault.path == path);
        let found = found.unwrap_or_else(|| panic!("nothing at {path}: {faults}"));
        assert!(found.what.contains(words), "{found}");
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let faults = compile(&json!({
        "name": "", "colour": 1,
        "inputs": [{"name": "a", "type": "f64"}, {"name": "b", "type": "u32", "default": 9, "max": 5}],
        "steps": [{"op": "dance"}, {"op": "prefill", "input": "x"}],
        "return_value": "y",
    }));
    let faults = faults.expect_err("refused");
    let places: Vec<&str> = faults.0.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(
        places,
        [
            "colour",
            "name",
            "inputs[0].type",
            "inputs[1].default",
            "steps[0].op",
            "steps[1].input",
            "return_value"
        ]
    );
}

#[test]
fn invalid_document_is_rejected() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(2 << 20));
    for text in ["", "{", "[]", "null", "{\"steps\": 1}", &deep, &large] {
        let faults = Program::compile(text.as_bytes(), &Ops::default()).expect_err("refused");
        assert!(!faults.0.is_empty());
    }
    let mut steps = json!([]);
    for _ in 0..40 {
        steps = json!([{"op": "if", "condition": "n", "then": steps}]);
    }
    let faults = compile(&with_steps(&steps)).expect_err("too deep");
    assert!(faults.to_string().contains("too deep"), "{faults}");
    let many = Json::Array(vec![json!({"op": "capture_begin"}); 10_001]);
    let faults = compile(&with_steps(&many)).expect_err("too many");
    assert!(faults.to_string().contains("too many"), "{faults}");
}

#[test]
fn inputs_are_coerced_bounded_and_all_asked_for() {
    let bench = Bench::new(0.0);
    let program = crate::support::compile(&json!({
        "name": "n",
        "inputs": [
            {"name": "need", "type": "text"},
            {"name": "heat", "type": "f32", "default": 1, "min": 0, "max": 2},
            {"name": "word", "type": "text", "default": "a", "options": ["a", "b"]},
            {"name": "eos_token", "type": "u32"},
        ],
        "steps": [],
    }));
    let bind = |given: Json| {
        let model = |_: Option<&str>| Some(std::sync::Arc::clone(&bench.model));
        let run = Run::new(&program, &object(&given), model, Plan::default(), bench.now);
        run.map_err(|faults| faults.to_string())
    };
    let run = bind(json!({"need": "x", "heat": 2})).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(run.variable("heat"), Some(&workflow::Value::Float(2.0)));
    assert_eq!(run.variable("eos_token"), Some(&workflow::Value::Int(256)));
    let wrong = json!({"heat": 3, "word": "c", "eos_token": -1, "else": 1});
    let why = bind(wrong).err().expect("refused");
    for words in [
        "else: is no input",
        "need: is missing",
        "heat: is 3; at most 2",
        "word: must be one of",
        "eos_token: must be u32",
    ] {
        assert!(why.contains(words), "{words} not in {why}");
    }
    assert_eq!(program.read("heat", "0.5"), json!(0.5));
    assert_eq!(program.read("need", "0.5"), json!("0.5"));
}

/// A program that reads a conversation, and lists of another one in steps of their own.
fn reader_of_turns() -> Json {
    json!({
        "name": "n",
        "return_value": "text",
        "inputs": [{"name": "turns", "type": "array"}, {"name": "nested", "type": "array", "default": []}],
        "steps": [
            {"op": "format_chat", "input": "turns", "output": "text"},
            {"op": "compute_int", "expr": "nested.len", "output": "count"},
            {"op": "if", "condition": "count", "then": [
                {"op": "get_item", "input": "nested", "type": "array", "output": "later"},
                {"op": "format_chat", "input": "later", "output": "text"},
            ]},
        ],
    })
}

/// Promise (Workflows): a workflow reads text only; what else is in a message is an error that names it, before a token is computed.
#[test]
fn conversation_with_more_than_text_is_refused() {
    let mut bench = Bench::new(0.0);
    let program = crate::support::compile(&reader_of_turns());
    let turn = |content: Json| json!([{"role": "user", "content": content}]);
    let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
    let cases = [
        (turn(json!([image, "hi"])), "turns[0].content[0]"),
        (
            turn(json!(["hi", {"type": "image"}])),
            "turns[0].content[1]",
        ),
        (
            turn(json!([{"type": "text", "text": "hi", "image": "QUJD"}])),
            "turns[0].content[0].image",
        ),
        (turn(json!([{"text": "hi"}])), "turns[0].content[0]"),
        (turn(json!([3])), "turns[0].content[0]"),
        (turn(json!({"type": "image"})), "turns[0].content"),
        (
            json!([{"role": "user", "content": "hi", "images": ["QUJD"]}]),
            "turns[0].images",
        ),
        (
            json!([{"role": "assistant", "content": "hi", "audio": {"id": "a"}}]),
            "turns[0].audio",
        ),
        (
            json!([{"role": "user", "content": "hi", "experimental_attachments": [{"url": "data:,"}]}]),
            "turns[0].experimental_attachments",
        ),
        (json!(["hi"]), "turns[0]"),
    ];
    for (turns, path) in cases {
        let model = |_: Option<&str>| Some(std::sync::Arc::clone(&bench.model));
        let given = object(&json!({"turns": turns}));
        let faults = Run::new(&program, &given, model, Plan::default(), bench.now);
        let faults = faults.err().unwrap_or_else(|| panic!("{path} is taken"));
        assert_eq!(faults.0[0].path, path, "{faults}");
        // A list that the program takes from another one is read where its step runs.
        let given = json!({"turns": [], "nested": [turns]});
        let (_, outcome) = bench.finish(&mut bench.run(&program, &given));
        let fault = outcome.fault.expect("a fault");
        let found = format!("{}: ", path.replacen("turns", "later", 1));
        assert!(fault.what.starts_with(&found), "{fault}");
    }
    let parts = json!([{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]);
    let turns = json!([
        {"role": "user", "content": parts, "images": []},
        {"role": "assistant", "content": "d", "audio": null},
    ]);
    let (_, outcome) = bench.finish(&mut bench.run(&program, &json!({"turns": turns})));
    let text = outcome.value.map(|value| value.to_json());
    let want = "<user>a\nb\nc</s>\n<assistant>d</s>\n<assistant>";
    assert_eq!(text, Some(json!(want)));
}

/// Replaces or removes each value of each sample.
#[test]
fn broken_samples_are_refused_or_run_and_none_panics() {
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("{n}"),
        json!("{}"),
        json!("token"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"op": "break"}),
        json!([{"op": "while", "condition": true}]),
    ];
    let (mut refused, mut random) = (0, Random(7));
    for (name, document) in samples() {
        let mut places = Vec::new();
        walk(&document, String::new(), &mut places);
        for place in places {
            for other in &others {
                let mut broken = document.clone();
                *broken.pointer_mut(&place).expect("is there") = other.clone();
                refused += usize::from(tell(&name, &place, &broken));
            }
            let mut broken = document.clone();
            if let Some(map) = broken.pointer_mut(&place).and_then(Json::as_object_mut) {
                map.insert("colour".to_owned(), json!(1));
                let kwargs = place.contains("template_kwargs");
                assert!(kwargs || compile(&broken).is_err(), "{name}{place}");
            }
        }
        // Cut and changed bytes.
        let text = document.to_string().into_bytes();
        for _ in 0..300 {
            let mut bytes = text.clone();
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes.truncate(at),
                1 => bytes[at] = random.below(256) as u8,
                _ => drop(bytes.splice(at..at, b"{[\"".iter().copied())),
            }
            if let Err(faults) = Program::compile(&bytes, &Ops::default()) {
                assert!(!faults.0.is_empty() && faults.0.iter().all(|f| !f.path.is_empty()));
            }
        }
    }
    assert!(refused > 3000, "only {refused} were refused");
}

/// Whether the document is rejected; then with locations and messages.
fn tell(name: &str, place: &str, broken: &Json) -> bool {
    let Err(faults) = compile(broken) else {
        return false;
    };
    let told = faults
        .0
        .iter()
        .all(|f| !f.path.is_empty() && !f.what.is_empty());
    assert!(told && !faults.0.is_empty(), "{name}{place}");
    true
}

fn walk(json: &Json, at: String, places: &mut Vec<String>) {
    match json {
        Json::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{i}"), places);
            }
        }
        Json::Object(map) => {
            for (key, item) in map {
                walk(item, format!("{at}/{key}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}
