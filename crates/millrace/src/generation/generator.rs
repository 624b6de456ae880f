//! Generation of one answer at a time, by a thread that may block.
//!
//! # Ctrl-C
//! SIGINT ends the current answer and not the program.
//! States: idle, answering, interrupted. A thread waits for the signal. While the model answers, the signal marks the
//! answer as interrupted and unparks the thread that reads the answer, which then cancels the request. A second signal
//! before the answer has ended exits the program. [`WhenIdle`] defines the effect of a signal between answers.

use super::image_describer::ImageDescriber;
use super::options::AnswerOptions;
use super::printer::AnswerPrinter;
use super::typed_images::{attach_images, measure_images};
use crate::clock::{now, now_unix_s};
use crate::config::{NamedModel, Settings};
use crate::failure::Failure;
use crate::loading::LoadedEngine;
use crate::signals::Interrupt;
use engine::Terms;
use generate::constraint::compiler::{ConstraintCompiler, ConstraintOptions};
use generate::error::{ApiError, Blame};
use generate::generation_options::GenerationOptions;
use generate::images::{DescriptionUsage, ImagePart};
use generate::model_handle::ModelHandle;
use generate::output::collected::CollectedAnswer;
use generate::output::event::{Event, Usage};
use generate::output::generation_reader::{GenerationReader, Turn};
use generate::output::parser_config::ParseOptions;
use generate::prompt::{PromptEncoder, TEMPLATE_BROKEN, no_text_error};
use generate::request::{GenerationParams, Prompt};
use generate::sampling::SamplingDefaults;
use generate::stream_source::{StreamMeta, StreamSource};
use generate::submit::{NoHost, Submission};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::thread::Thread;
use std::time::Duration;
use stream::{End, FailCode, StreamId};
use wire::derived_model::ModelOptions;
use wire::shared::finish_reason::GRAMMAR_LIMIT_MESSAGE;

/// Generates answers with one loaded model.
pub(crate) struct Generator {
    name: String,
    model: ModelHandle,
    /// Keeps compiled grammars for later answers.
    constraints: ConstraintCompiler,
    /// Whether objects of a schema are closed by default.
    closed_objects: bool,
    /// Parameters of answers for which no flag sets them.
    defaults: GenerationOptions,
    /// Describes images for a model that reads text only.
    describer: Option<Box<ImageDescriber>>,
}

/// A finished answer.
pub(crate) struct Answer {
    pub(crate) collected: CollectedAnswer,
    pub(crate) end: End,
    pub(crate) usage: Usage,
    /// Work of the model that described the images.
    pub(crate) descriptions: Option<DescriptionUsage>,
}

/// A generation that was submitted, and its reader.
type StartedAnswer = (Arc<StreamSource>, GenerationReader);

/// What an encoder is for, in the error for a prompt to one.
const ENCODER_USE: &str = "it computes embeddings or scores of documents: `millrace serve` has /v1/embeddings and /v1/rerank";

/// The error for logits that are not finite, which is a fault of the model's file.
const NOT_FINITE: &str =
    "the model's logits are NaN or infinite: its weights are damaged or were converted wrongly";

impl Generator {
    /// The generator of a loaded model.
    ///
    /// # Errors
    /// The settings of the model that describes images for this one cannot be used.
    pub(crate) fn new(loaded: &LoadedEngine, settings: &Settings) -> Result<Self, Failure> {
        let describer = match &loaded.handle.vision {
            Some(_) => None,
            None => ImageDescriber::of_model(&loaded.name, settings)?,
        };
        Ok(Self {
            describer: describer.map(Box::new),
            name: loaded.name.clone(),
            constraints: ConstraintCompiler::new(&loaded.handle),
            model: loaded.handle.clone(),
            closed_objects: settings.answers.disable_additional_properties,
            defaults: request_defaults(loaded, settings),
        })
    }

    /// Parameters of answers for which no flag sets them: those of a server's requests that set none.
    pub(crate) fn defaults(&self) -> &GenerationOptions {
        &self.defaults
    }

    /// Checks options against the model's capabilities.
    ///
    /// # Errors
    /// Reasoning is requested, and the chat template has no switch for reasoning.
    pub(crate) fn expect_supported(&self, options: &AnswerOptions) -> Result<(), Failure> {
        if options.thinks == Some(true) && !self.model.capabilities.thinking {
            Err(Failure::user(format!(
                "--think: the chat template of {} has no reasoning",
                self.name
            )))
        } else {
            Ok(())
        }
    }

    /// A prompt without the chat template. Names of control tokens stay text.
    pub(crate) fn raw_prompt(&self, text: &str) -> Result<Prompt, Failure> {
        let encoder = PromptEncoder::new(&self.model, now_unix_s());
        let ids = encoder.text_ids(text, true, false);
        ids.map(Prompt::Ids).map_err(|why| request_failure(&why))
    }

    /// Generates an answer to a prompt with these images, and prints the parts of the answer as soon as they are final.
    ///
    /// # Errors
    /// The prompt or the options are invalid for this model, an image is not described, or the output cannot be written.
    pub(crate) fn answer(
        &self,
        (prompt, images): (Prompt, &[ImagePart]),
        options: &AnswerOptions,
        printer: &mut AnswerPrinter<'_>,
        interrupts: Option<&Interrupts>,
    ) -> Result<Answer, Failure> {
        let answering = interrupts.map(Interrupts::answering);
        let answering = answering.as_ref();
        let (prompt, images, descriptions) = match &self.describer {
            Some(describer) if !images.is_empty() => {
                let (prompt, usage) = describer.describe((prompt, images), printer, answering)?;
                (prompt, &[][..], Some(usage))
            }
            _ => (prompt, images, None),
        };
        let started = self.start_answer((prompt, images), options);
        let started = started.map_err(|why| request_failure(&why))?;
        let answer = read_answer(started, printer, answering)?;
        Ok(Answer {
            descriptions,
            ..answer
        })
    }

    /// Prepares the prompt, compiles the output constraints and submits the request.
    ///
    /// # Errors
    /// The prompt or the options are invalid for this model.
    pub(super) fn start_answer(
        &self,
        (prompt, images): (Prompt, &[ImagePart]),
        options: &AnswerOptions,
    ) -> Result<StartedAnswer, ApiError> {
        let mut params = GenerationParams {
            lora: self.model.adapters.defaults(),
            ..options.params.clone()
        };
        if prompt.is_conversation() {
            params.add_stops(self.model.template.stops());
        }
        if !self.model.engine.generates() {
            return Err(no_text_error(&self.name, ENCODER_USE));
        }
        let params = &params;
        let parse = ParseOptions {
            tool_calling: params.tool_calling,
            structured_output: params.response_format.is_some(),
        };
        let measured = measure_images((&self.name, &self.model), images)?;
        let encoder = PromptEncoder::new(&self.model, now_unix_s()).with_images(&measured);
        let mut prompts = encoder.prepare(vec![prompt], false, parse)?;
        attach_images(&self.model, (images, &measured), &mut prompts)?;
        let constraints = ConstraintOptions::new(params, &prompts, self.closed_objects);
        let submission = Submission {
            model: &self.model,
            params,
            constraints: &self.constraints.compile(&constraints)?,
            n: 1,
            context_max: self.model.context_max,
            seed: params.seed.unwrap_or_else(fresh_seed),
            deadline: options.time_max.map(|time| now() + time),
            terms: Terms::default(),
            credit_window: 0,
            reports_prompt: false,
            retry_after: Duration::ZERO,
        };
        let source = Arc::new(StreamSource::new(StreamMeta {
            // Ids of tool calls are derived from the stream's id.
            id: StreamId::from_random(u128::from(fresh_seed()).to_be_bytes()),
            stops: params.stops.clone(),
            ..StreamMeta::unopened(&self.name, now())
        }));
        let (generation, readers) = submission.start(prompts, &NoHost)?;
        source.settle(Ok(generation));
        let reader = GenerationReader::new(&source, readers, None);
        let reader =
            reader.ok_or_else(|| ApiError::ours("internal_error", "the generation did not start"));
        Ok((source, reader?))
    }
}

impl Answer {
    /// Checks that the answer ended regularly.
    ///
    /// # Errors
    /// The reason why the answer is incomplete; the model is named if the logits are not finite.
    pub(crate) fn expect_complete(&self, generator: &Generator) -> Result<(), Failure> {
        match self.end {
            End::Stop(_) | End::Length => Ok(()),
            End::Failed(FailCode::NotFinite) => {
                Err(Failure::user(format!("{}: {NOT_FINITE}", generator.name)))
            }
            End::Failed(FailCode::Constraint) => Err(Failure::user(GRAMMAR_LIMIT_MESSAGE)),
            end => {
                let end = server::end_words(end);
                Err(Failure::bug(format!("the answer ended early: {end}")))
            }
        }
    }

    /// From the start of the prompt's computation to the first token.
    pub(crate) fn prompt_time(&self) -> Duration {
        let times = self.usage.times;
        match (times.started, times.first_token) {
            (Some(started), Some(first)) => first.saturating_duration_since(started),
            _ => Duration::ZERO,
        }
    }
}

/// Reads a generation to its end, which Ctrl-C brings about, and prints the parts as soon as they are final.
///
/// # Errors
/// The output cannot be written.
pub(super) fn read_answer(
    (source, mut reader): StartedAnswer,
    printer: &mut AnswerPrinter<'_>,
    answering: Option<&Answering<'_>>,
) -> Result<Answer, Failure> {
    let waker = thread_waker();
    let mut cx = Context::from_waker(&waker);
    let mut collected = CollectedAnswer::default();
    let end = loop {
        let mut written = Ok(());
        let mut emit = |event: Event<'_>| {
            collected.take(&event);
            written = printer.print(&event);
            written.is_ok()
        };
        let turn = reader.poll_turn(&mut cx, &mut emit, &mut |end| end);
        let written = written.and_then(|()| printer.flush());
        if written.is_err() || answering.is_some_and(Answering::is_interrupted) {
            cancel_requests(&source);
        }
        written?;
        match turn {
            Poll::Ready(Turn::Open) => {}
            Poll::Ready(Turn::Ended) => break reader.first_end().unwrap_or(End::Lost),
            Poll::Ready(Turn::Broken(end)) => break end,
            Poll::Pending => std::thread::park(),
        }
    };
    printer.finish()?;
    Ok(Answer {
        collected,
        end,
        usage: reader.usage(),
        descriptions: None,
    })
}

/// Parameters of requests that set none: those of the settings for the model's name, those for all models, the model's own.
fn request_defaults(loaded: &LoadedEngine, settings: &Settings) -> GenerationOptions {
    let named = settings.models.named.get(&loaded.name);
    let named = named.and_then(NamedModel::defaults).unwrap_or_default();
    let vocab_size = loaded.handle.tokenizer.vocab_size();
    let own = named.defaults(ModelOptions::All, vocab_size).options;
    let sampling = settings.sampling.defaults();
    let sampling = sampling
        .or(loaded.facts.sampling)
        .or(SamplingDefaults::LLAMA_CPP);
    own.or(&sampling.options())
}

/// Cancels the requests of a generation; the logs end with [`End::Cancelled`].
fn cancel_requests(source: &StreamSource) {
    if let Some(started) = source.started() {
        let requests = started.requests.iter();
        requests.for_each(|request| started.engine.cancel(request.id));
    }
}

/// An unpredictable seed: the standard library's random keys.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one("seed")
}

/// The failure of a request that was not started.
pub(super) fn request_failure(error: &ApiError) -> Failure {
    match error.blame {
        Blame::Caller | Blame::Capacity => Failure::user(&error.message),
        Blame::Ours if error.code == TEMPLATE_BROKEN => Failure::user(format!(
            "{}: the log has the reason; --chat-template FILE names another template",
            error.message
        )),
        Blame::Ours => Failure::bug(&error.message),
    }
}

/// Unparks a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks the current thread.
pub(crate) fn thread_waker() -> Waker {
    Waker::from(Arc::new(ThreadWaker(thread::current())))
}

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const INTERRUPTED: u8 = 2;
/// The exit code after an interrupt: 128 and SIGINT.
const INTERRUPT_EXIT: i32 = 128 + 2;

/// Effect of a signal between answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenIdle {
    /// None: a line editor reads Ctrl-C as a key.
    Continue,
    /// The program exits, as without a handler.
    Exit,
}

/// The handler of SIGINT, for the rest of the process.
pub(crate) struct Interrupts {
    state: Arc<AtomicU8>,
}

/// The state while the model answers.
pub(crate) struct Answering<'a>(&'a AtomicU8);

impl Interrupts {
    /// Installs the handler. The current thread is the one that reads answers.
    ///
    /// # Errors
    /// The system has no thread, or rejects the handler.
    pub(crate) fn start(when_idle: WhenIdle) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let context = runtime.enter();
        let signals = Interrupt::new()?;
        drop(context);
        let state = Arc::new(AtomicU8::new(IDLE));
        let (watched, reader) = (Arc::clone(&state), thread::current());
        let watch = move || runtime.block_on(watch_signals(signals, &watched, &reader, when_idle));
        thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(watch)
            .map_err(|why| Failure::no_thread("interrupts", &why))?;
        Ok(Self { state })
    }

    /// Marks the beginning of an answer; dropping the value marks the end.
    pub(crate) fn answering(&self) -> Answering<'_> {
        self.state.store(ANSWERING, Ordering::Release);
        Answering(&self.state)
    }
}

impl Answering<'_> {
    /// Whether the answer shall end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Acquire) == INTERRUPTED
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Release);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the process ends as without a handler: at once, from any thread"
)]
async fn watch_signals(
    mut signals: Interrupt,
    state: &AtomicU8,
    reader: &Thread,
    when_idle: WhenIdle,
) {
    while signals.next().await.is_some() {
        let (from, to) = (ANSWERING, INTERRUPTED);
        match state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => reader.unpark(),
            Err(IDLE) if when_idle == WhenIdle::Continue => {}
            Err(_) => std::process::exit(INTERRUPT_EXIT),
        }
    }
}
