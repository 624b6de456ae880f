//! Two gateways of a cluster, over a real NATS server: a stream is read where it is not, and continued where the owner is
//! gone. Skipped where there is no `nats-server`.

use crate::nats::{Nats, start_nats};
use crate::support::named::{CHAT, RESUMABLE, chat, fake, get, kept, send, stream_id};
use crate::support::sse::frames;
use crate::support::{Rig, wait_until};
use ::gateway::owners_slot::OwnerState;
use ::gateway::records::key_of_description;
use ::gateway::recovery::StartingJournal;
use ::gateway::stream_owners::RecordsSetup;
use cluster::config::NatsConfig;
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use cluster::records::{
    JetStreamRecords, JournalTap, RecordsConfig, RecordsDriver, Replicator, SharedReplicator,
};
use cluster::secret::ClusterSecret;
use journal::{JournalConfig, JournalDirectory, RecordTap, lock_journal};
use serde_json::{Value, json};
use server::{ModelIdentity, Server};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testing::folder::Folder;

/// What all gateways think of each other.
type States = Arc<Mutex<BTreeMap<InstanceId, OwnerState>>>;

/// A gateway with a journal, and records in JetStream.
struct Gateway {
    rig: Rig,
    replicator: Arc<SharedReplicator>,
    _driver: RecordsDriver,
    _folder: Folder,
}

fn start_gateway(nats: &Nats, id: u64, states: &States, arithmetic: &str) -> Gateway {
    let (instance, config) = (InstanceId(id), RecordsConfig::default());
    let replicator = SharedReplicator::new(Replicator::new(
        instance,
        config.clone(),
        key_of_description,
    ));
    let folder = Folder::new(&format!("gateway-{id}"));
    let started = Arc::<Mutex<Option<RecordsDriver>>>::default();
    let nats = NatsConfig {
        servers: vec![format!("nats://127.0.0.1:{}", nats.port)],
        connection_name: format!("gateway {id}"),
        ..NatsConfig::default()
    };
    let prepare = {
        let (replicator, started) = (Arc::clone(&replicator), Arc::clone(&started));
        let (states, path) = (Arc::clone(states), folder.0.join("journal"));
        move |server: Server| {
            let runtime = tokio::runtime::Handle::current();
            let driver = runtime.block_on(async {
                let connection = Arc::new(Connection::open(&nats).await.unwrap());
                let subjects = Subjects::new(&ClusterName::new("test").unwrap());
                let client = connection.client().clone();
                let setup = RecordsSetup {
                    connection,
                    store: JetStreamRecords::new(client, subjects, config),
                    replicator: Arc::clone(&replicator),
                    identity: None,
                    state_of: Box::new(move |instance| {
                        let states = states.lock().unwrap();
                        states.get(&instance).cloned().unwrap_or(OwnerState::Gone)
                    }),
                    others: Box::new(Vec::new),
                    stream_bytes_max: 1 << 24,
                    may_be_replicated: false,
                    on_store: Box::new(|| {}),
                };
                server.start_records(setup).await.unwrap()
            });
            *started.lock().unwrap() = Some(driver);
            let server = server.with_gateway_secret(instance, ClusterSecret::of("of all"));
            let locked = lock_journal(JournalDirectory::new(path), JournalConfig::default());
            let tap: Box<dyn RecordTap> = Box::new(JournalTap::new(replicator));
            server.with_journal(StartingJournal::with_tap(locked.unwrap(), Some(tap)))
        }
    };
    Rig::set_next_server(prepare);
    Rig::set_next_identity(ModelIdentity {
        arithmetic: arithmetic.to_owned(),
        ..ModelIdentity::default()
    });
    let rig = Rig::gated(fake(), kept());
    let alive = OwnerState::Alive(Some(rig.addr.to_string()));
    states.lock().unwrap().insert(instance, alive);
    let driver = started.lock().unwrap().take().unwrap();
    Gateway {
        rig,
        replicator,
        _driver: driver,
        _folder: folder,
    }
}

impl Gateway {
    fn describe(&self, id: &str) -> Value {
        get(&self.rig, &format!("/v1/streams/{id}"), "").json()
    }

    /// The answer so far, as text.
    fn text(&self, id: &str) -> String {
        text_of(&get(&self.rig, &format!("/v1/streams/{id}/events"), "").body)
    }
}

/// The text of the frames of a chat.
fn text_of(body: &str) -> String {
    let data = frames(body).into_iter();
    let data = data.filter_map(|frame| serde_json::from_str::<Value>(&frame.data).ok());
    data.filter_map(|chunk| {
        let delta = &chunk["choices"][0]["delta"]["content"];
        delta.as_str().map(str::to_owned)
    })
    .collect()
}

/// Promise (Records of streams in JetStream): a stream is read at a gateway that does not have it, and continues
/// there with the same text when the owner is gone; the earlier owner learns so and passes requests on.
#[test]
fn stream_is_read_at_another_gateway_and_continues_there_when_the_owner_is_gone() {
    let Some(nats) = start_nats() else { return };
    let states = States::default();
    let [first, second] = [1, 2].map(|id| start_gateway(&nats, id, &states, "vectors"));
    let body = chat(&json!({"max_tokens": 24}));
    // An answer that nothing has interrupted.
    second.rig.gate.open();
    let mut whole = send(&second.rig, "POST", CHAT, RESUMABLE, &body);
    whole.head();
    let whole = text_of(&whole.body());
    assert!(!whole.is_empty());

    let mut client = send(&first.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    let tokens = |gateway: &Gateway| gateway.describe(&id)["completion_tokens"].as_u64();
    first.rig.gate.allow(9);
    wait_until("tokens", || tokens(&first) >= Some(5));
    wait_until("stored records", || {
        first.replicator.lock().behind_bytes() == 0
    });
    // The second gateway does not have the stream, and passes the request on.
    assert_eq!(second.describe(&id)["id"], id.as_str());
    assert_eq!(tokens(&second), tokens(&first));
    let unknown = "0".repeat(32);
    let missing = get(&second.rig, &format!("/v1/streams/{unknown}"), "");
    assert_eq!(missing.head.status, 404);

    let mut feed = send(&second.rig, "GET", "/v1/streams/feed", "", &Value::Null);
    assert_eq!(feed.head().status, 200);

    // The first gateway is silent for good, as far as the second one knows.
    states
        .lock()
        .unwrap()
        .insert(InstanceId(1), OwnerState::Gone);
    wait_until("the end at the second gateway", || {
        second.describe(&id)["state"] == "ended"
    });
    assert_eq!(second.text(&id), whole);
    let (mut told, claimed) = (
        String::new(),
        format!("{{\"type\":\"claimed\",\"stream\":\"{id}\""),
    );
    while !told.contains(&claimed) {
        assert!(!told.contains("\"type\":\"recovered\""), "{told}");
        told += &feed.chunk().expect("the feed goes on");
    }
    // The first one learns that the stream is not its own any more, and passes requests on.
    wait_until("the fence", || {
        first.replicator.lock().counters().fenced == 1
    });
    wait_until("the end at the first gateway", || {
        first.describe(&id)["state"] == "ended"
    });
    assert_eq!(first.text(&id), whole);
}

/// Tokens of the answer that are stored.
const STORED: u64 = 9;

/// The second gateway, which computes otherwise than the first, and a stream that it has taken over. The first has sent two
/// tokens more than were stored.
fn taken_over(nats: &Nats) -> (Gateway, String) {
    let states = States::default();
    let first = start_gateway(nats, 1, &states, "vectors");
    let second = start_gateway(nats, 2, &states, "other vectors");
    second.rig.gate.open();
    let body = chat(&json!({"max_tokens": 24}));
    let mut client = send(&first.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    let tokens = |gateway: &Gateway| gateway.describe(&id)["completion_tokens"].as_u64();
    first.rig.gate.allow(STORED);
    wait_until("tokens", || tokens(&first) == Some(STORED));
    wait_until("stored records", || {
        first.replicator.lock().behind_bytes() == 0
    });
    let Gateway { rig, _driver, .. } = first;
    // Nothing is stored any more.
    drop(_driver);
    rig.gate.allow(2);
    let described = || get(&rig, &format!("/v1/streams/{id}"), "").json();
    wait_until("tokens that are not stored", || {
        described()["completion_tokens"] == STORED + 2
    });
    states
        .lock()
        .unwrap()
        .insert(InstanceId(1), OwnerState::Gone);
    wait_until("the end at the second gateway", || {
        second.describe(&id)["state"] == "ended"
    });
    (second, id)
}

#[test]
fn stream_ends_lost_once_where_the_next_gateway_computes_otherwise() {
    let Some(nats) = start_nats() else { return };
    let (second, id) = taken_over(&nats);
    let described = second.describe(&id);
    assert_eq!(described["completion_tokens"], STORED, "{described}");
    assert_eq!(described["choices"][0]["end"], "lost", "{described}");
    let dialects = [
        "openai.chat",
        "openai.completions",
        "openai.responses",
        "anthropic.messages",
        "ollama.chat",
        "ollama.generate",
        "llama.completion",
        "ai-sdk.ui",
    ];
    for dialect in dialects {
        let path = format!("/v1/streams/{id}/events?dialect={dialect}");
        // A client without a token, one with what was stored, and one that is ahead.
        for (after, status) in [
            (0, 200),
            (STORED, 200),
            (STORED + 1, 409),
            (STORED + 2, 409),
        ] {
            let reply = get(&second.rig, &format!("{path}&after={id}:{after}"), "");
            assert_eq!(
                reply.head.status, status,
                "{dialect}, {after}: {}",
                reply.body
            );
            let place = format!("{id}:{STORED}");
            if status == 409 {
                let header = reply.head.get("x-stream-resume-after");
                assert_eq!(header, Some(&*place), "{dialect}: {}", reply.body);
                assert!(
                    reply.body.contains("stream_lost"),
                    "{dialect}: {}",
                    reply.body
                );
                assert!(reply.body.contains(&place), "{dialect}: {}", reply.body);
                continue;
            }
            let ends = reply.body.matches("answer is lost").count();
            assert_eq!(ends, 1, "{dialect}, {after}: {}", reply.body);
        }
    }
}
