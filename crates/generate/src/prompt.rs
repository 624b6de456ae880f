//! From a prompt in a request to prompt ids: rendered, tokenized, measured; or restored from a record.

mod image_runs;
#[cfg(test)]
mod image_tests;
mod prompt_errors;
mod recorded;
#[cfg(test)]
mod restored_tests;
#[cfg(test)]
mod tests;
mod truncated;

pub use self::image_runs::{IMAGE_CHANGED, ImageRun, PromptFiles};
pub use self::prompt_errors::{TEMPLATE_BROKEN, no_text_error};
pub use self::truncated::drop_image_turns;

use self::prompt_errors::{images_lost, no_text, template_failed, tokenizer_failed};
use crate::error::ApiError;
use crate::images::{DescriptionUsage, MeasuredImages};
use crate::infill_prompt::InfillPrompt;
use crate::model_handle::{ModelHandle, prompt_text};
use crate::output::parser_config::{ParseOptions, ParserConfig};
use crate::prompt_limit::{PromptLimit, PromptTruncation};
use crate::request::{MixedPart, Prompt, PromptPiece};
use engine::MediaInput;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use text::{
    ChatTemplate, GenericTools, Message, RenderInput, TemplateError, TokenizerError, ToolSupport,
};

/// A prompt that the engine can take.
#[derive(Debug, Default)]
pub struct PreparedPrompt {
    /// At least one id, fewer than the context has room for.
    pub ids: Vec<u32>,
    /// Whether the answer's first token begins a text.
    pub at_text_start: bool,
    /// The prompt's text, emitted before the answer (`echo`).
    pub echo_text: Option<Arc<str>>,
    /// How the answer is parsed.
    pub reading: ParserConfig,
    /// The source of `reading`; `None`: the default.
    pub rendered: Option<RenderedPrompt>,
    /// Rows of images, in order.
    pub image_runs: Vec<ImageRun>,
    /// The images of these rows, once they are decoded ([`PreparedPrompt::attach`]).
    pub media: Vec<MediaInput>,
    /// The images of these rows for an engine of another process ([`PreparedPrompt::attach_files`]).
    pub files: Option<PromptFiles>,
    /// Work of the model that described images of the request, in one of its prompts.
    pub described: Option<Box<DescriptionUsage>>,
}

/// A rendered conversation with its tools, from which the parsing of the answer follows.
#[derive(Debug)]
pub struct RenderedPrompt {
    /// The text.
    pub text: String,
    /// Tool definitions in OpenAI's shape.
    pub tools: Vec<Value>,
}

/// Prompt ids, the text that they came from where the prompt was a text, and how the answer is parsed.
struct EncodedPrompt {
    ids: Vec<u32>,
    text: Option<String>,
    reading: ParserConfig,
    rendered: Option<RenderedPrompt>,
    runs: Vec<ImageRun>,
    /// Places of the images with their marks, in order, where the last tokens of the prompt are to stay.
    spans: Vec<Range<usize>>,
}

/// Inputs of a chat template beside the messages.
#[derive(Clone, Copy)]
pub struct TemplateArguments<'a> {
    /// Tool definitions in OpenAI's shape.
    pub tools: &'a [Value],
    /// Whether the rendered text ends with the beginning of the answer.
    pub add_generation_prompt: bool,
    /// Variables of the template (`chat_template_kwargs`).
    pub kwargs: &'a Map<String, Value>,
}

/// Renders and tokenizes prompts for one model. Every method takes time with the length of the input.
#[derive(Clone, Copy)]
pub struct PromptEncoder<'a> {
    model: &'a ModelHandle,
    /// The date that chat templates may show.
    now_unix_s: i64,
    truncation: PromptTruncation,
    images: Option<&'a MeasuredImages>,
    /// Whether marks of images stay in rendered texts, also where the template takes images as parts.
    marks_stay: bool,
}

impl<'a> PromptEncoder<'a> {
    /// An encoder at this time.
    pub fn new(model: &'a ModelHandle, now_unix_s: i64) -> Self {
        let truncation = PromptTruncation::default();
        Self {
            model,
            now_unix_s,
            truncation,
            images: None,
            marks_stay: false,
        }
    }

    /// The encoder of prompts with these images.
    #[must_use]
    pub fn with_images(self, images: &'a MeasuredImages) -> Self {
        let images = Some(images);
        Self { images, ..self }
    }

    /// The encoder with prompts truncated in this way.
    #[must_use]
    pub fn truncating(self, truncation: PromptTruncation) -> Self {
        Self { truncation, ..self }
    }

    /// Renders, tokenizes and measures every prompt. With `echo`, each comes with the text.
    ///
    /// # Errors
    /// A prompt is empty, longer than the context, or rejected by the chat template.
    pub fn prepare(
        self,
        prompts: Vec<Prompt>,
        echo: bool,
        wanted: ParseOptions,
    ) -> Result<Vec<PreparedPrompt>, ApiError> {
        if !self.model.engine.generates() {
            return Err(no_text());
        }
        let prepared = prompts
            .into_iter()
            .map(|prompt| self.prepare_one(prompt, echo, wanted));
        prepared.collect()
    }

    /// Ids of a prompt, truncated where the request demands that; they may be more than the context has room for.
    ///
    /// # Errors
    /// The chat template or the tokenizer rejects the prompt.
    pub fn prompt_ids(self, prompt: Prompt) -> Result<Vec<u32>, ApiError> {
        let wanted = ParseOptions::default();
        let encoded = if self.truncation.truncation.is_disabled() {
            self.encode_prompt(prompt, wanted, PromptLimit::WIDEST)
        } else {
            self.encode_truncated(prompt, wanted)
        };
        encoded.map(|encoded| encoded.ids)
    }

    /// Ids of a text. `adds`: with the tokens that the vocabulary puts around a text. `special`: texts of control
    /// tokens become control tokens.
    ///
    /// # Errors
    /// The tokenizer failed.
    pub fn text_ids(self, text: &str, adds: bool, special: bool) -> Result<Vec<u32>, ApiError> {
        let tokenizer = &self.model.tokenizer;
        let ids = if adds {
            tokenizer.encode_prompt(text, special)
        } else {
            tokenizer.encode(text, special)
        };
        ids.map_err(|e| tokenizer_failed(&e))
    }

    /// Ids of a template's text with user input in it, which is escaped. Nothing is put around the text.
    ///
    /// # Errors
    /// The tokenizer failed.
    pub fn rendered_ids(self, text: &str) -> Result<Vec<u32>, ApiError> {
        let ids = self.model.tokenizer.encode_rendered_continuation(text);
        ids.map_err(|e| tokenizer_failed(&e))
    }

    /// Ids of a conversation, which are those of a prompt of these messages.
    ///
    /// # Errors
    /// The model has no way of taking tools, or the chat template or the tokenizer rejects the messages.
    pub fn conversation_ids(
        self,
        messages: Vec<Message>,
        arguments: TemplateArguments<'_>,
    ) -> Result<Vec<u32>, ApiError> {
        let tokenizer = &self.model.tokenizer;
        let typed = self.escape_messages(messages);
        if typed
            .iter()
            .any(|m| !text::images_of(&m.content).is_empty())
        {
            return Err(images_lost("messages"));
        }
        let typed = self.fit_messages(typed, arguments.tools, false)?;
        let arguments = TemplateArguments {
            tools: &text::with_escaped_values(arguments.tools, tokenizer),
            ..arguments
        };
        let text = self.render(("messages", &typed), arguments, PromptLimit::WIDEST)?;
        let ids = tokenizer.encode_rendered(&text);
        ids.map_err(|e| tokenizer_failed(&e))
    }

    fn prepare_one(
        self,
        prompt: Prompt,
        echo: bool,
        wanted: ParseOptions,
    ) -> Result<PreparedPrompt, ApiError> {
        let field = prompt.field();
        let (tokenizer, context_max) = (&self.model.tokenizer, self.model.context_max);
        let EncodedPrompt {
            ids,
            text,
            reading,
            rendered,
            runs,
            ..
        } = self.encode_truncated(prompt, wanted)?;
        if ids.is_empty() {
            return Err(ApiError::field(
                field,
                "invalid_value",
                format!("{field}: is empty; the model needs at least one token"),
            ));
        }
        if ids.len() >= context_max {
            return Err(self.full_context(field, ids.len(), &runs));
        }
        let echo_text = match text {
            _ if !echo => None,
            Some(text) => Some(text.into()),
            None => Some(prompt_text(tokenizer, &ids).into()),
        };
        let at_text_start = ids.iter().all(|&id| tokenizer.is_control(id));
        Ok(PreparedPrompt {
            ids,
            at_text_start,
            echo_text,
            reading,
            rendered,
            image_runs: runs,
            media: Vec::new(),
            files: None,
            described: None,
        })
    }

    fn encode_prompt(
        self,
        prompt: Prompt,
        wanted: ParseOptions,
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let tokenizer = &self.model.tokenizer;
        match prompt {
            Prompt::Conversation { .. } => self.encode_conversation(prompt, wanted, room),
            Prompt::Continued { context, then } => {
                self.encode_continued(context, *then, wanted, room)
            }
            Prompt::Pieces(pieces) => {
                room.expect("prompt", pieces.iter().map(PromptPiece::bytes).sum())?;
                let mut images = Vec::new();
                let pieces = pieces.iter().map(|piece| match piece {
                    PromptPiece::Template(text) => Cow::Borrowed(text.as_str()),
                    PromptPiece::User(text) => tokenizer.escape_control_text(text),
                    PromptPiece::Image(image) => {
                        images.push(*image);
                        Cow::Owned(text::image_mark(*image))
                    }
                });
                let text = pieces.collect::<String>();
                let encoded = self.encode_rendered(&text, &images)?;
                encoded.ok_or_else(|| images_lost("prompt"))
            }
            Prompt::Infill(prompt) => self.encode_infill(&prompt, room),
            Prompt::Text(text) => {
                room.expect("prompt", text.len())?;
                EncodedPrompt::plain(tokenizer.encode_prompt(&text, true), Some(text))
            }
            Prompt::Ids(ids) => EncodedPrompt::plain(Ok(ids), None),
            Prompt::Mixed(parts) => self.encode_mixed(&parts, room),
        }
    }

    fn encode_infill(
        self,
        prompt: &InfillPrompt,
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let tokenizer = &self.model.tokenizer;
        let marks = prompt.tokens(tokenizer)?;
        room.expect(prompt.before_field(), prompt.before.len())?;
        room.expect(prompt.after_field(), prompt.after.len())?;
        EncodedPrompt::plain(
            prompt.encode(tokenizer, marks, self.model.context_max),
            None,
        )
    }

    fn encode_conversation(
        self,
        prompt: Prompt,
        wanted: ParseOptions,
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let Prompt::Conversation {
            field,
            messages,
            tools,
            continues,
            kwargs,
        } = prompt
        else {
            return self.encode_prompt(prompt, wanted, room);
        };
        let tokenizer = &self.model.tokenizer;
        let mut typed = self.escape_messages(messages);
        if continues {
            append_sentinel(&mut typed);
        }
        let images: Vec<usize> = typed
            .iter()
            .flat_map(|m| text::images_of(&m.content))
            .collect();
        let typed = self.fit_messages(typed, &tools, wanted.tool_calling.single_call)?;
        let arguments = TemplateArguments {
            tools: &text::with_escaped_values(&tools, tokenizer),
            add_generation_prompt: !continues,
            kwargs: &kwargs,
        };
        let render = |encoder: Self| {
            let mut text = encoder.render((field, &typed), arguments, room)?;
            if continues {
                cut_at_sentinel(field, &mut text)?;
            }
            let encoded = encoder.encode_rendered(&text, &images)?;
            Ok::<_, ApiError>(encoded.map(|encoded| (text, encoded)))
        };
        let marks_stay = true;
        let rendered = match render(self)? {
            // The template drops images, or writes placeholders of its own: it gets marks in the text instead.
            None => render(Self { marks_stay, ..self })?,
            rendered => rendered,
        };
        let (text, encoded) = rendered.ok_or_else(|| images_lost(field))?;
        Ok(EncodedPrompt {
            reading: ParserConfig::new(self.model.answers, &tools, &text, tokenizer, wanted)
                .with_turn_ends(self.model.template.stops()),
            rendered: Some(RenderedPrompt { text, tools }),
            ..encoded
        })
    }

    /// A rendered text with these images in it, in order; `None`: the text has other places of images.
    fn encode_rendered(
        self,
        text: &str,
        images: &[usize],
    ) -> Result<Option<EncodedPrompt>, ApiError> {
        if images.is_empty() {
            let ids = self.model.tokenizer.encode_rendered(text);
            return EncodedPrompt::plain(ids, None).map(Some);
        }
        self.encode_around_images(text, images)
    }

    /// A turn after earlier ids, which begin with the beginning-of-sequence token already.
    fn encode_continued(
        self,
        context: Vec<u32>,
        then: Prompt,
        wanted: ParseOptions,
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let then = self.encode_prompt(then, wanted, room)?;
        let (ids, bos) = (&then.ids, self.model.tokenizer.bos());
        let repeats_bos = !context.is_empty() && ids.first().is_some_and(|&id| Some(id) == bos);
        let (mut all, dropped) = (context, usize::from(repeats_bos));
        let (earlier, new) = (all.len(), &ids[dropped..]);
        all.extend_from_slice(new);
        let (mut runs, mut spans) = (then.runs, then.spans);
        let rows = runs.iter_mut().map(|run| &mut run.rows);
        for place in rows.chain(&mut spans) {
            *place = place.start + earlier - dropped..place.end + earlier - dropped;
        }
        Ok(EncodedPrompt {
            ids: all,
            text: None,
            reading: then.reading,
            rendered: then.rendered,
            runs,
            spans,
        })
    }

    /// The messages as the chat template takes them: roles and turns that the template renders, earlier tool calls in the form
    /// that it renders; with tools, tool calls and results in their text, where the template has no place for those.
    ///
    /// # Errors
    /// The model has no way of taking tools.
    pub fn fit_messages(
        self,
        messages: Vec<Message>,
        tools: &[Value],
        once: bool,
    ) -> Result<Vec<Message>, ApiError> {
        let support = self.model.capabilities.tools;
        if support == ToolSupport::None && !tools.is_empty() {
            let message = "tools: this model's chat template does not support tools, and no tool parser is set";
            return Err(ApiError::field("tools", "unsupported_value", message));
        }
        let generic = GenericTools {
            support,
            family: self.model.answers.tools,
            tools,
            once,
        };
        let (template, tokenizer) = (&self.model.template, &self.model.tokenizer);
        Ok(template.fit_messages(messages, &generic, tokenizer))
    }

    /// Renders the messages of this field with the chat template.
    ///
    /// # Errors
    /// The template rejects or cannot render the messages, or the text is longer than `room`.
    pub fn render(
        self,
        (field, messages): (&str, &[Message]),
        arguments: TemplateArguments<'_>,
        room: PromptLimit,
    ) -> Result<String, ApiError> {
        let most = room.bytes_max();
        self.render_text(messages, arguments, most)
            .map_err(|error| {
                let TemplateError::Broken(why) = &error else {
                    return template_failed(error, field, room);
                };
                // The schema of a tool may have `properties` that are no object, a variable another type than the template reads.
                let (tools, kwargs) = (&[][..], &Map::new());
                let without_tools = TemplateArguments { tools, ..arguments };
                let without_kwargs = TemplateArguments {
                    kwargs,
                    ..arguments
                };
                let fewer = [
                    ("tools", without_tools),
                    ("chat_template_kwargs", without_kwargs),
                ];
                let renders = |arguments| self.render_text(messages, arguments, most).is_ok();
                match fewer.into_iter().find(|&(_, fewer)| renders(fewer)) {
                    Some((field, _)) => {
                        let message = format!(
                            "{field}: the model's chat template cannot render this value: {why}"
                        );
                        ApiError::field(field, "template_refused", message)
                    }
                    None => template_failed(error, field, room),
                }
            })
    }

    /// Renders messages with the chat template, or as plain turns where the template refuses the messages. The messages are
    /// [escaped](Self::escape_messages) and [fitted](Self::fit_messages).
    ///
    /// # Errors
    /// The template rejects or cannot render the messages, or the text is longer than `bytes_max`.
    pub fn render_text(
        self,
        messages: &[Message],
        arguments: TemplateArguments<'_>,
        bytes_max: usize,
    ) -> Result<String, TemplateError> {
        let render = |messages: &[Message]| {
            self.model.template.render(&RenderInput {
                messages,
                tools: arguments.tools,
                add_generation_prompt: arguments.add_generation_prompt,
                kwargs: Some(arguments.kwargs),
                now_unix_s: self.now_unix_s,
                bytes_max: Some(bytes_max),
                marks_stay: self.marks_stay,
            })
        };
        let rendered = render(messages);
        let Err(TemplateError::Refused(why) | TemplateError::Broken(why)) = &rendered else {
            return rendered;
        };
        tracing::debug!(
            why,
            "the chat template refuses the conversation: plain turns"
        );
        let plain = ChatTemplate::plain_turns(messages.to_vec(), self.model.answers.tools);
        render(&plain).or(rendered)
    }

    /// Messages in whose texts the names of control tokens stay text. Messages are escaped before they are
    /// [fitted](Self::fit_messages), which writes control tokens of tool calls.
    pub fn escape_messages(self, messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
        let escape = |message: Message| message.with_escaped_text(&self.model.tokenizer);
        messages.into_iter().map(escape).collect()
    }
}

impl EncodedPrompt {
    fn plain(
        ids: Result<Vec<u32>, TokenizerError>,
        text: Option<String>,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            ids: ids.map_err(|e| tokenizer_failed(&e))?,
            text,
            reading: ParserConfig::default(),
            rendered: None,
            runs: Vec::new(),
            spans: Vec::new(),
        })
    }
}

impl PromptEncoder<'_> {
    /// Texts and ids, in order; only a text at the beginning has the tokens that the vocabulary puts around a text.
    fn encode_mixed(
        self,
        parts: &[MixedPart],
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let bytes = parts.iter().map(|part| match part {
            MixedPart::Text(text) => text.len(),
            MixedPart::Ids(_) => 0,
        });
        room.expect("prompt", bytes.sum())?;
        let mut all = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match part {
                MixedPart::Text(text) => all.extend(self.text_ids(text, i == 0, true)?),
                MixedPart::Ids(ids) => all.extend_from_slice(ids),
            }
        }
        EncodedPrompt::plain(Ok(all), None)
    }
}

/// Private-use sentinel behind a text that the answer continues. If user text contains it, the last occurrence is the
/// inserted one.
const SENTINEL: &str = "\u{F8FF}end\u{F8FF}";

/// Puts the sentinel behind the text of the last message.
fn append_sentinel(messages: &mut [Message]) {
    if let Some(Value::String(text)) = messages.last_mut().map(|m| &mut m.content) {
        text.push_str(SENTINEL);
    }
}

/// Cuts what the template put after the last message's text, so that the answer continues that text.
///
/// # Errors
/// The template does not render the last message.
fn cut_at_sentinel(field: &str, text: &mut String) -> Result<(), ApiError> {
    let Some(at) = text.rfind(SENTINEL) else {
        let message = format!(
            "{field}: the model's chat template does not render the last message, so an answer cannot \
             continue it"
        );
        return Err(ApiError::field(field, "template_refused", message));
    };
    text.truncate(at);
    Ok(())
}
