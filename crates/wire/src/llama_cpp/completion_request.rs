//! Parser of `POST /completion`.

use crate::field_table;
use crate::fields::{self, Fields, JsonType};
use crate::llama_cpp::generation_params::{parse_params, parse_stream_options};
use crate::llama_cpp::prompt_list;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::tool_definitions;
use generate::error::ApiError;
use generate::request::{GenerateRequest, Prompt};

/// Error message for an invalid prompt.
const PROMPT_MESSAGE: &str = "must be a string, a list of token ids, or a list of strings and token ids that make one prompt";

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub(crate) fn parse(
    mut fields: Fields<'_>,
    context: &ParseContext<'_>,
) -> Result<ParsedBody, ApiError> {
    let prompt = parse_prompt(&mut fields, context.vocab_size);
    let params = parse_params(&mut fields, context);
    let mut stream_options = parse_stream_options(&mut fields);
    stream_options.timings = fields.boolean("timings_per_token").unwrap_or(false);
    tool_definitions::reject_tools(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::LLAMA_COMPLETION)?;
    Ok(GenerateRequest {
        prompts: prompt.into_iter().collect(),
        n: 1,
        params,
        stream_options,
    }
    .into())
}

/// Parses `prompt`; errors are recorded in `fields`.
fn parse_prompt(fields: &mut Fields<'_>, vocab: usize) -> Option<Prompt> {
    const NAME: &str = "prompt";
    let Some(raw) = fields.raw(NAME) else {
        fields.reject(NAME, "is required");
        return None;
    };
    if let Some(text) = fields::as_text(raw) {
        return Some(Prompt::Text(text.into_owned()));
    }
    if fields::json_type(raw) != JsonType::Array {
        fields.reject(NAME, PROMPT_MESSAGE);
        return None;
    }
    match prompt_list::parse_list(NAME, raw, vocab) {
        Ok(prompt) => Some(prompt),
        Err(problem) => {
            fields.reject(problem.field, problem.constraint);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_parser::tests::parsed_request;
    use generate::request::{MIXED_PARTS_MAX, MixedPart};
    use serde_json::{Value, json};

    fn parsed(over: &Value) -> Result<GenerateRequest, ApiError> {
        let mut body = json!({"prompt": "a"});
        for (name, value) in over.as_object().expect("fields") {
            body[name] = value.clone();
        }
        parsed_request(parse, body.to_string().as_bytes())
    }

    #[test]
    fn prompt_is_text_or_ids_or_both() {
        let text = |text: &str| MixedPart::Text(text.to_owned());
        for (prompt, want) in [
            (json!("a"), Prompt::Text("a".to_owned())),
            (json!(["a"]), Prompt::Text("a".to_owned())),
            (json!([1, 2]), Prompt::Ids(vec![1, 2])),
            (json!([[1, 2]]), Prompt::Ids(vec![1, 2])),
            (
                json!([1, 2, "a", 3, "b", "c"]),
                Prompt::Mixed(vec![
                    MixedPart::Ids(vec![1, 2]),
                    text("a"),
                    MixedPart::Ids(vec![3]),
                    text("b"),
                    text("c"),
                ]),
            ),
            (
                json!([["a", 1]]),
                Prompt::Mixed(vec![text("a"), MixedPart::Ids(vec![1])]),
            ),
        ] {
            let request = parsed(&json!({"prompt": prompt})).expect("a request");
            assert_eq!(request.prompts, [want], "{prompt}");
        }
    }

    #[test]
    fn parameters_have_the_names_of_llama_cpp() {
        let request = parsed(&json!({
            "n_predict": 7, "n_probs": 3, "stream": true, "timings_per_token": true, "min_p": 0.1,
            "logit_bias": [[5, 1.5], [6, false]], "repeat_last_n": 9,
        }));
        let request = request.expect("a request");
        let sampling = &request.params.sampling;
        assert_eq!(request.params.max_tokens, Some(7));
        assert_eq!((sampling.logprobs, sampling.top_logprobs), (true, 3));
        assert_eq!((sampling.temperature, sampling.top_k), (1.0, 0));
        assert_eq!((sampling.top_p, sampling.min_p), (1.0, 0.1));
        assert_eq!(sampling.logit_bias, [(5, 1.5), (6, -1e6)]);
        assert_eq!(sampling.penalty_window, 9);
        let options = &request.stream_options;
        assert!(options.stream && options.return_token_ids && options.timings);
    }

    #[test]
    fn more_probabilities_than_the_engine_keeps_are_left_out_and_named() {
        for (asked, top, named) in [
            (64, 64, None),
            (100, 64, Some("n_probs.above_64")),
            (u32::MAX, 64, Some("n_probs.above_64")),
        ] {
            let request = parsed(&json!({"n_probs": asked})).expect("a request");
            assert_eq!(request.params.sampling.top_logprobs, top, "{asked}");
            assert_eq!(request.stream_options.ignored_fields.names(), named);
        }
    }

    #[test]
    fn invalid_field_is_named() {
        let many: Vec<Value> = (0..=MIXED_PARTS_MAX)
            .flat_map(|_| [json!("a"), json!(1)])
            .collect();
        for (over, want) in [
            (json!({"prompt": null}), "prompt"),
            (json!({"prompt": {"prompt_string": "a"}}), "prompt"),
            (json!({"prompt": ["a", "b"]}), "prompt"),
            (json!({"prompt": ["a", -1]}), "prompt[1]"),
            (json!({"prompt": ["a", null]}), "prompt[1]"),
            (json!({"prompt": [1, -1]}), "prompt[1]"),
            (json!({"prompt": [[1], [2]]}), "prompt"),
            (json!({"prompt": [[[1]]]}), "prompt[0][0]"),
            (json!({"prompt": [1, [2]]}), "prompt[1]"),
            (json!({"prompt": many}), "prompt"),
            (json!({"n_predict": -3}), "n_predict"),
            (json!({"n_probs": -1}), "n_probs"),
            (json!({"logit_bias": [[5]]}), "logit_bias[0]"),
            (json!({"logit_bias": [["x", 1]]}), "logit_bias[0]"),
            (json!({"logit_bias": [[5, "x"]]}), "logit_bias[0]"),
            (json!({"mirostat": 2}), "mirostat"),
            (json!({"t_max_predict_ms": 5}), "t_max_predict_ms"),
            (json!({"post_sampling_probs": true}), "post_sampling_probs"),
            (json!({"timings_per_token": 1}), "timings_per_token"),
            (json!({"n": 2}), "n"),
        ] {
            let error = parsed(&over).expect_err(want);
            assert_eq!(error.problems[0].field, want, "{over}");
        }
    }
}
