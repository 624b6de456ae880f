//! The example of subjects' rights in `deploy/nats`: what gateways and engines need is allowed, the rest is not.

use crate::connection::wait_for;
use crate::nats_server::{NatsServer, program};
use async_nats::jetstream::{self, stream};
use cluster::config::NatsConfig;
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use futures_util::StreamExt;
use nkeys::KeyPair;
use std::time::Duration;
use testing::folder::Folder;
use testing::wait::PATIENCE;
use tokio::time::timeout;

const RIGHTS: &str = include_str!("../../../../deploy/nats/rights.conf");
const ENGINE: InstanceId = InstanceId(0xE);
const GATEWAY: InstanceId = InstanceId(0x6);

/// A server with the example's rights, and one connection of each role.
struct Bench {
    _server: NatsServer,
    _folder: Folder,
    gateway: Connection,
    engine: Connection,
    subjects: Subjects,
}

impl Bench {
    async fn start(name: &str) -> Option<Self> {
        let program = program()?;
        let folder = Folder::new(name);
        let [gateway, engine] = ["gateway", "engine"].map(|role| {
            let pair = KeyPair::new_user();
            let file = folder.0.join(role);
            std::fs::write(&file, pair.seed().unwrap()).unwrap();
            (pair.public_key(), file)
        });
        let rights = RIGHTS
            .replace("$GATEWAY_NKEY", &gateway.0)
            .replace("$ENGINE_NKEY", &engine.0);
        let store = folder.0.join("store");
        let lines = format!("jetstream {{ store_dir: {store:?} }}\n{rights}");
        let mut server = NatsServer::new(program, name, &lines);
        server.start();
        let mut config = NatsConfig {
            servers: vec![server.url()],
            connection_name: "test".to_owned(),
            ..NatsConfig::default()
        };
        let mut connections = Vec::new();
        for (_, file) in [gateway, engine] {
            config.login.nkey = Some(file);
            let connection = Connection::open(&config).await.unwrap();
            let usable = || connection.is_usable().then_some(());
            wait_for("a usable connection", usable).await;
            connections.push(connection);
        }
        let engine = connections.pop()?;
        Some(Self {
            _server: server,
            _folder: folder,
            gateway: connections.pop()?,
            engine,
            subjects: Subjects::new(&ClusterName::new("millrace").unwrap()),
        })
    }

    /// A message that another role publishes arrives. Published until then: the server may see the subscription late.
    async fn passes(&self, from: &Connection, to: &Connection, subject: String) {
        let mut heard = to.client().subscribe(subject.clone()).await.unwrap();
        let arrives = async {
            let mut again = tokio::time::interval(Duration::from_millis(20));
            loop {
                tokio::select! {
                    message = heard.next() => return message.is_some(),
                    _ = again.tick() => {
                        let published = from.client().publish(subject.clone(), "x".into());
                        published.await.unwrap();
                    }
                }
            }
        };
        let arrived = timeout(PATIENCE, arrives).await;
        assert_eq!(arrived, Ok(true), "{subject}");
    }

    /// A request of the gateway that the engine answers. Sent until then, for the same reason.
    async fn is_answered(&self, subject: String) {
        let engine = self.engine.client().clone();
        let mut heard = engine.subscribe(subject.clone()).await.unwrap();
        let answering = tokio::spawn(async move {
            let request = heard.next().await.unwrap();
            engine.publish(request.reply.unwrap(), "yes".into()).await
        });
        let gateway = self.gateway.client();
        let asked = async {
            loop {
                if let Ok(answer) = gateway.request(subject.clone(), "x".into()).await {
                    return answer.payload;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let answer = timeout(PATIENCE, asked).await;
        assert_eq!(answer.unwrap(), "yes", "{subject}");
        answering.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn example_rights_allow_what_both_roles_need() {
    let Some(bench) = Bench::start("rights").await else {
        return;
    };
    let (gateway, engine, subjects) = (&bench.gateway, &bench.engine, &bench.subjects);
    bench.passes(engine, gateway, subjects.heartbeat()).await;
    bench.passes(gateway, engine, subjects.heartbeat()).await;
    bench
        .passes(engine, gateway, subjects.tokens(GATEWAY))
        .await;
    bench.passes(gateway, gateway, subjects.find()).await;
    for subject in [
        subjects.run(ENGINE),
        subjects.control(ENGINE),
        subjects.read(ENGINE),
    ] {
        bench.is_answered(subject).await;
    }
    let context = jetstream::new(gateway.client().clone());
    let records = context.create_stream(stream::Config {
        name: "mr_millrace_records".to_owned(),
        subjects: vec!["mr.millrace.s.*".to_owned()],
        allow_direct: true,
        ..stream::Config::default()
    });
    let records = timeout(PATIENCE, records).await.unwrap().unwrap();
    let stored = context.publish("mr.millrace.s.7", "record".into()).await;
    stored.unwrap().await.unwrap();
    let last = records.direct_get_last_for_subject("mr.millrace.s.7").await;
    assert_eq!(last.unwrap().payload, "record");
    records.purge().await.unwrap();
    assert_eq!((gateway.denials(), engine.denials()), (vec![], vec![]));
}

#[tokio::test]
async fn example_rights_deny_the_other_role_and_other_clusters() {
    let Some(bench) = Bench::start("rights-denied").await else {
        return;
    };
    let (gateway, engine) = (bench.gateway.client(), bench.engine.client());
    let denied = [
        bench.subjects.run(ENGINE),
        bench.subjects.find(),
        "mr.other.hb".to_owned(),
        "$JS.API.STREAM.DELETE.mr_millrace_records".to_owned(),
    ];
    for subject in &denied {
        engine.publish(subject.clone(), "x".into()).await.unwrap();
    }
    let denials = || Some(bench.engine.denials()).filter(|found| found.len() == denied.len());
    let found = wait_for("denials of the engine", denials).await.join("\n");
    for subject in &denied {
        assert!(found.contains(subject), "{subject} in {found}");
    }
    let tokens = bench.subjects.tokens(GATEWAY);
    gateway.publish(tokens.clone(), "x".into()).await.unwrap();
    let _heard = gateway.subscribe(bench.subjects.run(ENGINE)).await.unwrap();
    gateway.publish("mr.other.hb", "x".into()).await.unwrap();
    let denials = || Some(bench.gateway.denials()).filter(|found| found.len() == 3);
    let found = wait_for("denials of the gateway", denials).await.join("\n");
    assert!(
        found.contains(&tokens) && found.contains("mr.other.hb"),
        "{found}"
    );
}
