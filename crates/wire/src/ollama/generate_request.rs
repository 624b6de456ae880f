//! Parser of `POST /api/generate`.

use super::go_template::{self, TemplateValues};
use super::request::{self, is_given};
use crate::field_table;
use crate::fields::Fields;
use crate::fields::recorder::token_id_schema;
use crate::model_defaults::ModelDefaults;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::content_parts::parse_images;
use crate::shared::keep_alive::keep_alive;
use crate::shared::messages::{self, text_message};
use generate::error::ApiError;
use generate::infill_prompt::InfillPrompt;
use generate::prompt_limit::Truncation;
use generate::request::Prompt;
use serde_json::{Map, Value, json};

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let kwargs = request::template_kwargs(&mut fields);
    let raw = fields.boolean("raw").unwrap_or(false);
    let prompt = request::string_field(&mut fields, "prompt").unwrap_or_default();
    let ids = context_ids(&mut fields, context.vocab_size);
    let suffix = request::string_field(&mut fields, "suffix").filter(|suffix| !suffix.is_empty());
    let prompt = match (suffix, raw) {
        (Some(after), _) => {
            let alone = "cannot be combined with suffix, which has a template of its own";
            reject_given(&mut fields, &["system", "template", "context"], alone);
            if raw {
                fields.reject("raw", alone);
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
            Prompt::Text(prompt)
        }
        (None, false) => Prompt::Continued {
            context: ids,
            then: Box::new(prompt_turn(&mut fields, &context.defaults, prompt, kwargs)),
        },
    };
    let mut params = request::generation_params(&mut fields, context);
    params.truncation = request::truncation(&mut fields, Truncation::LastTokens(None));
    let mut stream_options = request::stream_options(&mut fields);
    stream_options.return_context = !raw;
    keep_alive(&mut fields);
    if let Some(images) = fields.described("images", || json!({"type": "array", "maxItems": 0})) {
        parse_images(&mut fields, "images", images);
    }
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_GENERATE)?;
    Ok(ParsedBody::of_prompts([prompt], params, stream_options))
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
    prompt: String,
    kwargs: Map<String, Value>,
) -> Prompt {
    // An empty text turns the model's default off.
    let system = request::string_field(fields, "system").or_else(|| defaults.system.clone());
    let system = system.unwrap_or_default();
    let template = request::string_field(fields, "template").or_else(|| defaults.template.clone());
    let template = template.filter(|template| !template.is_empty());
    if let Some(template) = template {
        let values = TemplateValues {
            system: &system,
            prompt: &prompt,
        };
        return match go_template::render(&template, values) {
            Ok(pieces) => Prompt::Pieces(pieces),
            Err(why) => {
                fields.reject("template", why);
                Prompt::Pieces(Vec::new())
            }
        };
    }
    let turns = [("system", system), ("user", prompt)];
    let messages = turns.into_iter().filter(|(_, text)| !text.is_empty());
    let messages = messages.map(|(role, text)| text_message(role, text));
    messages::prompt("prompt", messages.collect(), Vec::new(), kwargs)
}

/// Token ids of the earlier conversation, from the `context` of an earlier response.
fn context_ids(fields: &mut Fields<'_>, vocab: usize) -> Vec<u32> {
    let schema = || json!({"type": "array", "items": token_id_schema()});
    let Some(raw) = fields.described("context", schema) else {
        return Vec::new();
    };
    fields.ids("context", raw, vocab).unwrap_or_default()
}
