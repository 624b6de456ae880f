//! A remote handle with a relay, and requests.

use crate::fake_server::{EOS, FakeServer};
use engine::remote::remote_handle;
use engine::{Choice, EngineConfig, Handle, Rejected, Request, SamplingParams, Token};
use generate::remote_request::{RecordTerms, RemoteRequest};
use generate::request::GenerationParams;
use generate::request_record::PromptRecord;
use model::Dims;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stream::{End, PoolLimits, Read, Reader, SegmentPool};
use testing::vocabulary::Vocabulary;
use text::TextCover;
use tokio::time::{sleep, timeout};
use upstream::{UpstreamApi, UpstreamConfig, UpstreamModel, UpstreamRelay, UpstreamStatus};

const DIMS: Dims = Dims {
    vocab: 300,
    context_max: 4096,
    page_tokens: 16,
    pages: 4096,
    rows_max: 16,
    logit_rows_max: 16,
};
pub(crate) const PROMPT: [u32; 3] = [5, 9, 11];

pub(crate) struct Rig {
    pub(crate) handle: Handle,
    pub(crate) relay: UpstreamRelay,
    pub(crate) status: Arc<UpstreamStatus>,
    pool: SegmentPool<Token>,
}

/// What a test changes of a request.
pub(crate) struct Asked {
    pub(crate) temperature: f32,
    pub(crate) penalty: f32,
    pub(crate) max_tokens: usize,
    pub(crate) min_tokens: u32,
    pub(crate) choices: usize,
    pub(crate) credit_window: u64,
    /// Whether the prompt is a rendered conversation, whose answer is parsed here.
    pub(crate) is_conversation: bool,
    pub(crate) params: GenerationParams,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            penalty: 0.0,
            max_tokens: 24,
            min_tokens: 0,
            choices: 1,
            credit_window: 0,
            is_conversation: false,
            params: GenerationParams::default(),
        }
    }
}

impl Rig {
    /// A relay to these servers, after those that are alive were found.
    pub(crate) async fn new(servers: &[&FakeServer]) -> Self {
        Self::with_api(UpstreamApi::Auto, servers).await
    }

    pub(crate) async fn with_api(api: UpstreamApi, servers: &[&FakeServer]) -> Self {
        let addresses = servers.iter().map(|server| server.address.parse().unwrap());
        let mut config = UpstreamConfig::new(addresses.collect());
        config.api = api;
        config.api_key = Some("sk-test".to_owned());
        config.retry = Duration::from_millis(5);
        config.unreachable_max = Duration::from_millis(100);
        let alive = servers.iter().filter(|s| s.is_alive.load(Ordering::SeqCst));
        let alive = alive.count() as u64;
        // Without any that can be used, only the shorter wait ends a request.
        if alive > 0 {
            config.unplaced_max = Duration::from_millis(500);
        }
        let status = UpstreamStatus::start(config);
        wait_for("the probes", async || {
            (status.counts().usable == alive).then_some(())
        })
        .await;
        let epoch = tokio::time::Instant::now().into_std();
        let (handle, inbox) = remote_handle(DIMS, EngineConfig::default(), epoch).unwrap();
        let tokenizer = Vocabulary::of_bytes().with_eos("</s>").into_tokenizer();
        let cover = Arc::new(TextCover::new(Arc::clone(&tokenizer)).unwrap());
        let eos = match servers {
            [] => EOS,
            [server, ..] => server.eos,
        };
        let model = UpstreamModel {
            eos: Arc::from([eos]),
            tokenizer,
            inbox,
        };
        Self {
            handle,
            relay: UpstreamRelay::start(Arc::clone(&status), model, Some(cover)),
            status,
            pool: SegmentPool::new(PoolLimits { segments_max: 4096 }),
        }
    }

    /// Submits a request; readers in choice order.
    pub(crate) fn submit(&self, asked: Asked) -> Vec<Reader<Token>> {
        self.try_submit(asked).unwrap()
    }

    /// As [`Rig::submit`]; the reason of a rejection.
    pub(crate) fn try_submit(&self, asked: Asked) -> Result<Vec<Reader<Token>>, String> {
        let sampling = SamplingParams {
            temperature: asked.temperature,
            presence_penalty: asked.penalty,
            min_tokens: asked.min_tokens,
            ..SamplingParams::default()
        };
        let record = RemoteRequest {
            prompt: PromptRecord {
                ids: PROMPT.to_vec(),
                text: asked.is_conversation.then(|| "<user>".to_owned()),
                ..PromptRecord::default()
            },
            params: GenerationParams {
                sampling: sampling.clone(),
                max_tokens: Some(asked.max_tokens),
                ..asked.params
            },
            n: asked.choices,
            first_choice: 0,
            context_max: 4096,
            seed: 7,
            credit_window: asked.credit_window,
            terms: RecordTerms::default(),
            in_effect: engine::RequestUpdate::default(),
            embedding: None,
            images: Vec::new(),
        };
        let opened =
            (0..asked.choices).map(|_| stream::open(&self.pool, asked.max_tokens).unwrap());
        let (writers, readers): (Vec<_>, Vec<_>) = opened.unzip();
        let choices = writers.into_iter().map(Choice::new);
        let request = Request {
            sampling,
            eos: Arc::from([EOS]),
            choices: choices.collect(),
            credit_window: asked.credit_window,
            remote: Some(record.encode().unwrap().into()),
            ..Request::new(PROMPT.to_vec(), asked.max_tokens)
        };
        match self.handle.submit(request) {
            Ok(_) => Ok(readers),
            Err(Rejected::Invalid(_, why)) => Err(why),
            Err(_) => Err("no room".to_owned()),
        }
    }
}

/// Tokens that are there, and the end.
pub(crate) fn read(reader: &mut Reader<Token>) -> (Vec<u32>, Option<End>) {
    let (mut buf, mut ids) = ([Token::default(); 16], Vec::new());
    loop {
        match reader.read(&mut buf) {
            Read::Items(count) => ids.extend(buf[..count].iter().map(|token| token.id)),
            Read::Ended(end) => return (ids, Some(end)),
            Read::Empty => return (ids, None),
        }
    }
}

/// Reads to the end.
pub(crate) async fn read_all(reader: &mut Reader<Token>) -> (Vec<u32>, End) {
    let mut ids = Vec::new();
    wait_for("the end", async || {
        let (more, end) = read(reader);
        ids.extend(more);
        end.map(|end| (std::mem::take(&mut ids), end))
    })
    .await
}

/// Looks until there is a value.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    let found = timeout(Duration::from_secs(60), looks).await;
    found.unwrap_or_else(|_| panic!("{what} does not come"))
}
