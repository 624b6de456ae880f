//! From a request's meaning to prompt ids.

use crate::gateway::served::ServedModel;
use crate::generate::ask::{Piece, Prompt};
use crate::generate::clock;
use crate::generate::error::{ApiError, Blame};
use crate::generate::prompt_room::PromptRoom;
use crate::generate::reading::{Reading, Wanted};
use axum::http::StatusCode;
use std::borrow::Cow;
use std::sync::Arc;
use text::{
    Decoder, GenericTools, Message, RenderInput, TemplateError, Tokenizer, TokenizerError,
    ToolSupport,
};

/// A prompt the engine can take.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// At least one id, fewer than the context has room for.
    pub(crate) ids: Vec<u32>,
    /// Whether the answer's first token opens a text.
    pub(crate) at_text_start: bool,
    /// What comes before the answer (`echo`).
    pub(crate) preface: Option<Arc<str>>,
    /// How the answer is to be read.
    pub(crate) reading: Reading,
}

/// A prompt as ids.
struct Encoded {
    ids: Vec<u32>,
    /// As it was sent, where it was a text.
    text: Option<String>,
    reading: Reading,
}

/// Renders, tokenises and measures every prompt. Takes time with the length of the prompts.
pub(crate) fn prepare(
    prompts: Vec<Prompt>,
    echo: bool,
    wanted: Wanted,
    served: &ServedModel,
) -> Result<Vec<Prepared>, ApiError> {
    prompts
        .into_iter()
        .map(|prompt| prepare_one(prompt, echo, wanted, served))
        .collect()
}

fn prepare_one(
    prompt: Prompt,
    echo: bool,
    wanted: Wanted,
    served: &ServedModel,
) -> Result<Prepared, ApiError> {
    let field = field_of(&prompt);
    let tokenizer = &served.tokenizer;
    let room = PromptRoom::of_context(served);
    let Encoded { ids, text, reading } = encode(prompt, wanted, served, room)?;
    if ids.is_empty() {
        return Err(ApiError::field(
            field,
            "invalid_value",
            format!("{field}: is empty; the model needs at least one token"),
        ));
    }
    if ids.len() >= served.context_max {
        return Err(too_long(field, ids.len(), served.context_max));
    }
    let preface = match text {
        _ if !echo => None,
        Some(text) => Some(text.into()),
        None => Some(decode(tokenizer, &ids).into()),
    };
    let at_text_start = ids.iter().all(|&id| tokenizer.is_control(id));
    Ok(Prepared {
        ids,
        at_text_start,
        preface,
        reading,
    })
}

/// A turn after what was said before: the beginning of the text is there already.
fn continued(
    context: Vec<u32>,
    then: Prompt,
    wanted: Wanted,
    served: &ServedModel,
    room: PromptRoom,
) -> Result<Encoded, ApiError> {
    let Encoded { ids, reading, .. } = encode(then, wanted, served, room)?;
    let bos = served.tokenizer.bos();
    let begins_anew = !context.is_empty() && ids.first().is_some_and(|&id| Some(id) == bos);
    let mut all = context;
    all.extend_from_slice(&ids[usize::from(begins_anew)..]);
    Ok(Encoded {
        ids: all,
        text: None,
        reading,
    })
}

/// How many tokens a prompt has, which may be more than the context has room for.
pub(crate) fn count(prompt: Prompt, served: &ServedModel) -> Result<usize, ApiError> {
    ids(prompt, served).map(|ids| ids.len())
}

/// A prompt's ids, which may be more than the context has room for.
pub(crate) fn ids(prompt: Prompt, served: &ServedModel) -> Result<Vec<u32>, ApiError> {
    encode(prompt, Wanted::default(), served, PromptRoom::WIDEST).map(|encoded| encoded.ids)
}

/// The ids of a text as it is. With `adds`, what the vocabulary wants around a text is added; with `special`,
/// texts of control tokens in it become those.
pub(crate) fn plain_ids(
    text: &str,
    adds: bool,
    special: bool,
    served: &ServedModel,
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = &served.tokenizer;
    let ids = match adds {
        true => tokenizer.encode_prompt(text, special),
        false => tokenizer.encode(text, special),
    };
    ids.map_err(|e| tokeniser_failed(&e))
}

/// The ids of a conversation; `begins`: with the beginning of the answer.
pub(crate) fn rendered_ids(
    messages: Vec<Message>,
    tools: &[serde_json::Value],
    begins: bool,
    kwargs: &serde_json::Map<String, serde_json::Value>,
    served: &ServedModel,
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = &served.tokenizer;
    let typed: Vec<_> = messages
        .into_iter()
        .map(|m| m.with_escaped_text(tokenizer))
        .collect();
    let text = render(
        ("messages", &typed),
        tools,
        begins,
        kwargs,
        served,
        PromptRoom::WIDEST,
    )?;
    let ids = tokenizer.encode_rendered(&text);
    ids.map_err(|e| tokeniser_failed(&e))
}

/// The field a prompt came in.
fn field_of(prompt: &Prompt) -> &'static str {
    match prompt {
        Prompt::Conversation { field, .. } => field,
        Prompt::Continued { .. } | Prompt::Pieces(_) | Prompt::Text(_) | Prompt::Ids(_) => "prompt",
    }
}

fn encode(
    prompt: Prompt,
    wanted: Wanted,
    served: &ServedModel,
    room: PromptRoom,
) -> Result<Encoded, ApiError> {
    let tokenizer = &served.tokenizer;
    let plain = |ids: Result<Vec<u32>, TokenizerError>, text| {
        Ok(Encoded {
            ids: ids.map_err(|e| tokeniser_failed(&e))?,
            text,
            reading: Reading::default(),
        })
    };
    match prompt {
        Prompt::Conversation {
            field,
            messages,
            tools,
            continues,
            kwargs,
        } => {
            let typed = messages.into_iter().map(|m| m.with_escaped_text(tokenizer));
            let mut typed: Vec<_> = typed.collect();
            if continues {
                point_at_end(&mut typed);
            }
            let typed = told(typed, &tools, wanted.calling.once, served)?;
            let mut text = render((field, &typed), &tools, !continues, &kwargs, served, room)?;
            drop(typed);
            if continues {
                cut_at_pointer(field, &mut text)?;
            }
            let encoded = plain(tokenizer.encode_rendered(&text), None)?;
            Ok(Encoded {
                reading: Reading::new(served.answers, &tools, &text, tokenizer, wanted),
                ..encoded
            })
        }
        Prompt::Continued { context, then } => continued(context, *then, wanted, served, room),
        Prompt::Pieces(pieces) => {
            room.expect("prompt", pieces.iter().map(Piece::bytes).sum())?;
            let pieces = pieces.iter().map(|piece| match piece {
                Piece::Written(text) => Cow::Borrowed(text.as_str()),
                Piece::Typed(text) => tokenizer.escape_control_text(text),
            });
            plain(tokenizer.encode_rendered(&pieces.collect::<String>()), None)
        }
        Prompt::Text(text) => {
            room.expect("prompt", text.len())?;
            plain(tokenizer.encode_prompt(&text, true), Some(text))
        }
        Prompt::Ids(ids) => plain(Ok(ids), None),
    }
}

/// Stands behind a text that is to be continued while the template is rendered. (Characters that are
/// nobody's; should somebody have typed them, the last are ours.)
const POINTER: &str = "\u{F8FF}end\u{F8FF}";

fn point_at_end(messages: &mut [Message]) {
    if let Some(serde_json::Value::String(text)) = messages.last_mut().map(|m| &mut m.content) {
        text.push_str(POINTER);
    }
}

/// Takes away what the template put after the last message's text, so that the answer continues it.
fn cut_at_pointer(field: &str, text: &mut String) -> Result<(), ApiError> {
    let Some(at) = text.rfind(POINTER) else {
        return Err(ApiError::field(
            field,
            "template_refused",
            format!(
                "{field}: the model's chat template does not render the last message, so an answer cannot \
                 continue it"
            ),
        ));
    };
    text.truncate(at);
    Ok(())
}

/// A conversation as the model's template has a place for it: with tools, calls and results in its text, where it has
/// none for them.
///
/// # Errors
/// The model cannot be told of tools.
pub(crate) fn told(
    messages: Vec<Message>,
    tools: &[serde_json::Value],
    once: bool,
    served: &ServedModel,
) -> Result<Vec<Message>, ApiError> {
    let support = served.capabilities.tools;
    if support == ToolSupport::None && !tools.is_empty() {
        let words =
            "tools: this model's chat template does not support tools, and no tool parser is set";
        return Err(ApiError::field("tools", "unsupported_value", words));
    }
    let generic = GenericTools {
        support,
        family: served.answers.tools,
        tools,
        once,
    };
    Ok(generic.add_tools(messages, &served.tokenizer))
}

/// What the model's template makes of a conversation that came in this field, if there is room for it.
pub(crate) fn render(
    (field, messages): (&str, &[Message]),
    tools: &[serde_json::Value],
    add_generation_prompt: bool,
    kwargs: &serde_json::Map<String, serde_json::Value>,
    served: &ServedModel,
    room: PromptRoom,
) -> Result<String, ApiError> {
    let input = RenderInput {
        messages,
        tools,
        add_generation_prompt,
        kwargs: Some(kwargs),
        now_unix_s: clock::unix_s(),
        bytes_max: Some(room.bytes_max()),
    };
    served.template.render(&input).map_err(|error| match error {
        TemplateError::Refused(why) => ApiError::field(
            field,
            "template_refused",
            format!("{field}: the model's chat template rejected it: {why}"),
        ),
        TemplateError::TooLong(most) if most == room.bytes_max() => {
            room.refusal(field, &format!("more than {most}"))
        }
        TemplateError::TooLong(most) => ApiError::field(
            field,
            "too_long",
            format!("{field}: the model's template makes a value of more than {most} bytes or items of it"),
        ),
        TemplateError::Broken(why) | TemplateError::NoThread(why) => {
            tracing::error!(why, "chat template failed");
            ApiError::ours(
                "template_broken",
                "the model's chat template failed on this conversation",
            )
        }
    })
}

fn too_long(field: &str, prompt_tokens: usize, context_max: usize) -> ApiError {
    ApiError::field(
        field,
        "context_length_exceeded",
        format!(
            "{field}: the prompt has {prompt_tokens} tokens and the model's context {context_max}, \
             of which one at least must be left for the answer"
        ),
    )
}

fn tokeniser_failed(error: &TokenizerError) -> ApiError {
    tracing::error!(%error, "tokenizer failed");
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        Blame::Ours,
        "tokenizer_failed",
        "the prompt could not be tokenized",
    )
}

/// The text of these ids.
pub(crate) fn decode(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let mut decoder = Decoder::new(Arc::clone(tokenizer), true);
    let mut text = String::new();
    for &id in ids {
        decoder.push(id, &mut text);
    }
    decoder.finish(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};
    use text::ChatTemplate;

    /// What the model gets of a conversation whose last message it continues.
    fn continued(template: &str, last: &str) -> Result<String, ApiError> {
        let message = |role: &str, text: &str| Message {
            role: role.to_owned(),
            content: Value::String(text.to_owned()),
            rest: Map::new(),
        };
        let mut messages = vec![message("user", "i"), message("assistant", last)];
        point_at_end(&mut messages);
        let input = RenderInput {
            messages: &messages,
            tools: &[],
            add_generation_prompt: false,
            kwargs: None,
            now_unix_s: 0,
            bytes_max: None,
        };
        let template = ChatTemplate::new(template, "", "").expect("a template");
        let mut text = template.render(&input).expect("a conversation");
        cut_at_pointer("messages", &mut text).map(|()| text)
    }

    #[test]
    fn an_answer_continues_where_the_last_message_ends() {
        let plain =
            "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<|im_end|>{% endfor %}";
        for last in ["The (", "i", "end", "<|im_"] {
            let want = format!("<user>i<|im_end|><assistant>{last}");
            assert_eq!(continued(plain, last).expect("continued"), want);
        }
        let forgetful = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
        let error = continued(forgetful, "x").expect_err("it is not shown");
        assert_eq!(error.code, "template_refused");
    }
}
