//! A body over a hand-fed token log.

use crate::response::stream_body::StreamBody;
use admission::{
    AdaptiveLimits, Admission, AdmissionBounds, AdmissionRequest, Permit, Priority, QueueLimits,
    ResourceEstimate,
};
use engine::fake::{FakeConfig, FakeModel};
use engine::{Account, Engine, EngineConfig, Token, TopLogprob};
use futures_util::FutureExt;
use gateway::generation::Generation;
use gateway::id_generator::IdGenerator;
use gateway::keys::{KeyPermit, Keys};
use gateway::metrics::{MeteredProtocol, MeteredRequest};
use gateway::streams::{
    ChoiceLog, Started, StartedGeneration, StreamFeed, StreamLimits, StreamRecord, StreamRegistry,
    StreamRun, StreamTerms,
};
use generate::output::choice_reader::LogReaders;
use generate::output::parser_config::ParserConfig;
use generate::output::position::Position;
use generate::request::StreamOptions;
use generate::sampling::ReportedSampling;
use generate::stream_source::{StreamMeta, StreamSource};
use http_body::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stream::{Owner, PoolLimits, SegmentPool, StreamId, Writer};
use testing::small_vocabulary::tokenizer;
use wire::clock;
use wire::cursor::EventIds;
use wire::framing::Framing;
use wire::openai::chat_encoder::ReasoningField;
use wire::protocol::{EncoderSettings, Encoding, Protocol};

pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// One hand-fed choice and the body that reads it.
pub(crate) struct HandFedBody {
    pub(crate) record: Arc<StreamRecord>,
    pub(crate) body: StreamBody,
    pub(crate) writer: HandFedWriter,
}

/// The writers of the choice.
pub(crate) struct HandFedWriter {
    pub(crate) tokens: Writer<Token>,
    top: Option<Writer<TopLogprob>>,
    top_n: usize,
}

impl HandFedBody {
    pub(super) fn new(
        capacity: usize,
        stops: &[&str],
        top_n: usize,
        stream_options: &StreamOptions,
    ) -> Self {
        let limits = PoolLimits {
            segments_max: 1 << 16,
        };
        Self::in_pools(
            &SegmentPool::new(limits),
            &SegmentPool::new(limits),
            capacity,
            stops,
            top_n,
            stream_options,
            (Protocol::Chat, false),
        )
    }

    pub(super) fn in_pools(
        pool: &SegmentPool<Token>,
        top_pool: &SegmentPool<TopLogprob>,
        capacity: usize,
        stops: &[&str],
        top_n: usize,
        stream_options: &StreamOptions,
        (protocol, resumable): (Protocol, bool),
    ) -> Self {
        let meta = meta(1, stops, top_n, stream_options);
        let framing = protocol.framing().or_requested(None);
        let mut fed = Self::encoded((pool, top_pool), capacity, meta, |source| {
            protocol.encoding(source, framing, EncoderSettings::default())
        });
        if resumable {
            let ids = EventIds::new(fed.record.id(), vec![Position::default()]);
            fed.body = fed.body.with_ids(ids);
        }
        fed
    }

    /// A choice with a log of `capacity` tokens, encoded with `encoding`.
    pub(crate) fn encoded(
        (pool, top_pool): (&SegmentPool<Token>, &SegmentPool<TopLogprob>),
        capacity: usize,
        meta: StreamMeta,
        encoding: impl FnOnce(&Arc<StreamSource>) -> Encoding,
    ) -> Self {
        let top_n = meta.top_n;
        let (tokens, reader) = stream::open(pool, capacity).unwrap();
        let top = (top_n > 0).then(|| stream::open(top_pool, capacity * top_n).unwrap());
        let (top, top_reader) = top.unzip();
        let readers = LogReaders {
            tokens: reader,
            top: top_reader,
        };
        let generation = generation(meta, vec![readers]);
        let record = Arc::clone(generation.record());
        let encoding = encoding(record.source());
        let generation = generation.with_metrics(&Arc::default(), metered_request());
        Self {
            record,
            body: StreamBody::new(generation, encoding, KEEP_ALIVE),
            writer: HandFedWriter { tokens, top, top_n },
        }
    }

    pub(super) fn append(&mut self, id: u32) {
        self.writer.append(id);
    }

    /// Length of the next frame; `None` at the end.
    pub(super) fn poll_length(&mut self) -> Poll<Option<usize>> {
        let frame = Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(Waker::noop()));
        frame.map(|frame| frame.map(|Ok(frame)| frame.data_ref().unwrap().len()))
    }

    /// All frames that are available now, as text.
    pub(super) fn read(&mut self) -> String {
        let mut text = String::new();
        while let Poll::Ready(Some(Ok(frame))) =
            Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(Waker::noop()))
        {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        text
    }
}

impl HandFedWriter {
    /// Appends a token, with `top_n` alternatives.
    pub(crate) fn append(&mut self, id: u32) {
        for i in 0..self.top_n {
            let id = u32::try_from(i).unwrap();
            self.top
                .as_mut()
                .unwrap()
                .append(TopLogprob { id, logprob: -0.5 })
                .unwrap();
        }
        self.tokens.append(Token { id, logprob: -0.25 }).unwrap();
    }
}

/// Metadata of a stream with these options.
pub(crate) fn meta(
    choices: usize,
    stops: &[&str],
    top_n: usize,
    stream_options: &StreamOptions,
) -> StreamMeta {
    StreamMeta {
        id: StreamId::from_random(IdGenerator::new().next_random()),
        response_id: "chatcmpl-1".to_owned(),
        created_unix_s: 7,
        arrived: clock::now(),
        model: "m".to_owned(),
        stream_options: stream_options.clone(),
        prompts: 1,
        choices,
        sampling: ReportedSampling::default(),
        stops: stops.iter().map(|&stop| stop.to_owned()).collect(),
        logprobs: top_n > 0,
        top_n,
    }
}

/// Terms without any option.
pub(super) fn stream_terms() -> StreamTerms {
    StreamTerms {
        owner: Owner(0),
        protocol: Protocol::Chat,
        framing: Framing::Sse,
        reasoning_field: ReasoningField::default(),
        resumable: false,
        detachable: false,
        explicit_acks: false,
        credit_window: 100,
        detached_tokens: 0,
    }
}

/// A started plain stream with these logs.
pub(super) fn generation(meta: StreamMeta, readers: Vec<LogReaders>) -> Generation {
    let mut run = registered(meta, stream_terms());
    start(&mut run, &readers);
    Generation::for_client(run, readers).expect("it was started")
}

/// A registered stream that has not started.
pub(super) fn registered(meta: StreamMeta, terms: StreamTerms) -> StreamRun {
    let streams = StreamRegistry::new(StreamLimits::default(), KEEP_ALIVE, StreamFeed::new());
    let registration = streams.open(meta, terms, None, clock::now());
    let registration = registration.unwrap_or_else(|e| panic!("{}", e.message));
    StreamRun::new(registration, key_permit())
}

/// Starts a registered stream with these logs.
pub(super) fn start(run: &mut StreamRun, readers: &[LogReaders]) {
    let log = |readers: &LogReaders| ChoiceLog {
        echoed: 0,
        tokens: readers.tokens.tap(),
        gate: None,
        top: readers.top.as_ref().map(stream::Reader::tap),
        at_text_start: false,
        reading: ParserConfig::default(),
        echo_text: None,
        prompt: None,
    };
    let started = Started {
        generation: StartedGeneration {
            image_tokens: 0,
            described: None,
            engine: idle_engine(),
            tokenizer: tokenizer(),
            requests: Vec::new(),
            choices: readers.iter().map(log).collect(),
            prompt_tokens: 3,
            resumed: None,
        },
        program: None,
    };
    run.start_stream(started, permit().latency_reporter());
}

/// A permit for one sequence.
fn permit() -> Permit {
    let admission = Admission::new(AdmissionBounds {
        adaptive: AdaptiveLimits::default(),
        queue: QueueLimits::default(),
        open_max: 1,
        seats: 1,
        pages_limit: 1,
        retry_after: KEEP_ALIVE,
    });
    let ticket = admission.request_permit(AdmissionRequest {
        class: Priority::Normal,
        account: Account { id: 0, weight: 1 },
        need: ResourceEstimate {
            streams: 1,
            pages: 1,
            pages_more: 1,
            prompt_tokens: 3,
        },
        is_recallable: false,
        deadline: None,
        who: 0,
    });
    let permit = ticket.ok().and_then(FutureExt::now_or_never);
    let Some(Ok(permit)) = permit else {
        panic!("no slot or page is free");
    };
    permit
}

/// A permit of the anonymous key.
pub(super) fn key_permit() -> KeyPermit {
    let caller = Keys::anonymous().identify(None).unwrap();
    caller.open_streams_permit(1).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "an epoch for an engine of a test"
)]
pub(super) fn idle_engine() -> engine::Handle {
    let now = std::time::Instant::now();
    let model = Box::new(FakeModel::new(FakeConfig::default()));
    Engine::new(model, EngineConfig::default(), now)
        .unwrap_or_else(|e| panic!("{e}"))
        .handle()
}

/// The description of a request for the metrics.
pub(super) fn metered_request() -> MeteredRequest {
    MeteredRequest {
        protocol: MeteredProtocol::Wire(Protocol::Chat),
        stream: true,
        attached: false,
        arrived: wire::clock::now(),
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}
