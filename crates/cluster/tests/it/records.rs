//! Records of streams in JetStream of a real NATS server.

use crate::connection::wait_for;
use crate::nats_server::{NatsServer, program};
use cluster::config::NatsConfig;
use cluster::messages::{FILE_PART_BYTES, FileDigest};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use cluster::records::{
    ClaimOutcome, ClaimedStream, Fenced, JetStreamRecords, JournalTap, RecordsConfig,
    RecordsDriver, RecordsLink, ReplicaState, Replicator, SharedReplicator,
};
use journal::{
    Integrity, JournalConfig, JournalDirectory, JournalThread, JournalWaker, Record, RecordTap,
    Recorder, StreamKey, Tokens, Writer, open_journal,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use testing::folder::Folder;

type Fs = JournalDirectory;

/// What a gateway's streams have, and what is to be appended.
#[derive(Default)]
struct Streams {
    streams: BTreeMap<u128, Stream>,
}

#[derive(Default)]
struct Stream {
    key: Option<StreamKey>,
    description: Vec<u8>,
    tokens: Vec<u32>,
    /// Tokens that the journal has.
    recorded: usize,
    is_forgotten: bool,
}

/// A recorder of streams that a test writes.
struct TestRecorder(Arc<Mutex<Streams>>);

impl Recorder<Fs> for TestRecorder {
    fn collect_records(&mut self, writer: &mut Writer<Fs>) {
        for (id, stream) in &mut self.0.lock().unwrap().streams {
            if stream.is_forgotten {
                if let Some(key) = stream.key.take() {
                    writer.forget_stream(key, 1).unwrap();
                }
                continue;
            }
            let key = *stream
                .key
                .get_or_insert_with(|| writer.open_stream(*id, &stream.description).unwrap());
            if stream.tokens.len() > stream.recorded {
                let tokens = Tokens {
                    first: stream.recorded as u32,
                    ids: &stream.tokens[stream.recorded..],
                    ..Tokens::default()
                };
                writer.append(key, &Record::Tokens(tokens)).unwrap();
                stream.recorded = stream.tokens.len();
            }
        }
    }

    fn note_commit(&mut self, _: &mut Writer<Fs>, _: u64) {}

    fn rewrite_stream(&mut self, _: &mut Writer<Fs>, _: StreamKey) {}

    fn copy_stream(&mut self, tap: &mut dyn RecordTap, key: StreamKey, id: u128) {
        let streams = self.0.lock().unwrap();
        let stream = &streams.streams[&id];
        assert_eq!(stream.key, Some(key));
        let tokens = Record::Tokens(Tokens {
            ids: &stream.tokens[..stream.recorded],
            ..Tokens::default()
        });
        tap.copy_stream(id, &stream.description, &mut |append| append(&tokens));
    }
}

/// Bytes of a file: more than one message has.
const FILE_BYTES: usize = FILE_PART_BYTES + 1000;

/// The file of a description that begins with `f`, named by the byte after it.
fn files_of(description: &[u8]) -> Vec<FileDigest> {
    match description {
        [b'f', name, ..] => vec![[*name; 32]],
        _ => Vec::new(),
    }
}

/// Files on the disk: all but one.
fn read_file(digest: &FileDigest) -> Option<Vec<u8>> {
    (digest[0] != b'?').then(|| vec![digest[0]; FILE_BYTES])
}

/// A gateway's journal with its records in JetStream.
struct Gateway {
    instance: InstanceId,
    store: JetStreamRecords,
    shared: Arc<SharedReplicator>,
    driver: RecordsDriver,
    streams: Arc<Mutex<Streams>>,
    waker: JournalWaker,
    fenced: Arc<Mutex<Vec<Fenced>>>,
    _thread: JournalThread,
    _folder: Folder,
}

impl Gateway {
    async fn start(server: &NatsServer, id: u64, config: RecordsConfig) -> Self {
        let nats = NatsConfig {
            servers: vec![server.url()],
            connection_name: format!("gateway {id}"),
            ..NatsConfig::default()
        };
        let connection = Arc::new(Connection::open(&nats).await.unwrap());
        let subjects = Subjects::new(&ClusterName::new("test").unwrap());
        let store = JetStreamRecords::new(connection.client().clone(), subjects, config.clone());
        let instance = InstanceId(id);
        let replicator = Replicator::new(instance, config, |_| 7).with_files(files_of);
        let shared = SharedReplicator::new(replicator);
        let folder = Folder::new(&format!("records-{id}"));
        let directory = JournalDirectory::new(folder.0.join("journal"));
        let (mut writer, _) = open_journal(directory, JournalConfig::default()).unwrap();
        writer.set_tap(Box::new(JournalTap::new(Arc::clone(&shared))));
        let streams = Arc::<Mutex<Streams>>::default();
        let recorder = TestRecorder(Arc::clone(&streams));
        let start = tokio::time::Instant::now();
        let thread = JournalThread::start(writer, recorder, move || start.elapsed()).unwrap();
        let waker = thread.waker();
        let fenced = Arc::<Mutex<Vec<Fenced>>>::default();
        let (on_fenced, wanted) = (Arc::clone(&fenced), OnceLock::new());
        wanted.set(waker.clone()).unwrap();
        let driver = RecordsDriver::start(RecordsLink {
            on_store: Box::new(|| {}),
            connection,
            store: store.clone(),
            replicator: Arc::clone(&shared),
            identity: None,
            on_fenced: Box::new(move |fence| on_fenced.lock().unwrap().push(fence)),
            on_wanted: Box::new(move || wanted.get().unwrap().wake()),
            read_file: Arc::new(read_file),
        });
        Self {
            instance,
            store,
            shared,
            driver: driver.await.unwrap(),
            streams,
            waker,
            fenced,
            _thread: thread,
            _folder: folder,
        }
    }

    fn write(&self, id: u128, tokens: impl IntoIterator<Item = u32>) {
        self.write_described(id, vec![b'd'; 100 + id as usize], tokens);
    }

    fn write_described(
        &self,
        id: u128,
        description: Vec<u8>,
        tokens: impl IntoIterator<Item = u32>,
    ) {
        let mut streams = self.streams.lock().unwrap();
        let stream = streams.streams.entry(id).or_default();
        stream.description = description;
        stream.tokens.extend(tokens);
        drop(streams);
        self.waker.wake();
    }

    fn forget(&self, id: u128) {
        let mut streams = self.streams.lock().unwrap();
        streams.streams.get_mut(&id).unwrap().is_forgotten = true;
        drop(streams);
        self.waker.wake();
    }

    fn tokens(&self, id: u128) -> Vec<u32> {
        self.streams.lock().unwrap().streams[&id].tokens.clone()
    }

    fn state(&self, id: u128) -> Option<ReplicaState> {
        self.shared.lock().state_of(id)
    }

    /// Waits until the store has everything of these streams.
    async fn wait_stored(&self, ids: &[u128]) {
        wait_for("stored records", || {
            let recorded = {
                let streams = self.streams.lock().unwrap();
                let is_recorded = |id| {
                    let stream: &Stream = &streams.streams[id];
                    stream.recorded == stream.tokens.len()
                };
                ids.iter().all(is_recorded)
            };
            let replicator = self.shared.lock();
            let is_followed = |id: &u128| replicator.state_of(*id) == Some(ReplicaState::Followed);
            let is_stored = replicator.behind_bytes() == 0 && ids.iter().all(is_followed);
            (recorded && is_stored).then_some(())
        })
        .await;
    }

    async fn claim(&self, id: u128, of: InstanceId) -> ClaimOutcome {
        let may_replace = |last: &cluster::records::LastMessage, _: &_| last.head.instance == of;
        let claimed = self.store.claim(id, self.instance, 1 << 24, may_replace);
        claimed.await.unwrap()
    }

    /// Continues a stream that was claimed.
    fn adopt(&self, claimed: &ClaimedStream) {
        let id = claimed.stream.id;
        let at = tokio::time::Instant::now().into_std();
        let place = claimed.place;
        self.shared.lock().claim_stream(id, place, at);
        self.write(id, claimed.stream.choices[0].ids.iter().copied());
    }
}

/// A server with JetStream, and the folder of its store.
struct Nats {
    server: NatsServer,
    store: Folder,
}

fn server(name: &str) -> Option<Nats> {
    let program = program()?;
    let store = Folder::new(name);
    let lines = format!("jetstream {{ store_dir: {:?} }}", store.0);
    let mut server = NatsServer::new(program, name, &lines);
    server.start();
    Some(Nats { server, store })
}

fn claimed(outcome: ClaimOutcome) -> ClaimedStream {
    match outcome {
        ClaimOutcome::Claimed(claimed) => *claimed,
        other => panic!("{other:?}"),
    }
}

/// Promise (Records of streams in JetStream): a stream of a dead gateway is read, claimed and continued over a real
/// NATS server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_a_dead_gateway_is_taken_over() {
    let Some(nats) = server("takeover") else {
        return;
    };
    let config = RecordsConfig::default;
    let first = Gateway::start(&nats.server, 1, config()).await;
    let second = Gateway::start(&nats.server, 2, config()).await;
    for round in 0..20 {
        first.write(7, round * 10..round * 10 + 10);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.wait_stored(&[7]).await;
    assert!(matches!(
        second.claim(7, InstanceId(9)).await,
        ClaimOutcome::OwnedBy(last) if last.head.instance == InstanceId(1)
    ));
    assert!(matches!(
        second.claim(8, InstanceId(1)).await,
        ClaimOutcome::Unknown
    ));
    let taken = claimed(second.claim(7, InstanceId(1)).await);
    assert_eq!(taken.stream.integrity, Integrity::Intact);
    assert_eq!(taken.stream.choices[0].ids, first.tokens(7));
    assert_eq!(taken.place.generation, 2);
    second.adopt(&taken);
    // The notice of the claim is enough: the first gateway has appended nothing since.
    wait_for("fenced", || {
        (first.state(7) == Some(ReplicaState::Fenced)).then_some(())
    })
    .await;
    assert_eq!(first.fenced.lock().unwrap()[0].by, InstanceId(2));
    first.write(7, [666]);
    second.write(7, [200, 201]);
    second.wait_stored(&[7]).await;
    // The copy of the second gateway is complete, and the messages of the first one are purged.
    let third = Gateway::start(&nats.server, 3, config()).await;
    let taken = claimed(third.claim(7, InstanceId(2)).await);
    let expected: Vec<u32> = (0..202).collect();
    assert_eq!(taken.stream.choices[0].ids, expected);
    assert_eq!(taken.stream.integrity, Integrity::Intact);
    assert_eq!(taken.place.generation, 3);
}

/// Promise (Records of streams in JetStream): one of many claims wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_claims_wins() {
    let Some(nats) = server("claims") else {
        return;
    };
    let first = Gateway::start(&nats.server, 1, RecordsConfig::default()).await;
    first.write(7, 0..100);
    first.wait_stored(&[7]).await;
    let others = (2..8).map(|id| Gateway::start(&nats.server, id, RecordsConfig::default()));
    let others = futures_util::future::join_all(others).await;
    let claims = others.iter().map(|other| other.claim(7, InstanceId(1)));
    let outcomes = futures_util::future::join_all(claims).await;
    let winners = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, ClaimOutcome::Claimed(_)));
    assert_eq!(winners.count(), 1);
    let losers = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, ClaimOutcome::OwnedBy(_)));
    assert_eq!(losers.count(), 5);
}

/// Promise (Records of streams in JetStream): records that an outage longer than the buffer, or a wiped store, has
/// lost are restored from memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_and_wiped_store_are_made_up_for() {
    let Some(mut nats) = server("outage") else {
        return;
    };
    let config = RecordsConfig {
        behind_bytes: 8 << 10,
        ..RecordsConfig::default()
    };
    let gateway = Gateway::start(&nats.server, 1, config.clone()).await;
    let ids: Vec<u128> = (1..=4).collect();
    for id in &ids {
        gateway.write(*id, 0..50);
    }
    gateway.wait_stored(&ids).await;
    nats.server.kill();
    // More than the buffer holds.
    for round in 0..40 {
        for id in &ids {
            gateway.write(*id, round * 100..round * 100 + 100);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    wait_for("full buffer", || {
        (gateway.shared.lock().counters().overflows > 0).then_some(())
    })
    .await;
    assert!(gateway.shared.lock().behind_bytes() <= config.behind_bytes);
    nats.server.start();
    gateway.wait_stored(&ids).await;
    // The same port, and a store without the records.
    nats.server.kill();
    std::fs::remove_dir_all(&nats.store.0).unwrap();
    let before = gateway.shared.lock().counters().regressions;
    nats.server.start();
    wait_for("copies", || {
        let counters = gateway.shared.lock().counters();
        (counters.regressions >= before + 4).then_some(())
    })
    .await;
    gateway.wait_stored(&ids).await;
    let second = Gateway::start(&nats.server, 2, config).await;
    for id in ids {
        let taken = claimed(second.claim(id, InstanceId(1)).await);
        assert_eq!(taken.stream.choices[0].ids, gateway.tokens(id), "{id}");
        assert_eq!(taken.stream.integrity, Integrity::Intact);
    }
}

/// Promise (Records of streams in JetStream): records are removed with the retention, and long ones are divided.
/// Also held by `cluster/tests/it/records.rs :: description_larger_than_a_message_is_stored_in_parts`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_retention_removes_the_records() {
    let Some(nats) = server("purge") else {
        return;
    };
    let gateway = Gateway::start(&nats.server, 1, RecordsConfig::default()).await;
    for id in [1, 2] {
        gateway.write(id, 0..10);
    }
    gateway.wait_stored(&[1, 2]).await;
    gateway.forget(1);
    let second = Gateway::start(&nats.server, 2, RecordsConfig::default()).await;
    let last = |id| second.store.last_message(id);
    let mut is_removed = false;
    for _ in 0..2000 {
        is_removed = last(1).await.unwrap().is_none();
        if is_removed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(is_removed);
    assert!(last(2).await.unwrap().is_some());
    assert!(gateway.driver.flush(Duration::from_secs(3)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn description_larger_than_a_message_is_stored_in_parts() {
    let Some(nats) = server("parts") else {
        return;
    };
    let gateway = Gateway::start(&nats.server, 1, RecordsConfig::default()).await;
    let description: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    let stream = Stream {
        description: description.clone(),
        tokens: (0..5000).collect(),
        ..Stream::default()
    };
    let streams = &gateway.streams;
    streams.lock().unwrap().streams.insert(7, stream);
    gateway.waker.wake();
    gateway.wait_stored(&[7]).await;
    let second = Gateway::start(&nats.server, 2, RecordsConfig::default()).await;
    let taken = claimed(second.claim(7, InstanceId(1)).await);
    assert_eq!(taken.stream.description, description);
    assert_eq!(taken.stream.choices[0].ids.len(), 5000);
}

/// Promise (Records of streams in JetStream): the images of a stream are stored before its records, survive a wiped store, and
/// are removed with the records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_stored_with_the_records_that_name_them() {
    let Some(mut nats) = server("files") else {
        return;
    };
    let gateway = Gateway::start(&nats.server, 1, RecordsConfig::default()).await;
    gateway.write_described(7, b"fa".to_vec(), 0..10);
    gateway.write_described(8, b"f?".to_vec(), 0..10);
    gateway.wait_stored(&[7, 8]).await;
    let second = Gateway::start(&nats.server, 2, RecordsConfig::default()).await;
    let file = |id, name: u8| {
        let store = second.store.clone();
        async move { store.file(id, &[name; 32], FILE_BYTES).await }
    };
    let whole = Some(vec![b'a'; FILE_BYTES]);
    assert_eq!(file(7, b'a').await, Ok(whole.clone()));
    assert_eq!(file(8, b'?').await, Ok(None), "missing on this machine");
    assert_eq!(file(9, b'a').await, Ok(None), "of another stream");
    // A store without the records and the files.
    nats.server.kill();
    std::fs::remove_dir_all(&nats.store.0).unwrap();
    let before = gateway.shared.lock().counters().regressions;
    nats.server.start();
    wait_for("a copy", || {
        let counters = gateway.shared.lock().counters();
        (counters.regressions >= before + 2).then_some(())
    })
    .await;
    gateway.wait_stored(&[7, 8]).await;
    let mut again = file(7, b'a').await;
    while again.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        again = file(7, b'a').await;
    }
    assert_eq!(again, Ok(whole));
    let taken = claimed(second.claim(8, InstanceId(1)).await);
    assert_eq!(taken.stream.choices[0].ids.len(), 10);
    gateway.forget(7);
    for _ in 0..2000 {
        if file(7, b'a').await == Ok(None) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the file is not removed");
}
