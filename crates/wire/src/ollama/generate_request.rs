//! Parser of `POST /api/generate`.

use super::go_template::{self, TemplateValues};
use super::keep_alive::keep_alive;
use super::request::{self, is_given};
use crate::field_table;
use crate::fields::Fields;
use generate::error::ApiError;
use generate::request::{GenerateRequest, Prompt};
use serde_json::{Map, Value};
use text::Message;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, vocab: usize) -> Result<GenerateRequest, ApiError> {
    let kwargs = request::template_kwargs(&mut fields);
    let raw = fields.boolean("raw").unwrap_or(false);
    let prompt = request::string_field(&mut fields, "prompt").unwrap_or_default();
    let context = context_ids(&mut fields, vocab);
    let prompt = match raw {
        true => {
            for name in ["system", "template", "context"] {
                if is_given(&fields, name) {
                    fields.wrong(
                        name,
                        "cannot be combined with raw, which uses the prompt without a template",
                    );
                }
            }
            Prompt::Text(prompt)
        }
        false => Prompt::Continued {
            context,
            then: Box::new(prompt_turn(&mut fields, prompt, kwargs)),
        },
    };
    let params = request::generation_params(&mut fields, vocab);
    let mut stream_options = request::stream_options(&mut fields);
    stream_options.return_context = !raw;
    keep_alive(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::OLLAMA_GENERATE)?;
    Ok(GenerateRequest {
        prompts: vec![prompt],
        n: 1,
        params,
        stream_options,
    })
}

/// The prompt as one turn, in the request's template or in the model's.
fn prompt_turn(fields: &mut Fields<'_>, prompt: String, kwargs: Map<String, Value>) -> Prompt {
    let system = request::string_field(fields, "system").unwrap_or_default();
    let template =
        request::string_field(fields, "template").filter(|template| !template.is_empty());
    if let Some(template) = template {
        let values = TemplateValues {
            system: &system,
            prompt: &prompt,
        };
        return match go_template::render(&template, values) {
            Ok(pieces) => Prompt::Pieces(pieces),
            Err(why) => {
                fields.wrong("template", why);
                Prompt::Pieces(Vec::new())
            }
        };
    }
    let turns = [("system", system), ("user", prompt)];
    let messages = turns.into_iter().filter(|(_, text)| !text.is_empty());
    Prompt::Conversation {
        field: "prompt",
        messages: messages
            .map(|(role, text)| text_message(role, text))
            .collect(),
        tools: Vec::new(),
        continues: false,
        kwargs,
    }
}

fn text_message(role: &str, text: String) -> Message {
    Message {
        role: role.to_owned(),
        content: Value::String(text),
        rest: Map::new(),
    }
}

/// Token ids of the earlier conversation, from the `context` of an earlier response.
fn context_ids(fields: &mut Fields<'_>, vocab: usize) -> Vec<u32> {
    let Some(raw) = fields.raw("context") else {
        return Vec::new();
    };
    fields.ids("context", raw, vocab).unwrap_or_default()
}
