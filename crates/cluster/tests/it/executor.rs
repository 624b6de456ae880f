//! An executor over a NATS server: requests, tokens, orders, reads, a server that restarts, and the shutdown.

use crate::connection::{connect, wait_for};
use crate::nats_server::{NatsServer, program};
use async_nats::{Client, Subscriber};
use cluster::executor::{ExecutorModel, ExecutorService};
use cluster::messages::{
    ContentIdentity, Order, OrderKind, ReadEntry, ReadRequest, Rejection, Run, RunChoice, RunReply,
    TokenBatch, encode_orders,
};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Observer, RequestId, SamplingParams, StepFacts, Transition};
use futures_util::StreamExt;
use generate::model_handle::ModelHandle;
use generate::remote_request::{RecordTerms, RemoteRequest};
use generate::request::GenerationParams;
use generate::request_record::PromptRecord;
use model::Dims;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;
use stream::{End, FailCode, PoolLimits};
use testing::small_vocabulary as vocab;
use testing::wait::PATIENCE;
use text::ChatTemplate;
use tokio::time::timeout;

const ENGINE: InstanceId = InstanceId(0xE);
const GATEWAY: InstanceId = InstanceId(0x6);

/// Calls the executor after each step.
struct StepObserver(Arc<OnceLock<Waker>>);

impl Observer for StepObserver {
    fn transition(&mut self, _: RequestId, _: Transition, _: Instant) {}

    fn step(&mut self, _: &StepFacts) {
        if let Some(waker) = self.0.get() {
            waker.wake_by_ref();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
pub(crate) fn model(waker: &Arc<OnceLock<Waker>>) -> ModelHandle {
    let config = FakeConfig {
        dims: Dims {
            vocab: 258 + vocab::WORDS.len(),
            context_max: 4096,
            page_tokens: 8,
            pages: 2048,
            rows_max: 64,
            logit_rows_max: 32,
        },
        eos: vocab::EOS,
        tokens: 97..123,
        ..FakeConfig::default()
    };
    let fake = Box::new(FakeModel::new(config));
    let mut engine = Engine::new(fake, EngineConfig::default(), Instant::now()).unwrap();
    engine.observe(Box::new(StepObserver(Arc::clone(waker))));
    let (engine, _thread) = engine::spawn(engine).unwrap();
    let limits = PoolLimits { segments_max: 4096 };
    ModelHandle::new(
        engine,
        vocab::tokenizer(),
        ChatTemplate::new("{{ messages[-1].content }}", "", "").unwrap(),
        &[vocab::EOS],
        limits,
    )
}

/// A request; with a credit window it does not end by itself.
pub(crate) fn run(handle: u64, max_tokens: usize, credit_window: u64) -> Run {
    let sampling = SamplingParams {
        temperature: 0.8,
        logprobs: true,
        ..SamplingParams::default()
    };
    let request = RemoteRequest {
        prompt: PromptRecord {
            ids: vec![104, 105, 106],
            ..PromptRecord::default()
        },
        params: GenerationParams {
            sampling,
            max_tokens: Some(max_tokens),
            ..GenerationParams::default()
        },
        n: 1,
        first_choice: 0,
        context_max: 4096,
        seed: 5,
        credit_window,
        terms: RecordTerms::default(),
        in_effect: engine::RequestUpdate::default(),
        embedding: None,
        images: Vec::new(),
    };
    Run {
        handle,
        attempt: 1,
        gateway: GATEWAY,
        model_key: "fake".to_owned(),
        identity: ContentIdentity::default(),
        request: request.encode().unwrap(),
        choices: vec![RunChoice::default()],
        ..Run::default()
    }
}

/// A gateway beside an executor.
struct Bench {
    gateway: Connection,
    _engine: Connection,
    executor: ExecutorService,
    subjects: Subjects,
    tokens: Subscriber,
    /// Tokens by index in the log of the current request.
    ids: Vec<u32>,
    end: Option<End>,
}

/// Waits until the server has the executor's subscriptions: requests before that have no responder.
async fn wait_until_answered(gateway: &Connection, subjects: &Subjects) {
    let nothing = ReadRequest::default().encode().unwrap();
    let asked = timeout(PATIENCE, async {
        let ask = async || {
            let (subject, payload) = (subjects.read(ENGINE), nothing.clone().into());
            gateway.client().request(subject, payload).await
        };
        while ask().await.is_err() {}
    });
    asked.await.expect("an answer");
}

impl Bench {
    async fn start(server: &NatsServer) -> Self {
        let (gateway, engine) = (connect(server).await, connect(server).await);
        let subjects = Subjects::new(&ClusterName::new("test").unwrap());
        let waker = Arc::new(OnceLock::new());
        let model = ExecutorModel::new("fake".into(), ContentIdentity::default(), model(&waker));
        let client = engine.client().clone();
        let executor = ExecutorService::start(
            client,
            subjects.clone(),
            ENGINE,
            (vec![model], None),
            Arc::default(),
        )
        .await
        .unwrap();
        assert!(waker.set(executor.step_waker()).is_ok());
        wait_until_answered(&gateway, &subjects).await;
        let tokens = subjects.tokens(GATEWAY);
        let tokens = gateway.client().subscribe(tokens).await.unwrap();
        gateway.client().flush().await.unwrap();
        Self {
            gateway,
            _engine: engine,
            executor,
            subjects,
            tokens,
            ids: Vec::new(),
            end: None,
        }
    }

    fn client(&self) -> &Client {
        self.gateway.client()
    }

    async fn submit(&self, run: &Run) -> RunReply {
        let mut reply = RunReply::Received;
        for part in run.encode_parts().unwrap() {
            assert_eq!(reply, RunReply::Received);
            let subject = self.subjects.run(ENGINE);
            let answer = self.client().request(subject, part.into()).await.unwrap();
            reply = RunReply::decode(&answer.payload).unwrap();
        }
        reply
    }

    async fn order(&self, order: Order) {
        let mut bytes = Vec::new();
        encode_orders(GATEWAY, &[order], &mut bytes).unwrap();
        let subject = self.subjects.control(ENGINE);
        self.client().publish(subject, bytes.into()).await.unwrap();
    }

    fn take(&mut self, batch: &TokenBatch, handle: u64) {
        for run in batch.runs().filter(|run| run.key.handle == handle) {
            let first = run.key.first as usize;
            if first <= self.ids.len() {
                self.ids.truncate(first);
                self.ids.extend(run.tokens.iter().map(|token| token.id));
            }
        }
        let mut ends = batch.ends().iter().filter(|end| end.handle == handle);
        let end = ends.find(|end| end.len as usize == self.ids.len());
        self.end = end.map(|end| end.end).or(self.end);
    }

    /// Takes messages until the request has ended or has so many tokens.
    async fn wait(&mut self, handle: u64, tokens: usize) {
        let mut batch = TokenBatch::default();
        while self.end.is_none() && self.ids.len() < tokens {
            let message = timeout(PATIENCE, self.tokens.next()).await.expect("tokens");
            batch.decode_into(&message.unwrap().payload).unwrap();
            assert_eq!(batch.engine(), ENGINE);
            self.take(&batch, handle);
        }
    }

    /// Reads until the request has ended.
    async fn read(&mut self, handle: u64) {
        while self.end.is_none() {
            let entry = ReadEntry {
                handle,
                attempt: 1,
                have: vec![self.ids.len() as u32],
            };
            let request = ReadRequest {
                gateway: GATEWAY,
                entries: vec![entry],
            };
            let bytes = request.encode().unwrap();
            let subject = self.subjects.read(ENGINE);
            let answer = self.client().request(subject, bytes.into()).await;
            let Ok(answer) = answer else { continue };
            let mut batch = TokenBatch::default();
            batch.decode_into(&answer.payload).unwrap();
            assert!(batch.unknown().is_empty());
            self.take(&batch, handle);
        }
    }

    /// The tokens of another request.
    fn start_over(&mut self) -> Vec<u32> {
        self.end = None;
        std::mem::take(&mut self.ids)
    }
}

#[tokio::test]
async fn requests_are_answered_over_nats() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "executor", "");
    server.start();
    let mut bench = Bench::start(&server).await;
    assert_eq!(bench.submit(&run(1, 60, 0)).await, RunReply::Accepted);
    bench.wait(1, usize::MAX).await;
    assert_eq!((bench.ids.len(), bench.end), (60, Some(End::Length)));
    let first = bench.start_over();
    // The same request, read and not received; a long record comes in parts.
    let mut again = run(2, 60, 0);
    let mut record = again.request.clone();
    record.extend(std::iter::repeat_n(b' ', 2 << 20));
    again.request = record;
    assert!(again.encode_parts().unwrap().len() > 1);
    assert_eq!(bench.submit(&again).await, RunReply::Accepted);
    bench.read(2).await;
    assert_eq!(bench.start_over(), first);
    // Orders.
    assert_eq!(bench.submit(&run(3, 60, 10)).await, RunReply::Accepted);
    bench.wait(3, 5).await;
    bench
        .order(Order {
            handle: 3,
            attempt: 1,
            sequence: 1,
            kind: OrderKind::Cancel,
        })
        .await;
    bench.wait(3, usize::MAX).await;
    assert_eq!(bench.end, Some(End::Cancelled));
    bench.start_over();
    // Bytes that are no request.
    let subject = bench.subjects.run(ENGINE);
    let answer = bench.client().request(subject, "no request".into()).await;
    let reply = RunReply::decode(&answer.unwrap().payload).unwrap();
    assert!(
        matches!(
            reply,
            RunReply::Rejected {
                code: Rejection::Invalid,
                ..
            }
        ),
        "{reply:?}"
    );
    let mut other = run(4, 10, 0);
    other.model_key = "other".to_owned();
    let reply = bench.submit(&other).await;
    assert!(
        matches!(
            reply,
            RunReply::Rejected {
                code: Rejection::UnknownModel,
                ..
            }
        ),
        "{reply:?}"
    );
}

#[tokio::test]
async fn tokens_of_an_outage_are_read_afterwards() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "outage", "");
    server.start();
    let mut bench = Bench::start(&server).await;
    assert_eq!(bench.submit(&run(1, 3000, 0)).await, RunReply::Accepted);
    bench.wait(1, 10).await;
    server.kill();
    wait_for("no connection", || {
        (!bench.gateway.is_usable()).then_some(())
    })
    .await;
    server.start();
    wait_for("a connection", || bench.gateway.is_usable().then_some(())).await;
    bench.read(1).await;
    assert_eq!((bench.ids.len(), bench.end), (3000, Some(End::Length)));
    let received = bench.start_over();
    assert_eq!(bench.submit(&run(2, 3000, 0)).await, RunReply::Accepted);
    bench.read(2).await;
    assert_eq!(bench.ids, received, "tokens do not depend on the outage");
}

#[tokio::test]
async fn executor_that_leaves_gives_its_requests_back() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "leaving", "");
    server.start();
    let mut bench = Bench::start(&server).await;
    let long = run(1, 60, 10);
    assert_eq!(bench.submit(&long).await, RunReply::Accepted);
    bench.wait(1, 5).await;
    let Bench {
        executor, gateway, ..
    } = bench;
    executor.leave().await;
    let mut batch = TokenBatch::default();
    let shutdown = End::Failed(FailCode::Shutdown);
    while batch.ends().iter().all(|end| end.end != shutdown) {
        let message = timeout(PATIENCE, bench.tokens.next())
            .await
            .expect("an end");
        batch.decode_into(&message.unwrap().payload).unwrap();
    }
    let part = run(2, 60, 10).encode_parts().unwrap().remove(0);
    let subject = bench.subjects.run(ENGINE);
    // A request that is still on its way is answered, so that its gateway does not wait for the answer.
    let ask = || {
        gateway
            .client()
            .request(subject.clone(), part.clone().into())
    };
    let answer = RunReply::decode(&ask().await.expect("an answer").payload);
    assert!(
        matches!(answer, Ok(RunReply::Rejected { .. })),
        "{answer:?}"
    );
    drop(executor);
    let ended = async { while ask().await.is_ok() {} };
    let ended = timeout(PATIENCE, ended).await;
    ended.expect("no process listens any more");
}
