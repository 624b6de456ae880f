//! A compiled chat template, and rendering of conversations.

use super::builtin_functions::RaisedException;
use super::capabilities::ConversationSupport;
use super::content_form::ContentForm;
use super::message::{Message, complete_tools};
use super::turn_format::OWN_TEMPLATE;
use super::{bounded_filters, builtin_functions, metered_source, python_json};
use minijinja::{Environment, Value as Jinja};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::{io, thread};

/// Instructions of one rendering. The largest public templates take some hundreds per message and some
/// thousands per tool.
pub const FUEL: u64 = 20_000_000;
/// Bytes of a rendered prompt: the most that is encoded at once.
pub const OUTPUT_BYTES_MAX: usize = crate::tokenizer::TEXT_BYTES_MAX;
/// Bytes of a template's source.
pub const SOURCE_BYTES_MAX: usize = 256 << 10;
/// Bytes of one tag: minijinja's time grows faster than a tag's length. The longest tag of a public template
/// has 2.3 KB.
pub const TAG_BYTES_MAX: usize = 16 << 10;
/// Stack for compilation: minijinja bounds the nesting of brackets and blocks, but recurses along chains
/// (`- - - 1`, `x.x.x`, `elif`), of which the largest source has as many levels as bytes. Only the pages that
/// are used are committed, and the stack is freed after compilation.
const COMPILE_STACK_BYTES: usize = 512 << 20;

/// Input of one rendering.
#[derive(Clone, Debug, Default)]
pub struct RenderInput<'a> {
    /// The conversation, oldest message first.
    pub messages: &'a [Message],
    /// Tool definitions in OpenAI's shape; may be empty.
    pub tools: &'a [Value],
    /// Whether to append the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Extra variables (`chat_template_kwargs`). May replace `bos_token`, `eos_token` and `documents`, but no
    /// field above.
    pub kwargs: Option<&'a serde_json::Map<String, Value>>,
    /// Seconds since the Unix epoch for `strftime_now`, in UTC.
    pub now_unix_s: i64,
    /// Bytes of the rendered text, if less than [`OUTPUT_BYTES_MAX`].
    pub bytes_max: Option<usize>,
    /// Whether [marks](super::image_mark) of images stay in the text, also where the template takes images as parts.
    pub marks_stay: bool,
}

/// Why a conversation cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template rejected the conversation (`raise_exception`): an error of the client.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// The template is invalid or too expensive, or does not support such a conversation.
    #[error("the chat template fails: {0}")]
    Broken(String),
    /// The text or an intermediate value exceeds this number of bytes or items: an error of the client.
    #[error("the chat template makes more than {0} bytes or items of it")]
    TooLong(usize),
    /// The system could not create a thread for compilation: an error of the operator, or temporary.
    #[error("no thread to compile the chat template on: {0}")]
    NoThread(String),
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    format_name: &'static str,
    stops: &'static [&'static str],
    support: OnceLock<ConversationSupport>,
    content: OnceLock<ContentForm>,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of those tokens.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > SOURCE_BYTES_MAX {
            let why = format!("{} bytes, at most {SOURCE_BYTES_MAX} allowed", source.len());
            return Err(TemplateError::Broken(why));
        }
        let longest = metered_source::longest_tag(source);
        if longest > TAG_BYTES_MAX {
            let why = format!("a tag of {longest} bytes, at most {TAG_BYTES_MAX} allowed");
            return Err(TemplateError::Broken(why));
        }
        let environment = on_a_deep_stack(|| compile(source))?;
        Ok(Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            format_name: OWN_TEMPLATE,
            stops: &[],
            support: OnceLock::new(),
            content: OnceLock::new(),
        })
    }

    /// A plain template for models without one (the caller logs this).
    pub fn fallback(bos: &str, eos: &str) -> Self {
        let source = include_str!("fallback.jinja");
        // The short source needs no deep stack, and therefore no thread that the system may fail to create.
        let environment = compile(source).expect("the fallback compiles: a test renders it");
        Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            format_name: OWN_TEMPLATE,
            stops: &[],
            support: OnceLock::new(),
            content: OnceLock::new(),
        }
    }

    /// This template under the name of a format, whose marks among ordinary text are stop strings.
    pub(super) fn in_format(
        self,
        format_name: &'static str,
        stops: &'static [&'static str],
    ) -> Self {
        Self {
            format_name,
            stops,
            ..self
        }
    }

    /// Name of the format of turns: [`OWN_TEMPLATE`], that of a family, or [`BASE_MODEL`](super::BASE_MODEL).
    pub fn format_name(&self) -> &'static str {
        self.format_name
    }

    /// Stop strings of answers in a conversation.
    pub fn stops(&self) -> &'static [&'static str] {
        self.stops
    }

    /// The conversations that the template renders. The first call tries the template.
    pub(super) fn conversation_support(&self) -> &ConversationSupport {
        self.support.get_or_init(|| ConversationSupport::of(self))
    }

    /// Renders the prompt. Contents are given in the form that the template takes: texts, lists of parts, parts that are images
    /// in place of their [marks](super::image_mark).
    ///
    /// A panic of minijinja becomes an error: version 3.0.5 panics on `[::-1]` of an empty string.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        let form = self.content.get_or_init(|| ContentForm::of(self));
        match form.fit(input.messages, !input.marks_stay) {
            None => self.render_as_given(input),
            Some(fitted) => self.render_as_given(&RenderInput {
                messages: &fitted,
                ..input.clone()
            }),
        }
    }

    /// Renders messages whose contents are as the template takes them.
    pub(super) fn render_as_given(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        let render = |input: &RenderInput<'_>| {
            let rendering = AssertUnwindSafe(|| self.render_unguarded(input)); // the closure only borrows
            catch_unwind(rendering).unwrap_or_else(|_| Err(panicked()))
        };
        let rendered = render(input);
        if !matches!(rendered, Err(TemplateError::Broken(_))) || input.tools.is_empty() {
            return rendered;
        }
        // Templates read optional parts of definitions without a test.
        let tools = complete_tools(input.tools);
        let completed = RenderInput {
            tools: &tools,
            ..input.clone()
        };
        render(&completed).or(rendered)
    }

    fn render_unguarded(&self, input: &RenderInput<'_>) -> Result<String, TemplateError> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| explain(&error))?;
        let most = input.bytes_max.unwrap_or(OUTPUT_BYTES_MAX);
        let most = most.min(OUTPUT_BYTES_MAX);
        let mut text = BoundedWriter {
            bytes: Vec::new(),
            room: most,
            is_full: false,
        };
        bounded_filters::begin();
        let rendered = template.render_captured_to(self.variables(input), &mut text);
        match rendered {
            Err(_) if text.is_full => Err(TemplateError::TooLong(most)),
            Err(error) => Err(explain(&error)),
            Ok(_) => Ok(String::from_utf8(text.bytes).expect("templates write text")),
        }
    }

    /// Variables of the template. Later names shadow earlier ones.
    fn variables(&self, input: &RenderInput<'_>) -> Jinja {
        let tools = Some(input.tools).filter(|tools| !tools.is_empty());
        let own = [
            ("bos_token", Jinja::from(self.bos.as_str())),
            ("eos_token", Jinja::from(self.eos.as_str())),
            ("documents", Jinja::from(())),
        ];
        let extra = input.kwargs.into_iter().flatten();
        let given = [
            ("messages", python_json::from_messages(input.messages)),
            (
                "tools",
                tools.map_or_else(|| Jinja::from(()), python_json::from_list),
            ),
            (
                "add_generation_prompt",
                Jinja::from(input.add_generation_prompt),
            ),
            (builtin_functions::NOW, Jinja::from(input.now_unix_s)),
        ];
        let extra = extra.map(|(name, value)| (name.as_str(), python_json::from_json(value)));
        Jinja::from_pairs(own.into_iter().chain(extra).chain(given))
    }
}

/// Name of the template in the environment and in error messages.
const NAME: &str = "chat_template";

fn compile(source: &str) -> Result<Environment<'static>, TemplateError> {
    let mut environment = environment();
    let source = metered_source::without_generation_tags(source);
    environment
        .add_template_owned(NAME, metered_source::metered(&source))
        .or_else(|_| environment.add_template_owned(NAME, source))
        .map_err(|error| explain(&error))?;
    Ok(environment)
}

/// Runs `work` on a thread with a deep stack. A panic becomes an error.
fn on_a_deep_stack<R: Send>(
    work: impl FnOnce() -> Result<R, TemplateError> + Send,
) -> Result<R, TemplateError> {
    let deep = thread::Builder::new().stack_size(COMPILE_STACK_BYTES);
    thread::scope(|scope| match deep.spawn_scoped(scope, work) {
        Ok(working) => working.join().unwrap_or_else(|_| Err(panicked())),
        Err(error) => Err(TemplateError::NoThread(error.to_string())),
    })
}

fn panicked() -> TemplateError {
    TemplateError::Broken("the engine panicked".to_owned())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(metered_source::settings());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(builtin_functions::call);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(false);
    builtin_functions::add(&mut environment);
    bounded_filters::add(&mut environment);
    bounded_filters::add_counters(&mut environment);
    environment
}

/// The template's own message, or the error without the conversation's text.
fn explain(error: &minijinja::Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(RaisedException(why)) = inner.downcast_ref() {
            return TemplateError::Refused(why.clone());
        }
        if let Some(bounded_filters::TooLarge(most)) = inner.downcast_ref() {
            return TemplateError::TooLong(*most);
        }
        if let Some(why @ bounded_filters::TooMuchWork) = inner.downcast_ref() {
            return TemplateError::Broken(why.to_string());
        }
        cause = inner.source();
    }
    TemplateError::Broken(error.to_string())
}

/// A writer with a size limit.
struct BoundedWriter {
    bytes: Vec<u8>,
    room: usize,
    /// Whether a write exceeded the limit.
    is_full: bool,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let Some(room) = self.room.checked_sub(piece.len()) else {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.room = room;
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
