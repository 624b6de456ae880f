//! Images that another model describes, for a model that reads text only: as a server has them described (`vision.proxy`), one
//! after the other, each once.

use super::generator::{Answer, Answering, Generator, read_answer, request_failure};
use super::options::AnswerOptions;
use super::printer::AnswerPrinter;
use crate::config::Settings;
use crate::failure::Failure;
use crate::loading::{self, LoadedEngine};
use crate::model_store::ModelStore;
use crate::terminal_text::printable_lines;
use engine::CacheSalt;
use generate::error::ApiError;
use generate::images::{DescriptionUsage, ImagePart, put_descriptions, question_about};
use generate::request::Prompt;
use serde_json::{Map, Value};
use server::{
    DescriptionCache, DescriptionRequest, OnFailure, VisionProxy, VisionServer, bounded_description,
};
use std::cell::OnceCell;
use std::io;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use stream::End;
use text::{Message, image_part, text_part};
use wire::clock::thread_time;

/// Names the content of the model in keys of descriptions: one process has one such model, and its files do not change.
const FINGERPRINT: [u8; 32] = [0; 32];
/// Time between two looks whether Ctrl-C was pressed, while another server describes.
const LOOK: Duration = Duration::from_millis(100);

/// The model that describes images for the one of a command.
pub(super) struct ImageDescriber {
    proxy: VisionProxy,
    /// The setting that names the model.
    key: String,
    settings: Settings,
    /// Loaded with the first image; never where another server has it.
    model: OnceCell<DescribingModel>,
    cache: DescriptionCache,
}

/// A model with a tower, in memory.
struct DescribingModel {
    generator: Generator,
    loaded: Option<LoadedEngine>,
}

impl Drop for DescribingModel {
    fn drop(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            loaded.close();
        }
    }
}

/// A new description, and its tokens.
struct NewDescription {
    text: String,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Why an image was not described.
enum DescribeError {
    /// The image, the settings, or Ctrl-C: the command ends in any case.
    Command(Failure),
    /// The model, or the way to it.
    Model(String),
}

impl From<Failure> for DescribeError {
    fn from(failure: Failure) -> Self {
        Self::Command(failure)
    }
}

impl ImageDescriber {
    /// The describer for the model of this name; `None`: the settings name none.
    ///
    /// # Errors
    /// The file with the key of the other server cannot be used.
    pub(super) fn of_model(name: &str, settings: &Settings) -> Result<Option<Self>, Failure> {
        let proxy = settings.of_model(name).vision_proxy();
        let Some(proxy) = proxy.map_err(Failure::User)? else {
            return Ok(None);
        };
        let named = settings.models.named.get(name);
        let key = match named.and_then(|named| named.vision_proxy.as_ref()) {
            Some(_) => format!("models.named.{name}.vision_proxy"),
            None => "vision.proxy.model".to_owned(),
        };
        Ok(Some(Self {
            proxy,
            key,
            settings: settings.clone(),
            model: OnceCell::new(),
            cache: DescriptionCache::default(),
        }))
    }

    /// The prompt with descriptions in the places of its images. The progress and the new descriptions are printed.
    ///
    /// # Errors
    /// An image is broken, the model is not here or has no tower, Ctrl-C was pressed, or, unless a note is to take the place, the
    /// model failed.
    pub(super) fn describe(
        &self,
        (prompt, parts): (Prompt, &[ImagePart]),
        printer: &mut AnswerPrinter<'_>,
        answering: Option<&Answering<'_>>,
    ) -> Result<(Prompt, DescriptionUsage), Failure> {
        let checked = self.proxy.bounds.check(parts);
        checked.map_err(|why| request_failure(&why))?;
        let mut prompts = [prompt];
        let mut usage = DescriptionUsage {
            model: self.proxy.model.clone(),
            ..DescriptionUsage::default()
        };
        let jobs = parts.iter().enumerate().map(|(index, part)| {
            let question = question_about(&prompts, index);
            let prompt = self.proxy.prompt_about(&question);
            let named = (part, &part.digest());
            let salt = CacheSalt::default();
            let key = self.proxy.key_of(&FINGERPRINT, named, &prompt, salt);
            (part, prompt, key)
        });
        let jobs: Vec<_> = jobs.collect();
        let keys = jobs.iter().map(|(part, _, key)| (*part, *key));
        let few = self.proxy.expect_few(keys, &self.cache);
        few.map_err(|why| request_failure(&why))?;
        let mut texts = Vec::with_capacity(parts.len());
        for (index, (part, prompt, key)) in jobs.into_iter().enumerate() {
            if let Some(text) = self.cache.find(key) {
                usage.cached += 1;
                texts.push(self.proxy.described(index, &text));
                continue;
            }
            printer.print_note(&format!(
                "describing image {} of {}",
                index + 1,
                parts.len()
            ));
            let text = match self.make((part, &prompt), answering) {
                Ok(made) => {
                    usage.prompt_tokens += made.prompt_tokens;
                    usage.completion_tokens += made.completion_tokens;
                    let text: Arc<str> = made.text.into();
                    let entries_max = self.proxy.cache_entries;
                    self.cache.keep(key, Arc::clone(&text), entries_max);
                    self.proxy.described(index, &text)
                }
                Err(why) => self.without_description(index, why)?,
            };
            printer.print_note(&printable_lines(&text));
            texts.push(text);
        }
        put_descriptions(&mut prompts, &texts);
        let [prompt] = prompts;
        Ok((prompt, usage))
    }

    /// The note in place of a description, or the error of the command.
    fn without_description(&self, index: usize, why: DescribeError) -> Result<String, Failure> {
        let name = &self.proxy.model;
        match (why, self.proxy.on_failure) {
            (DescribeError::Command(failure), _) => Err(failure),
            (DescribeError::Model(why), OnFailure::Error) => {
                Err(Failure::user(format!("vision model {name} failed: {why}")))
            }
            (DescribeError::Model(why), OnFailure::Note) => {
                tracing::warn!("vision model {name} failed: {why}");
                Ok(self.proxy.note(index))
            }
        }
    }

    /// Has an image described.
    fn make(
        &self,
        (part, prompt): (&ImagePart, &str),
        answering: Option<&Answering<'_>>,
    ) -> Result<NewDescription, DescribeError> {
        let made = match &self.proxy.server {
            Some(server) => self.make_there(server, (part, prompt), answering),
            None => self.make_here((part, prompt), answering),
        };
        match made {
            Ok(made) if made.text.is_empty() => {
                Err(DescribeError::Model("the description is empty".to_owned()))
            }
            made => made,
        }
    }

    /// Has a model of this process describe an image.
    fn make_here(
        &self,
        (part, prompt): (&ImagePart, &str),
        answering: Option<&Answering<'_>>,
    ) -> Result<NewDescription, DescribeError> {
        let generator = &self.model()?.generator;
        let options = AnswerOptions::of_description(&self.proxy);
        let prompt = options.conversation(vec![Message {
            role: "user".to_owned(),
            content: Value::Array(vec![image_part(0), text_part(prompt)]),
            rest: Map::new(),
        }]);
        let started = generator.start_answer((prompt, slice::from_ref(part)), &options);
        let started = started.map_err(|why| of_image(why, part))?;
        let mut nothing = io::sink();
        let mut printer = AnswerPrinter::silent(&mut nothing);
        let answer = read_answer(started, &mut printer, answering)?;
        match answer.end {
            End::Cancelled => return Err(interrupted(part).into()),
            End::Deadline => return Err(self.too_late()),
            _ => {}
        }
        let complete = answer.expect_complete(generator);
        complete.map_err(|why| DescribeError::Model(why.to_string()))?;
        Ok(NewDescription::of_answer(&answer))
    }

    /// The model, which is loaded with the first image.
    fn model(&self) -> Result<&DescribingModel, Failure> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let store = ModelStore::local(&self.settings);
        let found = store.find_vision_proxy(&self.key, &self.proxy.model)?;
        let source = store.source_of(found.weights.as_deref());
        let settings = source.settings(&self.settings);
        let loaded = loading::load_source(&source, &settings)?;
        if loaded.handle.vision.is_none() {
            let (key, name) = (&self.key, &self.proxy.model);
            let why = format!("{key}: {name:?} was loaded without its tower (model.mmproj)");
            return Err(Failure::user(why));
        }
        let generator = Generator::new(&loaded, &settings)?;
        Ok(self.model.get_or_init(|| DescribingModel {
            generator,
            loaded: Some(loaded),
        }))
    }

    /// Has another server describe an image.
    fn make_there(
        &self,
        server: &VisionServer,
        (part, prompt): (&ImagePart, &str),
        answering: Option<&Answering<'_>>,
    ) -> Result<NewDescription, DescribeError> {
        let begun = thread_time();
        let spent = || thread_time().saturating_sub(begun);
        let whole = self.proxy.bounds.decode(part, &spent);
        whole.map_err(|why| DescribeError::Command(request_failure(&why)))?;
        let request = DescriptionRequest {
            model: &self.proxy.model,
            prompt,
            part,
            max_tokens: self.proxy.max_tokens,
            temperature: self.proxy.temperature,
            // The time for the whole is over before.
            timeout: self.proxy.timeout.saturating_mul(2),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let made = runtime.map_err(Failure::from)?.block_on(async {
            let mut made = pin!(tokio::time::timeout(
                self.proxy.timeout,
                server.describe(&request)
            ));
            loop {
                if let Ok(made) = tokio::time::timeout(LOOK, &mut made).await {
                    return made.map_err(|_| self.too_late());
                }
                if answering.is_some_and(Answering::is_interrupted) {
                    return Err(interrupted(part).into());
                }
            }
        });
        let made = made?.map_err(|why| DescribeError::Model(why.message))?;
        Ok(NewDescription {
            text: bounded_description(&made.text, made.is_cut),
            prompt_tokens: made.prompt_tokens,
            completion_tokens: made.completion_tokens,
        })
    }

    fn too_late(&self) -> DescribeError {
        let ms = self.proxy.timeout.as_millis();
        DescribeError::Model(format!(
            "no description within {ms} ms (vision.proxy.timeout_ms)"
        ))
    }
}

impl NewDescription {
    fn of_answer(answer: &Answer) -> Self {
        let is_cut = answer.end == End::Length;
        Self {
            text: bounded_description(&answer.collected.text(), is_cut),
            prompt_tokens: answer.usage.prompt_tokens,
            completion_tokens: answer.usage.completion_tokens,
        }
    }
}

/// The error of a request for a description, which may be one of the image.
fn of_image(why: ApiError, part: &ImagePart) -> DescribeError {
    if why
        .problems
        .iter()
        .any(|problem| problem.field == part.path)
    {
        return DescribeError::Command(request_failure(&why));
    }
    DescribeError::Model(why.message)
}

fn interrupted(part: &ImagePart) -> Failure {
    Failure::user(format!("{}: its description was interrupted", part.path))
}
