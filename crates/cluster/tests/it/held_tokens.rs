//! Tokens that reach a gateway while the gateway does not know whether it is still the owner of its streams.

use crate::connection::{connect, wait_for};
use crate::nats_server::{NatsServer, program};
use async_nats::{Client, Message, Subscriber};
use cluster::messages::{
    Assembled, ChoiceEnd, ContentIdentity, Heartbeat, PartAssembly, ReadRequest, ReportedLoad,
    Role, Run, RunKey, RunReply, ServedModel, TokenBatch,
};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::{Connection, Hearing};
use cluster::relay::{KnownInstance, RelayConfig, RelayDriver, RelayLink, RelayedModel};
use engine::remote::remote_handle;
use engine::{Choice, EngineConfig, Handle, Request, Token};
use futures_util::StreamExt;
use model::Dims;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, PoolLimits, Read, Reader, SegmentPool};
use testing::wait::PATIENCE;
use tokio::sync::watch;
use tokio::time::timeout;

const ENGINE: InstanceId = InstanceId(0xE);
const GATEWAY: InstanceId = InstanceId(0x6);
const DIMS: Dims = Dims {
    vocab: 64,
    context_max: 128,
    page_tokens: 4,
    pages: 64,
    rows_max: 16,
    logit_rows_max: 16,
};

#[expect(clippy::disallowed_methods, reason = "the clock of the heartbeats")]
fn now() -> Instant {
    Instant::now()
}

/// An engine with room for all requests, as a gateway hears of it.
fn known_engine() -> KnownInstance {
    let mut heartbeat = Heartbeat::new(ENGINE, Role::Engine);
    heartbeat.models.push(ServedModel {
        key: "model".into(),
        identity: ContentIdentity::default(),
        context_max: 128,
        hidden_dim: 0,
        tower: String::new(),
        load: Some(ReportedLoad {
            pages_total: 64,
            pages_free: 64,
            page_tokens: 4,
            slots: 4,
            ..ReportedLoad::default()
        }),
    });
    KnownInstance {
        heartbeat: Arc::new(heartbeat),
        heard: now(),
        accepts: true,
    }
}

/// The engine's side of the subjects, played by the test.
struct PlayedEngine {
    client: Client,
    subjects: Subjects,
    runs: Subscriber,
    reads: Subscriber,
}

impl PlayedEngine {
    async fn start(client: &Client, subjects: &Subjects) -> Self {
        let runs = client.subscribe(subjects.run(ENGINE)).await.unwrap();
        let reads = client.subscribe(subjects.read(ENGINE)).await.unwrap();
        client.flush().await.unwrap();
        Self {
            client: client.clone(),
            subjects: subjects.clone(),
            runs,
            reads,
        }
    }

    async fn answer(&self, message: &Message, bytes: Vec<u8>) {
        let reply = message.reply.clone().expect("a request");
        self.client.publish(reply, bytes.into()).await.unwrap();
    }

    /// Accepts the next request.
    async fn accept(&mut self) -> Run {
        let message = timeout(PATIENCE, self.runs.next()).await.expect("a run");
        let message = message.unwrap();
        let run = PartAssembly::default().push(&message.payload, now());
        let Ok(Assembled::Run(run)) = run else {
            panic!("one part")
        };
        self.answer(&message, RunReply::Accepted.encode()).await;
        *run
    }

    async fn publish(&self, batch: &TokenBatch) {
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        let subject = self.subjects.tokens(GATEWAY);
        self.client.publish(subject, bytes.into()).await.unwrap();
    }

    /// The next read: what the gateway has of the first choice, and the message to answer.
    async fn read(&mut self) -> (u32, Message) {
        let message = timeout(PATIENCE, self.reads.next()).await.expect("a read");
        let message = message.unwrap();
        let request = ReadRequest::decode(&message.payload).unwrap();
        (request.entries[0].have[0], message)
    }
}

fn tokens(run: &Run, first: u32, ids: &[u32]) -> TokenBatch {
    let mut batch = TokenBatch::new(ENGINE);
    let key = RunKey {
        handle: run.handle,
        attempt: run.attempt,
        choice: 0,
        first,
    };
    let tokens: Vec<_> = ids.iter().map(|&id| Token { id, logprob: 0.0 }).collect();
    batch.push_run(key, &tokens, &[]).unwrap();
    batch
}

fn submit(handle: &Handle) -> Reader<Token> {
    let pool = SegmentPool::new(PoolLimits { segments_max: 64 });
    let (tokens, reader) = stream::open(&pool, 8).unwrap();
    let choice = Choice::new(tokens);
    let request = Request {
        eos: Arc::from([0]),
        choices: vec![choice],
        remote: Some(b"record".to_vec().into()),
        ..Request::new(vec![1, 2, 3], 8)
    };
    handle.submit(request).unwrap();
    reader
}

/// Takes the next tokens, and the end if it follows.
async fn next_tokens(reader: &mut Reader<Token>, count: usize) -> (Vec<u32>, Option<End>) {
    let (mut ids, mut buf) = (Vec::new(), [Token::default(); 8]);
    wait_for("tokens", || {
        match reader.read(&mut buf) {
            Read::Items(read) => ids.extend(buf[..read].iter().map(|token| token.id)),
            Read::Ended(end) => return Some(Some(end)),
            Read::Empty => {}
        }
        (ids.len() >= count).then_some(None)
    })
    .await;
    let end = match reader.read(&mut buf) {
        Read::Ended(end) => Some(end),
        _ => None,
    };
    (ids, end)
}

/// A gateway's relay of one model, and the handle of the model.
async fn start_relay(
    gateway: &Connection,
    subjects: &Subjects,
    hearing: &Arc<Hearing>,
) -> (RelayDriver, Handle) {
    let link = RelayLink {
        client: gateway.client().clone(),
        usable: watch::channel(true).1,
        subjects: subjects.clone(),
        gateway: GATEWAY,
        instances: Box::new(|| vec![known_engine()]),
        unreadable: Arc::default(),
        hearing: Arc::clone(hearing),
    };
    let driver = RelayDriver::start(link, RelayConfig::default()).await;
    let (handle, inbox) = remote_handle(DIMS, EngineConfig::default(), now()).unwrap();
    let model = RelayedModel {
        key: "model".into(),
        identity: ContentIdentity::default(),
        context_max: 128,
        tower: String::new(),
        inbox,
    };
    let driver = driver.unwrap();
    driver.add(model).unwrap();
    (driver, handle)
}

#[tokio::test]
async fn tokens_are_dropped_while_the_owner_is_unknown_and_read_afterwards() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "held", "");
    server.start();
    let (gateway, engine) = (connect(&server).await, connect(&server).await);
    let subjects = Subjects::new(&ClusterName::new("test").unwrap());
    let mut engine = PlayedEngine::start(engine.client(), &subjects).await;
    let hearing = Arc::new(Hearing::new(now()));
    hearing.expect_confirmations();
    let (_driver, handle) = start_relay(&gateway, &subjects, &hearing).await;
    let mut reader = submit(&handle);
    let run = engine.accept().await;
    engine.publish(&tokens(&run, 0, &[5, 6])).await;
    assert_eq!(next_tokens(&mut reader, 2).await, (vec![5, 6], None));

    // This gateway hears nothing of itself, and then its own heartbeat: another gateway may have its streams.
    hearing.begin(Duration::from_millis(1), now());
    wait_for("silence", || hearing.is_held(now()).then_some(())).await;
    hearing.note_heartbeat(now());
    hearing.begin(PATIENCE * 10, now());
    assert!(hearing.is_held(now()), "not confirmed");
    let mut markers = gateway.client().subscribe("marker").await.unwrap();
    engine.publish(&tokens(&run, 2, &[7])).await;
    // The server may take a message before it has the subscription.
    let received = timeout(PATIENCE, async {
        let repeat = Duration::from_millis(20);
        while timeout(repeat, markers.next()).await.is_err() {
            engine.client.publish("marker", "".into()).await.unwrap();
        }
    });
    received.await.expect("the marker");
    // The relay's task takes what came before the marker.
    tokio::time::sleep(Duration::from_millis(20)).await;
    hearing.confirm(hearing.returns());
    let (have, message) = loop {
        let (have, message) = engine.read().await;
        if !hearing.is_held(now()) {
            break (have, message);
        }
    };
    assert_eq!(have, 2, "the third token was told");
    let mut rest = tokens(&run, 2, &[7, 8]);
    let end = ChoiceEnd {
        handle: run.handle,
        attempt: run.attempt,
        choice: 0,
        len: 4,
        end: End::Length,
    };
    rest.push_end(end).unwrap();
    let mut bytes = Vec::new();
    rest.encode(&mut bytes);
    engine.answer(&message, bytes).await;
    let (ids, end) = next_tokens(&mut reader, 2).await;
    assert_eq!((ids, end), (vec![7, 8], Some(End::Length)));
}
