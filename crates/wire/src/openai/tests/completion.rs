//! Completion requests: valid and invalid values of every field.

use super::{bad_fields, with};
use crate::openai::completion_request;
use crate::request_parser::tests::parsed_request;
use generate::error::ApiError;
use generate::infill_prompt::InfillPrompt;
use generate::request::{GenerateRequest, Prompt};
use serde_json::{Value, json};

fn completion(body: &Value) -> Result<GenerateRequest, ApiError> {
    parsed_request(completion_request::parse, body.to_string().as_bytes())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of requests")]
fn invalid_completion_field_is_named() {
    let rows = [
        ("prompt missing", json!({"prompt": null}), "prompt"),
        ("prompt type", json!({"prompt": {}}), "prompt"),
        ("prompt empty list", json!({"prompt": []}), "prompt"),
        ("prompts", json!({"prompt": vec!["x"; 17]}), "prompt"),
        ("prompt id range", json!({"prompt": [1, 300]}), "prompt[1]"),
        ("prompt id type", json!({"prompt": [1, "x"]}), "prompt[1]"),
        (
            "prompt member type",
            json!({"prompt": ["x", 1]}),
            "prompt[1]",
        ),
        (
            "prompt member empty",
            json!({"prompt": [[1], []]}),
            "prompt[1]",
        ),
        (
            "prompts times n",
            json!({"prompt": ["a", "b"], "n": 9}),
            "n",
        ),
        ("suffix", json!({"suffix": 7}), "suffix"),
        (
            "suffix of ids",
            json!({"prompt": [1, 2], "suffix": "end"}),
            "suffix",
        ),
        (
            "echo of a gap",
            json!({"suffix": "end", "echo": true}),
            "echo",
        ),
        ("best of too few", json!({"best_of": 1, "n": 2}), "best_of"),
        ("best_of range", json!({"best_of": 17}), "best_of"),
        (
            "best_of streamed",
            json!({"best_of": 2, "stream": true}),
            "best_of",
        ),
        (
            "prompts times best_of",
            json!({"prompt": ["a", "b"], "best_of": 9}),
            "best_of",
        ),
        ("logprobs type", json!({"logprobs": true}), "logprobs"),
        ("logprobs range", json!({"logprobs": 21}), "logprobs"),
        (
            "penalty with scores",
            json!({"logprobs": 1, "echo": true, "presence_penalty": 1}),
            "presence_penalty",
        ),
        (
            "nothing, without echo",
            json!({"max_tokens": 0}),
            "max_tokens",
        ),
        ("echo type", json!({"echo": 1}), "echo"),
        (
            "min_tokens beyond the default of max_tokens",
            json!({"min_tokens": 17}),
            "min_tokens",
        ),
    ];
    for (label, over, want) in rows {
        let error = completion(&with(json!({"prompt": "hi"}), &over)).expect_err(label);
        assert_eq!(bad_fields(&error), [want], "{label}");
    }
}

#[test]
fn prompt_is_parsed_in_four_formats() {
    let ids = |ids: &[u32]| Prompt::Ids(ids.to_vec());
    let text = |text: &str| Prompt::Text(text.to_owned());
    let rows = [
        ("string", json!("hi"), vec![text("hi")]),
        ("strings", json!(["a", "b"]), vec![text("a"), text("b")]),
        ("ids", json!([1, 2]), vec![ids(&[1, 2])]),
        (
            "lists of ids",
            json!([[1], [2, 3]]),
            vec![ids(&[1]), ids(&[2, 3])],
        ),
    ];
    for (label, prompt, want) in rows {
        let request = completion(&json!({ "prompt": prompt, "best_of": 1, "suffix": "" }))
            .unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(request.prompts, want, "{label}");
        assert_eq!(request.params.max_tokens, Some(16), "{label}");
    }
}

#[test]
fn best_of_generates_more_answers_than_are_returned() {
    use generate::request::BestOf;
    for (label, over, n, best) in [
        ("equal to n", json!({"n": 2, "best_of": 2}), 2, None),
        (
            "more than n",
            json!({"n": 2, "best_of": 5}),
            5,
            Some((2, 5, false)),
        ),
        (
            "with logprobs",
            json!({"best_of": 3, "logprobs": 0}),
            3,
            Some((1, 3, true)),
        ),
    ] {
        let request = completion(&with(json!({"prompt": "hi"}), &over)).expect(label);
        let best = best.map(|(returned, generated, logprobs)| BestOf {
            returned,
            generated,
            logprobs,
        });
        assert_eq!(
            (request.n, request.stream_options.best_of),
            (n, best),
            "{label}"
        );
        assert_eq!(request.params.sampling.logprobs, best.is_some(), "{label}");
    }
}

#[test]
fn begun_answer_that_cannot_continue_is_named() {
    let rows = [
        (
            "return_token_ids type",
            json!({"return_token_ids": 1}),
            "return_token_ids",
        ),
        (
            "continued id",
            json!({"continue_token_ids": [1, 300]}),
            "continue_token_ids[1]",
        ),
        (
            "continued answer without room",
            json!({"continue_token_ids": vec![1; 16]}),
            "continue_token_ids",
        ),
        (
            "continued answer of two",
            json!({"continue_token_ids": [1], "n": 2}),
            "continue_token_ids",
        ),
        (
            "continued answer with echo",
            json!({"continue_token_ids": [1], "echo": true}),
            "continue_token_ids",
        ),
        (
            "continued choice of two",
            json!({"continue_choice": 1, "n": 2}),
            "continue_choice",
        ),
        (
            "continued choice range",
            json!({"continue_choice": 16}),
            "continue_choice",
        ),
    ];
    for (label, over, want) in rows {
        let error = completion(&with(json!({"prompt": "hi"}), &over)).expect_err(label);
        assert_eq!(bad_fields(&error), [want], "{label}");
    }
}

#[test]
fn begun_answer_is_part_of_the_parameters() {
    for (over, ids, choice) in [
        (json!({"continue_token_ids": [7, 8]}), vec![7, 8], 0),
        (json!({"continue_choice": 3}), vec![], 3),
    ] {
        let request = completion(&with(json!({"prompt": [1, 2]}), &over)).expect("a request");
        let continued = request.params.continued.expect("an answer");
        assert_eq!((continued.token_ids, continued.choice), (ids, choice));
    }
    let plain = completion(&json!({"prompt": "hi"})).expect("a request");
    assert_eq!(plain.params.continued, None);
}

#[test]
fn suffix_makes_a_gap_of_each_prompt() {
    let request = completion(&json!({"prompt": ["a", "b"], "suffix": "c"})).expect("a request");
    let gap = |before: &str| {
        Prompt::Infill(InfillPrompt {
            before: before.to_owned(),
            after: "c".to_owned(),
            repository: None,
        })
    };
    assert_eq!(request.prompts, [gap("a"), gap("b")]);
}
