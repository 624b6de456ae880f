//! An engine process that is stepped by hand.

use super::super::{Admission, Attempts, ExecutorModel, Settled, start};
use crate::messages::{Attempt, ContentIdentity, Run, RunChoice, RunReply, TokenBatch};
use crate::names::InstanceId;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Next, SamplingParams, Token, TopLogprob};
use generate::constraint::compiler::{ConstraintCompiler, ConstraintOptions, OutputConstraints};
use generate::model_handle::ModelHandle;
use generate::output::parser_config::ParseOptions;
use generate::prompt::{PreparedPrompt, PromptEncoder};
use generate::request::{GenerationParams, Prompt};
use generate::submit::{NoHost, Submission};
use model::Dims;
use std::time::{Duration, Instant};
use stream::{End, PoolLimits};
use testing::small_vocabulary as vocab;
use text::ChatTemplate;

pub(super) const ENGINE: InstanceId = InstanceId(0xE);
pub(super) const KEY: &str = "model";

/// A request.
pub(super) struct Case {
    pub(super) label: &'static str,
    pub(super) params: GenerationParams,
    pub(super) n: usize,
    pub(super) credit_window: u64,
}

pub(super) struct EngineProcess {
    pub(super) engine: Engine,
    pub(super) models: [ExecutorModel; 1],
    pub(super) attempts: Attempts,
    pub(super) now: Instant,
}

/// Items of a log with the bits of their log-probabilities, alternatives, and the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LogBits {
    pub(super) tokens: Vec<(u32, u32)>,
    pub(super) top: Vec<(u32, u32)>,
    pub(super) end: Option<End>,
}

impl LogBits {
    pub(super) fn push(&mut self, tokens: &[Token], top: &[TopLogprob]) {
        self.tokens
            .extend(tokens.iter().map(|t| (t.id, t.logprob.to_bits())));
        self.top
            .extend(top.iter().map(|t| (t.id, t.logprob.to_bits())));
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.0).collect()
    }
}

pub(super) fn identity() -> ContentIdentity {
    ContentIdentity {
        weights: "fake".to_owned(),
        ..ContentIdentity::default()
    }
}

impl EngineProcess {
    pub(super) fn new(now: Instant, sequences_max: usize) -> Self {
        let config = FakeConfig {
            dims: Dims {
                vocab: 258 + vocab::WORDS.len(),
                context_max: 512,
                page_tokens: 8,
                pages: 512,
                rows_max: 64,
                logit_rows_max: 32,
            },
            eos: vocab::EOS,
            eos_probability: 0.02,
            tokens: 97..123,
            ..FakeConfig::default()
        };
        let _context_max = config.dims.context_max;
        let engine = EngineConfig {
            sequences_max,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(Box::new(FakeModel::new(config)), engine, now).unwrap();
        let limits = PoolLimits { segments_max: 4096 };
        let template = ChatTemplate::new("{{ messages[-1].content }}", "", "").unwrap();
        let handle = ModelHandle::new(
            engine.handle(),
            vocab::tokenizer(),
            template,
            &[vocab::EOS],
            limits,
        );
        let model = ExecutorModel::new(KEY.to_owned(), identity(), handle);
        Self {
            engine,
            models: [model],
            attempts: Attempts::new(ENGINE),
            now,
        }
    }

    pub(super) fn step(&mut self) -> Next {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now).next
    }

    /// Steps until the engine has no work.
    pub(super) fn run_until_idle(&mut self) {
        for _ in 0..5_000 {
            if self.step() == Next::Sleep {
                return;
            }
        }
        panic!("not done after 5000 steps");
    }

    pub(super) fn prompts(&self, case: &Case) -> Vec<PreparedPrompt> {
        let wanted = ParseOptions {
            tool_calling: case.params.tool_calling,
            structured_output: case.params.response_format.is_some(),
        };
        let prompt = Prompt::Text(format!("some words first: {}", case.label));
        let encoder = PromptEncoder::new(&self.models[0].handle, 0);
        encoder.prepare(vec![prompt], false, wanted).unwrap()
    }

    fn constraints(&self, case: &Case) -> OutputConstraints {
        let options = ConstraintOptions::new(&case.params, &self.prompts(case), false);
        let compiler = ConstraintCompiler::new(&self.models[0].handle);
        compiler.compile(&options).unwrap()
    }

    pub(super) fn submission<'a>(
        &'a self,
        case: &'a Case,
        constraints: &'a OutputConstraints,
    ) -> Submission<'a> {
        Submission {
            model: &self.models[0].handle,
            params: &case.params,
            constraints,
            n: case.n,
            context_max: self.models[0].handle.context_max,
            seed: 17,
            deadline: None,
            terms: engine::Terms::default(),
            credit_window: case.credit_window,
            reports_prompt: false,
            retry_after: Duration::ZERO,
        }
    }

    /// The first attempt of the request of a gateway.
    pub(super) fn run_of(&self, case: &Case, gateway: InstanceId, handle: u64) -> Run {
        let constraints = self.constraints(case);
        let prompt = &self.prompts(case)[0];
        let record = self
            .submission(case, &constraints)
            .remote_request(prompt, (0, case.n), &[]);
        let echoed = usize::from(case.params.prompt_logprobs);
        let given = RunChoice {
            ids: prompt.ids[..echoed].to_vec(),
            has_ended: false,
        };
        Run {
            handle,
            attempt: 1,
            gateway,
            model_key: KEY.to_owned(),
            identity: identity(),
            request: record.encode().unwrap(),
            choices: vec![given; case.n],
            ..Run::default()
        }
    }

    /// The logs of an uninterrupted local generation.
    pub(super) fn local(case: &Case, now: Instant) -> Vec<LogBits> {
        let mut process = Self::new(now, 64);
        let constraints = process.constraints(case);
        let case_without_credit = Case {
            params: case.params.clone(),
            credit_window: 0,
            ..*case
        };
        let submission = process.submission(&case_without_credit, &constraints);
        let (started, _readers) = submission.start(process.prompts(case), &NoHost).unwrap();
        process.run_until_idle();
        let top_n = case.params.sampling.top_logprobs as usize;
        let logs = started.choices.iter().map(|log| {
            let blank = Token::default();
            let mut tokens = vec![blank; log.tokens.len() as usize];
            log.tokens.copy_items(0, &mut tokens);
            let blank = TopLogprob::default();
            let mut top = vec![blank; tokens.len() * top_n];
            if let Some(log) = &log.top {
                log.copy_items(0, &mut top);
            }
            let mut bits = LogBits::default();
            bits.push(&tokens, &top);
            bits.end = log.tokens.end();
            bits
        });
        logs.collect()
    }

    /// Admits and submits at once. `None`: the request waits for its answer.
    pub(super) fn submit(&mut self, run: Run) -> Option<RunReply> {
        match self
            .attempts
            .admit(Box::new(run), "reply".to_owned(), self.now)
        {
            Admission::Answer(reply) => Some(reply),
            Admission::Wait => None,
            Admission::Start(run) => {
                let Settled { answers, reply } = self.settle(*run);
                assert_eq!(answers, ["reply"]);
                Some(reply)
            }
        }
    }

    pub(super) fn settle(&mut self, run: Run) -> Settled {
        let attempt = Attempt {
            handle: run.handle,
            attempt: run.attempt,
        };
        let gateway = run.gateway;
        let outcome = start(&self.models, run, self.now);
        self.attempts.settle((gateway, attempt), outcome)
    }

    /// All messages since the last call, encoded.
    pub(super) fn messages(&mut self) -> Vec<(InstanceId, Vec<u8>)> {
        let mut messages = Vec::new();
        self.attempts.send_news(self.now, &mut |gateway, batch| {
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            messages.push((gateway, bytes));
        });
        messages
    }
}

pub(super) fn decode(bytes: &[u8]) -> TokenBatch {
    let mut batch = TokenBatch::default();
    batch.decode_into(bytes).unwrap();
    batch
}

#[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
pub(super) fn epoch() -> Instant {
    Instant::now()
}

pub(super) fn sampled(max_tokens: usize) -> GenerationParams {
    GenerationParams {
        sampling: SamplingParams {
            temperature: 0.9,
            repetition_penalty: 1.1,
            presence_penalty: 0.2,
            logprobs: true,
            top_logprobs: 2,
            ..SamplingParams::default()
        },
        max_tokens: Some(max_tokens),
        ..GenerationParams::default()
    }
}
