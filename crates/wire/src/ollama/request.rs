//! Parsers of request fields that Ollama's routes share.

use super::go_template::{self, TemplateValues};
use crate::derived_model::ModelDefaults;
use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::content_parts::required_string;
use crate::shared::generation_fields::{self, ollama_options};
use crate::shared::images::{
    ImageMembers, LEFT_OUT_IMAGE, Placed, content_with, images_schema, in_order, parse_images,
    pieces_with, place_images,
};
use crate::shared::keep_alive::keep_alive;
use crate::shared::messages::{self, text_message};
use crate::shared::tool_calls::value_of_arguments;
use crate::{field_table, response_format, tool_definitions};
use generate::error::ApiError;
use generate::infill_prompt::InfillPrompt;
use generate::prompt_limit::Truncation;
use generate::request::{
    GenerationParams, MESSAGES_MAX, PARTS_MAX, Prompt, PromptPiece, StreamOptions,
};
use generate::request::{ResponseFormat, any_object};
use serde_json::{Map, Value, json};
use text::Message;

/// Error message for unsupported features.
pub const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// Images of a message.
const IMAGES: ImageMembers = ImageMembers(&["images"], "images are base64 in images");
/// Images of `options`.
const OPTION_IMAGES: ImageMembers = ImageMembers(&[], "images stand next to the text");

/// Parses the generation parameters: `options`, `logprobs` and `format`.
pub fn generation_params(fields: &mut Fields<'_>, context: &ParseContext<'_>) -> GenerationParams {
    let mut params = fields.within("options", |options| {
        let given = ollama_options(options, context.vocab_size);
        context.defaults.note_problems(options);
        let params = context.defaults.resolve(given);
        generation_fields::check_min_tokens(options, &params);
        params
    });
    if let Some(options) = fields.raw("options").and_then(fields::as_object) {
        OPTION_IMAGES.reject_others(fields, "options", &options, false);
    }
    generation_fields::parse_logprobs(fields, &mut params.sampling);
    if let Some(format) = &mut params.response_format {
        format.field = format!("options.{}", format.field);
    }
    fields.record(
        "structured_outputs",
        || json!({"description": "only disable_additional_properties is read"}),
    );
    params.response_format = ollama_format(fields).or(params.response_format);
    params.closed_objects = response_format::closed_objects_field(fields).or(params.closed_objects);
    params
}

/// Parses `format`, which is "json" or a JSON schema.
fn ollama_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "format";
    let schema = || json!({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]});
    let raw = fields.described(NAME, schema)?;
    match (fields::json_type(raw), fields::as_text(raw).as_deref()) {
        (_, Some("")) => None,
        (_, Some("json")) => Some(any_object(NAME)),
        (JsonType::Object, _) => response_format::json_schema_format(fields, NAME, raw),
        _ => fields.no_value(NAME, "must be \"json\" or a JSON Schema (an object)"),
    }
}

/// Parses `truncate`: what is dropped from a prompt that is too long, unless the request turns that off. The default is true,
/// as in Ollama.
pub fn truncation(fields: &mut Fields<'_>, dropped: Truncation) -> Truncation {
    match fields.boolean("truncate") {
        Some(false) => Truncation::Disabled,
        Some(true) | None => dropped,
    }
}

/// Parses the stream options. The default of `stream` is true.
pub fn stream_options(fields: &mut Fields<'_>) -> StreamOptions {
    let mut stream_options = generation_fields::stream_options(fields);
    stream_options.stream = fields.raw("stream").is_none() || stream_options.stream;
    stream_options
}

/// Parses the variables of the chat template; `think` sets every variable that templates read for reasoning.
pub fn template_kwargs(fields: &mut Fields<'_>) -> Map<String, Value> {
    let mut kwargs = messages::template_kwargs(fields);
    let schema = || json!({"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high"]}]});
    let Some(raw) = fields.described("think", schema) else {
        return kwargs;
    };
    let (is_enabled, effort) = match (fields::parse_value::<bool>(raw), fields::as_text(raw)) {
        (Some(is_enabled), _) => (is_enabled, None),
        (_, Some(effort)) if matches!(&*effort, "low" | "medium" | "high") => (true, Some(effort)),
        _ => {
            fields.reject("think", "must be true, false, low, medium or high");
            return kwargs;
        }
    };
    for name in ["enable_thinking", "thinking"] {
        kwargs.entry(name).or_insert(Value::Bool(is_enabled));
    }
    if let Some(effort) = effort {
        let effort = Value::String(effort.into_owned());
        kwargs.entry("reasoning_effort").or_insert(effort);
    }
    kwargs
}

/// Parses a string member; errors are recorded in `fields`.
pub fn string_field(fields: &mut Fields<'_>, name: &str) -> Option<String> {
    let text = fields.string(name);
    text.map(std::borrow::Cow::into_owned)
}

/// Whether a field is present and not empty.
pub fn is_given(fields: &Fields<'_>, name: &str) -> bool {
    fields
        .raw(name)
        .is_some_and(|raw| match fields::json_type(raw) {
            JsonType::String => raw.get() != "\"\"",
            JsonType::Array => fields::as_list(raw, 0).is_none(),
            _ => true,
        })
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_chat(
    mut fields: Fields<'_>,
    context: &ParseContext<'_>,
) -> Result<ParsedBody, ApiError> {
    let conversation = parse_messages(&mut fields);
    let kwargs = template_kwargs(&mut fields);
    let mut params = generation_params(&mut fields, context);
    params.truncation = truncation(&mut fields, Truncation::Turns);
    let mut stream_options = stream_options(&mut fields);
    let tools = params.take_tools(tool_definitions::parse_tools(&mut fields));
    keep_alive(&mut fields);
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_CHAT)?;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    Ok(ParsedBody::of_prompts([prompt], params, stream_options).with_images(images))
}

fn parse_messages(fields: &mut Fields<'_>) -> Vec<Message> {
    fields.record("messages", || {
        let mut schema = messages::message_schema(None);
        schema["properties"]["content"] = json!({"type": ["string", "null"]});
        schema["properties"]["images"] = json!({"anyOf": [images_schema(), {"type": "null"}]});
        json!({"items": schema})
    });
    let items = fields.array("messages", MESSAGES_MAX).unwrap_or_default();
    items
        .into_iter()
        .enumerate()
        .filter_map(|(i, raw)| parse_message(fields, &format!("messages[{i}]"), raw))
        .collect()
}

/// Parses one message; errors are recorded in `fields`.
fn parse_message(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Message> {
    let (object, role) = messages::message_object(fields, path, raw, None)?;
    let content = object.get("content");
    let content = content.and_then(|_| required_string(fields, path, &object, "content"));
    let is_answer = role.as_deref() == Some("assistant");
    IMAGES.reject_others(fields, path, &object, is_answer);
    let rest = other_members(fields, path, &object);
    let images = match object.get("images") {
        Some(images) => parse_images(fields, &format!("{path}.images"), images),
        None => Vec::new(),
    };
    let content = content.unwrap_or_default();
    let content = match role.as_deref() {
        // Clients send these again with each request, so an image must not end the conversation.
        Some("tool" | "assistant") if fields.is_text_only() => {
            content_without(fields, &content, &images)
        }
        _ => content_with(content, &images),
    };
    Some(Message {
        rest,
        content,
        ..messages::text_message(&role?, "")
    })
}

/// A content with a note in the place of each image, the last of the request so far, which are left out.
fn content_without(fields: &mut Fields<'_>, text: &str, images: &[usize]) -> Value {
    if let Some(&first) = images.first() {
        fields.leave_out_images(first, "messages.image");
    }
    let pieces = place_images(text, &in_order(images)).into_iter();
    let texts = pieces.map(|piece| match piece {
        Placed::Text(text) => text,
        Placed::Image(_) => LEFT_OUT_IMAGE,
    });
    Value::from(texts.collect::<Vec<_>>().join("\n"))
}

/// Further members of a message that chat templates read, under the names in those templates.
fn other_members(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Map<String, Value> {
    let names = [
        ("thinking", "reasoning_content"),
        ("tool_name", "name"),
        ("tool_call_id", "tool_call_id"),
    ];
    let mut rest = messages::string_members(fields, path, object, &names);
    let Some(raw) = object.get("tool_calls") else {
        return rest;
    };
    let calls = fields::as_list(raw, PARTS_MAX);
    let calls: Option<Vec<Value>> =
        calls.and_then(|calls| calls.into_iter().map(earlier_call).collect());
    match calls {
        Some(calls) if calls.is_empty() => {}
        Some(calls) => {
            rest.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        None => {
            let error_message = "must be a list of {\"function\":{\"name\":..,\"arguments\":{..}}}";
            fields.reject(format!("{path}.tool_calls"), error_message);
        }
    }
    rest
}

/// An earlier tool call of the conversation, in OpenAI's format, which chat templates expect.
fn earlier_call(raw: RawJson<'_>) -> Option<Value> {
    let call: Map<String, Value> = value_of_arguments(raw.get())?;
    let function = call.get("function")?.as_object()?;
    let (name, arguments) = (function.get("name")?.as_str()?, function.get("arguments"));
    let arguments = arguments.map_or_else(|| json!({}), Clone::clone);
    let mut converted = json!({
        "type": "function", "function": {"name": name, "arguments": arguments},
    });
    if let Some(id) = call.get("id").and_then(Value::as_str) {
        converted["id"] = json!(id);
    }
    Some(converted)
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_generate(
    mut fields: Fields<'_>,
    context: &ParseContext<'_>,
) -> Result<ParsedBody, ApiError> {
    let kwargs = template_kwargs(&mut fields);
    let raw = fields.boolean("raw").unwrap_or(false);
    let prompt = string_field(&mut fields, "prompt").unwrap_or_default();
    let ids = context_ids(&mut fields, context.vocab_size);
    let suffix = string_field(&mut fields, "suffix").filter(|suffix| !suffix.is_empty());
    let images = match fields.described("images", images_schema) {
        Some(images) => parse_images(&mut fields, "images", images),
        None => Vec::new(),
    };
    let prompt = match (suffix, raw) {
        (Some(after), _) => {
            let alone = "cannot be combined with suffix, which has a template of its own";
            reject_given(&mut fields, &["system", "template", "context"], alone);
            if raw {
                fields.reject("raw", alone);
            }
            if !images.is_empty() {
                fields.reject(
                    "images",
                    "cannot be combined with suffix: a gap in text is filled",
                );
            }
            Prompt::Infill(InfillPrompt {
                before: prompt,
                after,
                repository: None,
            })
        }
        (None, true) => {
            let alone = "cannot be combined with raw, which uses the prompt without a template";
            reject_given(&mut fields, &["system", "template", "context"], alone);
            if images.is_empty() {
                Prompt::Text(prompt)
            } else {
                Prompt::Pieces(pieces_with(&prompt, &in_order(&images)))
            }
        }
        (None, false) => {
            let turn = (prompt, &images[..]);
            Prompt::Continued {
                context: ids,
                then: Box::new(prompt_turn(&mut fields, &context.defaults, turn, kwargs)),
            }
        }
    };
    let mut params = generation_params(&mut fields, context);
    params.truncation = truncation(&mut fields, Truncation::LastTokens(None));
    let mut stream_options = stream_options(&mut fields);
    // The ids of rows of images say nothing without the images.
    stream_options.return_context = !raw && images.is_empty();
    keep_alive(&mut fields);
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_GENERATE)?;
    Ok(ParsedBody::of_prompts([prompt], params, stream_options).with_images(images))
}

/// Records an error for each of these fields that is given.
fn reject_given(fields: &mut Fields<'_>, names: &[&str], error_message: &str) {
    for name in names {
        if is_given(fields, name) {
            fields.reject(*name, error_message);
        }
    }
}

/// The prompt as one turn, in the request's template or in the model's.
fn prompt_turn(
    fields: &mut Fields<'_>,
    defaults: &ModelDefaults,
    (prompt, images): (String, &[usize]),
    kwargs: Map<String, Value>,
) -> Prompt {
    // An empty text turns the model's default off.
    let system = string_field(fields, "system").or_else(|| defaults.system.clone());
    let system = system.unwrap_or_default();
    let template = string_field(fields, "template").or_else(|| defaults.template.clone());
    let template = template.filter(|template| !template.is_empty());
    if let Some(template) = template {
        let values = TemplateValues {
            system: &system,
            prompt: &prompt,
        };
        return match go_template::render(&template, values) {
            Ok(pieces) => Prompt::Pieces(with_images(pieces, &prompt, images)),
            Err(why) => {
                fields.reject("template", why);
                Prompt::Pieces(Vec::new())
            }
        };
    }
    let turns = [
        ("system", Value::String(system)),
        ("user", content_with(prompt, images)),
    ];
    let turns = turns.into_iter().filter(|(_, content)| content != "");
    let messages = turns.map(|(role, content)| Message {
        content,
        ..text_message(role, "")
    });
    messages::prompt("prompt", messages.collect(), Vec::new(), kwargs)
}

/// A rendered template with images where the prompt stands in it, or at the beginning where it stands nowhere.
fn with_images(pieces: Vec<PromptPiece>, prompt: &str, images: &[usize]) -> Vec<PromptPiece> {
    if images.is_empty() {
        return pieces;
    }
    let is_prompt =
        |piece: &PromptPiece| matches!(piece, PromptPiece::User(text) if **text == *prompt);
    let at = pieces.iter().position(is_prompt);
    let placed = place_images(prompt, &in_order(images)).into_iter();
    let placed = placed.filter_map(|piece| match piece {
        Placed::Text(text) => at.map(|_| PromptPiece::User(text.into())),
        Placed::Image(image) => Some(PromptPiece::Image(image)),
    });
    let mut all = pieces;
    all.splice(at.map_or(0..0, |at| at..at + 1), placed);
    all
}

/// Token ids of the earlier conversation, from the `context` of an earlier response.
fn context_ids(fields: &mut Fields<'_>, vocab: usize) -> Vec<u32> {
    let schema = || json!({"type": "array", "items": token_id_schema()});
    let Some(raw) = fields.described("context", schema) else {
        return Vec::new();
    };
    fields.ids("context", raw, vocab).unwrap_or_default()
}
