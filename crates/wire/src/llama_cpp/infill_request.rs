//! Parser of `POST /infill`.

use super::completion_request::{parse_params, parse_stream_options};
use crate::field_table;
use crate::fields::{self, Fields, OrReject, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::images::TEXT_ALONE;
use crate::tool_definitions;
use generate::error::ApiError;
use generate::infill_prompt::{
    FILE_NAME_BYTES_MAX, INFILL_FILES_MAX, InfillFile, InfillPrompt, RepositoryContext,
};
use generate::request::Prompt;
use serde_json::json;

/// Name of a file without one, in llama.cpp.
const FILE_NAME: &str = "tmp";
/// Tokens of the context that other files leave for an answer of unlimited length.
const ANSWER_TOKENS: usize = 512;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub(crate) fn parse(
    mut fields: Fields<'_>,
    context: &ParseContext<'_>,
) -> Result<ParsedBody, ApiError> {
    let before = required_text(&mut fields, "input_prefix", "the text before the gap");
    let after = required_text(&mut fields, "input_suffix", "the text after the gap");
    fields.record(
        "prompt",
        || json!({"description": "the beginning of the text of the gap"}),
    );
    let begun = fields.string("prompt").unwrap_or_default().into_owned();
    let files = parse_files(&mut fields);
    let params = parse_params(&mut fields, context);
    let mut stream_options = parse_stream_options(&mut fields);
    tool_definitions::reject_tools(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::INFILL)?;
    let prompt = InfillPrompt {
        before,
        after,
        repository: Some(RepositoryContext {
            begun,
            files,
            answer_tokens: params.max_tokens.unwrap_or(ANSWER_TOKENS),
        }),
    };
    Ok(ParsedBody::of_prompts(
        [Prompt::Infill(prompt)],
        params,
        stream_options,
    ))
}

fn required_text(fields: &mut Fields<'_>, name: &str, description: &str) -> String {
    fields.record(name, || json!({ "description": description }));
    let text = fields.string(name);
    if fields.raw(name).is_none() {
        fields.reject(name, "is required");
    }
    text.unwrap_or_default().into_owned()
}

/// Parses `input_extra`: objects with a `text`, and perhaps a `filename`. Errors are recorded in `fields`.
fn parse_files(fields: &mut Fields<'_>) -> Vec<InfillFile> {
    const NAME: &str = "input_extra";
    fields.record(NAME, || {
        json!({"items": {"type": "object", "required": ["text"], "properties": {
            "text": {"type": "string"}, "filename": {"type": "string", "maxLength": FILE_NAME_BYTES_MAX},
        }}})
    });
    let Some(items) = fields.array(NAME, INFILL_FILES_MAX) else {
        return Vec::new();
    };
    let mut files = Vec::with_capacity(items.len());
    for (i, item) in items.into_iter().enumerate() {
        files.extend(parse_file(fields, &format!("{NAME}[{i}]"), item));
    }
    files
}

fn parse_file(fields: &mut Fields<'_>, path: &str, item: RawJson<'_>) -> Option<InfillFile> {
    let Some(object) = fields::as_object(item) else {
        fields.reject(path, "must be an object with a text and perhaps a filename");
        return None;
    };
    TEXT_ALONE.reject_others(fields, path, &object, false);
    let text =
        object
            .text("text")
            .or_reject(fields, format_args!("{path}.text"), "must be a string");
    let name = match object.get("filename") {
        Some(raw) => fields::as_text(raw).filter(|name| name.len() <= FILE_NAME_BYTES_MAX),
        None => Some(FILE_NAME.into()),
    }
    .or_reject(
        fields,
        format_args!("{path}.filename"),
        format_args!("must be a string of at most {FILE_NAME_BYTES_MAX} bytes"),
    );
    Some(InfillFile {
        name: name?.into_owned(),
        text: text?.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_parser::tests::parsed_request;
    use serde_json::{Value, json};

    fn parsed(over: &Value) -> Result<generate::request::GenerateRequest, ApiError> {
        let mut body = json!({"input_prefix": "a", "input_suffix": "b"});
        for (name, value) in over.as_object().expect("fields") {
            body[name] = value.clone();
        }
        parsed_request(parse, body.to_string().as_bytes())
    }

    #[test]
    fn gap_and_files_are_parsed() {
        let over = json!({
            "prompt": "c", "n_predict": 7, "stream": true, "top_p": 0.5,
            "input_extra": [{"filename": "x.h", "text": "d"}, {"text": "e"}],
        });
        let request = parsed(&over).expect("a request");
        let file = |name: &str, text: &str| InfillFile {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let want = InfillPrompt {
            before: "a".to_owned(),
            after: "b".to_owned(),
            repository: Some(RepositoryContext {
                begun: "c".to_owned(),
                files: vec![file("x.h", "d"), file("tmp", "e")],
                answer_tokens: 7,
            }),
        };
        assert_eq!(request.prompts, [Prompt::Infill(want)]);
        let (params, options) = (&request.params, &request.stream_options);
        assert_eq!(params.max_tokens, Some(7));
        assert_eq!((params.sampling.top_k, params.sampling.top_p), (0, 0.5));
        assert!(options.stream && options.return_token_ids);
    }

    #[test]
    fn lengths_are_those_of_llama_cpp() {
        for (length, want) in [
            (json!({}), None),
            (json!({"n_predict": -1}), None),
            (json!({"n_predict": 0}), Some(1)),
            (json!({"n_predict": 5}), Some(5)),
            (json!({"max_tokens": 6}), Some(6)),
        ] {
            let request = parsed(&length).expect("a request");
            assert_eq!(request.params.max_tokens, want, "{length}");
            assert!(!request.stream_options.return_token_ids, "{length}");
        }
        let random = parsed(&json!({"seed": -1})).expect("a request");
        assert_eq!(random.params.seed, None);
    }

    #[test]
    fn invalid_field_is_named() {
        let long = "x".repeat(FILE_NAME_BYTES_MAX + 1);
        let many = vec![json!({"text": ""}); INFILL_FILES_MAX + 1];
        for (over, want) in [
            (json!({"input_prefix": null}), "input_prefix"),
            (json!({"input_suffix": 7}), "input_suffix"),
            (json!({"prompt": ["a"]}), "prompt"),
            (json!({"input_extra": {}}), "input_extra"),
            (json!({"input_extra": many}), "input_extra"),
            (json!({"input_extra": ["a"]}), "input_extra[0]"),
            (json!({"input_extra": [{}]}), "input_extra[0].text"),
            (
                json!({"input_extra": [{"filename": "ok"}]}),
                "input_extra[0].text",
            ),
            (
                json!({"input_extra": [{"filename": 1, "text": "a"}]}),
                "input_extra[0].filename",
            ),
            (
                json!({"input_extra": [{"filename": long, "text": "a"}]}),
                "input_extra[0].filename",
            ),
            (json!({"n_predict": -3}), "n_predict"),
            (json!({"n_probs": -1}), "n_probs"),
            (json!({"n": 2}), "n"),
            (json!({"tools": [{}]}), "tools"),
        ] {
            let error = parsed(&over).expect_err(want);
            assert_eq!(error.problems[0].field, want, "{over}");
        }
    }
}
