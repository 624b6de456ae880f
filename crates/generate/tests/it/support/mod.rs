//! An engine stepped by hand under a loaded model, and generations whose logs are read through their gates.

pub(crate) mod scripted;

use self::scripted::Scripted;
use engine::fake::FakeConfig;
use engine::{Engine, EngineConfig, Next, Progress, Token, TopLogprob};
use generate::constraint::compiler::{ConstraintCompiler, ConstraintOptions, OutputConstraints};
use generate::error::ApiError;
use generate::model_handle::{ModelAdapter, ModelAdapters, ModelHandle};
use generate::output::parser_config::ParseOptions;
use generate::prompt::{PreparedPrompt, PromptEncoder};
use generate::request::{GenerationParams, Prompt};
use generate::stream_source::{ChoiceLog, StartedGeneration};
use generate::submit::{ResumedChoice, ResumedGeneration, Submission, SubmissionHost};
use model::Dims;
use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};
use stream::{PoolLimits, Read};
use testing::small_vocabulary as vocab;
use text::{AnswerFormat, ChatTemplate, ToolFamily};

/// Steps after which a run counts as stuck.
const STEPS_MAX: usize = 5_000;

/// A request, and how the model answers.
pub(crate) struct Case {
    pub(crate) label: &'static str,
    pub(crate) answers: AnswerFormat,
    /// The text that the model follows loosely; empty: random letters.
    pub(crate) script: &'static str,
    pub(crate) prompts: fn() -> Vec<Prompt>,
    pub(crate) params: GenerationParams,
    pub(crate) n: usize,
    pub(crate) eos_probability: f32,
    pub(crate) engine: EngineConfig,
}

/// An engine that is stepped by hand, with everything that a request of the case needs.
pub(crate) struct Bench<'a> {
    case: &'a Case,
    engine: Engine,
    now: Instant,
    pub(crate) model: ModelHandle,
    constraints: OutputConstraints,
    prompt_len: Arc<OnceLock<usize>>,
}

/// Host of a recorded stream.
#[derive(Default)]
pub(crate) struct RecordingHost {
    /// Number of requests of a resumed stream.
    pub(crate) requests: Cell<Option<usize>>,
    /// Calls of `progress`.
    pub(crate) asked: Cell<usize>,
}

impl SubmissionHost for RecordingHost {
    fn progress(&self, _: usize) -> Progress {
        self.asked.set(self.asked.get() + 1);
        Progress::default()
    }

    fn recorder(&self) -> Option<Waker> {
        Some(Waker::noop().clone())
    }

    fn set_requests(&self, count: usize) {
        self.requests.set(Some(count));
    }
}

/// The fake model's adapters.
fn adapters() -> ModelAdapters {
    let adapter = |name: &str| ModelAdapter::new(name.into(), format!("{name}.gguf"), 0.0);
    ModelAdapters::new(["one", "two", "three"].map(adapter).into())
}

const POOL_LIMITS: PoolLimits = PoolLimits { segments_max: 4096 };

impl<'a> Bench<'a> {
    #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
    pub(crate) fn new(case: &'a Case) -> Self {
        let in_channels = case.answers.tools == ToolFamily::Harmony;
        let (tokenizer, words): (_, &[&[u8]]) = if in_channels {
            (vocab::in_channels(), &vocab::CHANNELS)
        } else {
            (vocab::tokenizer(), &vocab::WORDS)
        };
        let config = FakeConfig {
            dims: Dims {
                vocab: 258 + words.len(),
                context_max: 256,
                page_tokens: 8,
                pages: 256,
                rows_max: 64,
                logit_rows_max: 32,
            },
            eos: vocab::EOS,
            eos_probability: case.eos_probability,
            tokens: 97..123,
            ..FakeConfig::default()
        };
        let _context_max = config.dims.context_max;
        let prompt_len = Arc::new(OnceLock::new());
        let script = script_tokens(case.script, words);
        let model = Scripted::new(config, script, Arc::clone(&prompt_len));
        let now = Instant::now();
        let mut engine = Engine::new(Box::new(model), case.engine, now).expect("bounds");
        let template = if in_channels {
            "{{ messages[-1].content }}<|start|>assistant"
        } else {
            "{{ messages[-1].content }}"
        };
        let model = ModelHandle {
            adapters: Arc::new(adapters()),
            answers: case.answers,
            ..ModelHandle::new(
                engine.handle(),
                tokenizer,
                ChatTemplate::new(template, "", "").expect("a template"),
                &[vocab::EOS],
                POOL_LIMITS,
            )
        };
        let mut bench = Self {
            case,
            engine,
            now,
            model,
            constraints: OutputConstraints::default(),
            prompt_len,
        };
        let prompts = bench.prompts();
        let options = ConstraintOptions::new(&case.params, &prompts, true);
        let compiler = ConstraintCompiler::new(&bench.model);
        bench.constraints = compiler.compile(&options).expect("constraints");
        if !case.script.is_empty() {
            let _ = bench.prompt_len.set(prompts[0].ids.len());
        }
        bench
    }

    pub(crate) fn prompts(&self) -> Vec<PreparedPrompt> {
        let wanted = ParseOptions {
            tool_calling: self.case.params.tool_calling,
            structured_output: self.case.params.response_format.is_some(),
        };
        let encoder = PromptEncoder::new(&self.model, 0);
        let prompts = encoder.prepare((self.case.prompts)(), false, wanted);
        prompts.expect("prompts")
    }

    pub(crate) fn submission(&self) -> Submission<'_> {
        Submission {
            model: &self.model,
            params: &self.case.params,
            constraints: &self.constraints,
            n: self.case.n,
            context_max: self.model.context_max,
            seed: 17,
            deadline: None,
            terms: engine::Terms::default(),
            credit_window: 0,
            reports_prompt: false,
            retry_after: Duration::ZERO,
        }
    }

    pub(crate) fn start(&self) -> StartedGeneration {
        let started = self
            .submission()
            .start(self.prompts(), &RecordingHost::default());
        keep_watched(started.expect("room"))
    }

    pub(crate) fn resume(
        &self,
        resumed: ResumedGeneration,
        host: &RecordingHost,
    ) -> StartedGeneration {
        self.try_resume(resumed, host).expect("room")
    }

    pub(crate) fn try_resume(
        &self,
        resumed: ResumedGeneration,
        host: &RecordingHost,
    ) -> Result<StartedGeneration, ApiError> {
        let started = self.submission().resume(&self.prompts(), resumed, host);
        started.map(keep_watched)
    }

    pub(crate) fn step(&mut self) -> Next {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now).next
    }

    /// Steps until the engine has no work.
    pub(crate) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if matches!(self.step(), Next::Sleep | Next::Leave) {
                return;
            }
        }
        panic!("{}: not done after {STEPS_MAX} steps", self.case.label);
    }

    /// All choices so far.
    pub(crate) fn written(&self, started: &StartedGeneration) -> Vec<ResumedChoice> {
        let top_n = self.case.params.sampling.top_logprobs as usize;
        started
            .choices
            .iter()
            .map(|log| written(log, top_n))
            .collect()
    }
}

/// The readers would abandon the logs if they were dropped; a forgotten reader stays.
pub(crate) fn keep_watched<R>(
    (started, readers): (StartedGeneration, Vec<R>),
) -> StartedGeneration {
    readers.into_iter().for_each(std::mem::forget);
    started
}

/// Everything that was written into the logs of a choice, shown or not.
fn written(log: &ChoiceLog, top_n: usize) -> ResumedChoice {
    let gate = log.gate.as_ref().expect("a gated log");
    let (end, len) = (gate.written_end(), gate.written_len());
    let blank = Token::default();
    let mut tokens = vec![blank; usize::try_from(len).expect("small")];
    assert_eq!(gate.copy_written(0, &mut tokens), tokens.len());
    let mut top = Vec::new();
    if let Some(log) = &log.top {
        let mut reader = log.attach(0).expect("the beginning");
        let mut buffer = [TopLogprob::default(); 64];
        while let Read::Items(n) = reader.read(&mut buffer) {
            top.extend_from_slice(&buffer[..n]);
        }
    }
    top.truncate(tokens.len() * top_n);
    ResumedChoice { tokens, top, end }
}

/// The tokens of a text: words as their tokens, all else by bytes, then the end.
fn script_tokens(text: &str, words: &[&[u8]]) -> Vec<u32> {
    let mut rest = text.as_bytes();
    let mut tokens = Vec::new();
    while let Some(&byte) = rest.first() {
        let word = words.iter().position(|word| rest.starts_with(word));
        let (id, len) = match word {
            Some(at) => (vocab::WORD + at as u32, words[at].len()),
            None => (u32::from(byte), 1),
        };
        tokens.push(id);
        rest = &rest[len..];
    }
    tokens.push(vocab::EOS);
    tokens
}
