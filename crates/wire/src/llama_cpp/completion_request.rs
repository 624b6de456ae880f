//! Parser of `POST /completion`, and of the fields that `/infill` shares: llama.cpp's names, and this server's own.
//!
//! A prompt that is a list: token ids, or strings and token ids that make one prompt. Items are parsed one by one, and an
//! id takes four bytes.

use super::seen_prompt;
use crate::fields::bounds::{IDS_MAX, each_item, invalid_id, token_id, too_many_ids};
use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonType, OrReject, RawJson, as_text, json_type};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::generation_fields::{self, llama_options};
use crate::shared::images::pieces_with;
use crate::shared::lora_field;
use crate::{field_table, tool_definitions};
use engine::TOP_LOGPROBS_MAX;
use generate::error::{ApiError, Problem};
use generate::generation_options::{GenerationOptions, TokenLimit};
use generate::request::{GenerationParams, MIXED_PARTS_MAX, MixedPart, Prompt, StreamOptions};
use serde_json::json;

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
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::LLAMA_COMPLETION)?;
    Ok(ParsedBody::of_prompts(prompt, params, stream_options).with_images(images))
}

/// Parses `prompt`; errors are recorded in `fields`.
fn parse_prompt(fields: &mut Fields<'_>, vocab: usize) -> Option<Prompt> {
    const NAME: &str = "prompt";
    let schema = || {
        let part = json!({"anyOf": [{"type": "string"}, token_id_schema()]});
        let parts = json!({"type": "array", "items": part});
        json!({"anyOf": [
            {"type": "string"}, parts,
            {"type": "array", "items": parts, "minItems": 1, "maxItems": 1},
            seen_prompt::schema(),
        ]})
    };
    let images = seen_prompt::image_data(fields);
    let raw = fields
        .described(NAME, schema)
        .or_reject(fields, NAME, "is required")?;
    if let Some(text) = fields::as_text(raw) {
        return Some(if images.is_empty() {
            Prompt::Text(text.into_owned())
        } else {
            Prompt::Pieces(pieces_with(&text, &images))
        });
    }
    if !images.is_empty() {
        fields.reject("image_data", "needs a prompt that is a string");
    }
    if let Some(object) = fields::as_object(raw) {
        return seen_prompt::parse(fields, NAME, &object);
    }
    if fields::json_type(raw) != JsonType::Array {
        fields.reject(NAME, PROMPT_MESSAGE);
        return None;
    }
    fields.take(parse_list(NAME, raw, vocab))
}

/// Parses the generation parameters.
pub(super) fn parse_params(
    fields: &mut Fields<'_>,
    context: &ParseContext<'_>,
) -> GenerationParams {
    let mut given = GenerationOptions {
        lora: lora_field::lora(fields, context.adapters),
        ..llama_options(fields, context.vocab_size)
    };
    // 0 only computes the prompt, in llama.cpp; here one token shows that it is done.
    if let Some(tokens) = fields.integer("n_predict", -2..=i128::from(u32::MAX)) {
        let limit = usize::try_from(tokens).ok().map(|tokens| tokens.max(1));
        given.max_tokens = Some(limit.map_or(TokenLimit::Context, TokenLimit::Tokens));
    }
    context.defaults.note_problems(fields);
    let mut params = context.defaults.resolve(given);
    generation_fields::check_min_tokens(fields, &params);
    // llama.cpp has no limit; more than the engine keeps are left out.
    if let Some(top) = fields.integer("n_probs", 0..=i128::from(u32::MAX)) {
        let most = TOP_LOGPROBS_MAX.min(u32::try_from(context.vocab_size).unwrap_or(u32::MAX));
        params.sampling.logprobs = top > 0;
        params.sampling.top_logprobs = u32::try_from(top).map_or(most, |top| top.min(most));
        if top > i128::from(most) {
            fields.leave_out("n_probs", format!("n_probs.above_{most}"));
        }
    }
    params
}

/// Parses how the answer is delivered.
pub(super) fn parse_stream_options(fields: &mut Fields<'_>) -> StreamOptions {
    let options = generation_fields::stream_options(fields);
    let return_tokens = fields.boolean("return_tokens").unwrap_or(false);
    fields.integer("n", 1..=1);
    StreamOptions {
        // The objects of a stream always have their ids.
        return_token_ids: options.stream || return_tokens,
        ..options
    }
}

/// The items of a list so far.
struct PromptList<'a> {
    path: &'a str,
    vocab: usize,
    items: usize,
    ids: usize,
    texts: usize,
    parts: Vec<MixedPart>,
    /// The first item, if that is a list itself.
    inner: Option<RawJson<'a>>,
    problem: Option<Problem>,
}

/// Parses the list `raw`, the field `path`. A list of one prompt is that prompt.
///
/// # Errors
/// An item is neither a string nor a token id; the list has several prompts, or more than [`MIXED_PARTS_MAX`] parts.
fn parse_list(path: &str, raw: RawJson<'_>, vocab: usize) -> Result<Prompt, Problem> {
    let list = PromptList::parse(path, raw, vocab)?;
    let Some(inner) = list.inner else {
        return list.into_prompt();
    };
    if list.items > 1 {
        return Err(several(path, list.items));
    }
    let inner_path = format!("{path}[0]");
    let inner = PromptList::parse(&inner_path, inner, vocab)?;
    match inner.inner {
        Some(_) => Err(wrong_item(&inner_path, 0)),
        None => inner.into_prompt(),
    }
}

fn several(path: &str, prompts: usize) -> Problem {
    let message =
        format!("has {prompts} prompts: one is accepted here; /v1/completions takes several");
    Problem::new(path, message)
}

fn wrong_item(path: &str, index: usize) -> Problem {
    Problem::new(
        format!("{path}[{index}]"),
        "must be a string or a token id, which make one prompt together",
    )
}

impl<'a> PromptList<'a> {
    fn parse(path: &'a str, raw: RawJson<'a>, vocab: usize) -> Result<Self, Problem> {
        let mut list = Self {
            path,
            vocab,
            items: 0,
            ids: 0,
            texts: 0,
            parts: Vec::new(),
            inner: None,
            problem: None,
        };
        let is_list = each_item(raw, |item| list.add(item));
        match list.problem.take() {
            Some(problem) => Err(problem),
            None if is_list => Ok(list),
            None => Err(Problem::new(path, "must be a list")),
        }
    }

    /// Takes the next item; false after an invalid one.
    fn add(&mut self, item: RawJson<'a>) -> bool {
        let index = self.items;
        self.items += 1;
        let result = match json_type(item) {
            JsonType::String => {
                self.texts += 1;
                let text = as_text(item).unwrap_or_default();
                self.parts.push(MixedPart::Text(text.into_owned()));
                Ok(())
            }
            JsonType::Number => self.add_id(index, item),
            JsonType::Array if index == 0 => {
                self.inner = Some(item);
                Ok(())
            }
            JsonType::Array if self.inner.is_some() => Ok(()),
            _ => Err(wrong_item(self.path, index)),
        };
        let result = result.and_then(|()| self.check_size());
        self.problem = result.err();
        self.problem.is_none()
    }

    fn add_id(&mut self, index: usize, item: RawJson<'_>) -> Result<(), Problem> {
        let id = token_id(item, self.vocab);
        let id = id.ok_or_else(|| invalid_id(self.path, index, self.vocab))?;
        self.ids += 1;
        match self.parts.last_mut() {
            Some(MixedPart::Ids(ids)) => ids.push(id),
            _ => self.parts.push(MixedPart::Ids(vec![id])),
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Problem> {
        if self.ids > IDS_MAX {
            return Err(too_many_ids(self.path));
        }
        if self.parts.len() > MIXED_PARTS_MAX {
            let message =
                format!("must hold at most {MIXED_PARTS_MAX} strings and runs of token ids");
            return Err(Problem::new(self.path, message));
        }
        Ok(())
    }

    fn into_prompt(mut self) -> Result<Prompt, Problem> {
        if self.texts > 1 && self.texts == self.items {
            return Err(several(self.path, self.items));
        }
        Ok(match (self.parts.len(), self.parts.pop()) {
            (1, Some(MixedPart::Text(text))) => Prompt::Text(text),
            (1, Some(MixedPart::Ids(ids))) => Prompt::Ids(ids),
            (_, None) => Prompt::Ids(Vec::new()),
            (_, Some(last)) => {
                self.parts.push(last);
                Prompt::Mixed(self.parts)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_parser::tests::parsed_request;
    use generate::request::{MIXED_PARTS_MAX, MixedPart, PromptPiece};
    use serde_json::{Value, json};

    fn parsed(over: &Value) -> Result<generate::request::GenerateRequest, ApiError> {
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
    fn images_stand_where_the_prompt_has_a_marker() {
        let text = |text: &str| PromptPiece::Template(text.to_owned());
        let image = PromptPiece::Image;
        for (over, want) in [
            (
                json!({"prompt": {"prompt_string": "a<__media__>b<__media__>", "multimodal_data": ["AAAA", "AAAB"]}}),
                vec![text("a"), image(0), text("b"), image(1)],
            ),
            (
                json!({"prompt": "a[img-12]b [img-9]", "image_data": [{"data": "AAAA", "id": 12}]}),
                vec![text("a"), image(0), text("b [img-9]")],
            ),
            (
                json!({"prompt": "[img-2][img-1]", "image_data": [{"data": "AAAA", "id": 1}, {"data": "AAAB", "id": 2}]}),
                vec![image(1), image(0)],
            ),
            (
                json!({"prompt": "a", "image_data": [{"data": "AAAA", "id": 1}]}),
                vec![image(0), text("a")],
            ),
        ] {
            let request = parsed(&over).expect("a request");
            assert_eq!(request.prompts, [Prompt::Pieces(want)], "{over}");
        }
        let request = parsed(&json!({"prompt": "a[img-1]<__media__>"})).expect("a request");
        let want = Prompt::Text("a[img-1]<__media__>".to_owned());
        assert_eq!(request.prompts, [want]);
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
            (
                json!({"prompt": {"prompt_string": 1}}),
                "prompt.prompt_string",
            ),
            (
                json!({"prompt": {"prompt_string": "a<__media__>"}}),
                "prompt.multimodal_data",
            ),
            (
                json!({"prompt": {"prompt_string": "a<__media__>", "multimodal_data": ["?"]}}),
                "prompt.multimodal_data[0]",
            ),
            (json!({"image_data": [{"data": "AAAA"}]}), "image_data[0]"),
            (
                json!({"prompt": [1], "image_data": [{"data": "AAAA", "id": 1}]}),
                "image_data",
            ),
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
