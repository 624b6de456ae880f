//! An engine whose device fails for good: from then on another arithmetic computes, and is announced.

use crate::connection::{connect, wait_for};
use crate::executor::{model, run};
use crate::nats_server::{NatsServer, program};
use cluster::config::NatsConfig;
use cluster::executor::ExecutorModel;
use cluster::instances::MembershipConfig;
use cluster::messages::{ContentIdentity, Heartbeat, Rejection, Role, Run, RunReply};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use cluster::node::{ClusterNode, NodeConfig};
use cluster::placement::PlacementPolicy;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const ENGINE: InstanceId = InstanceId(0xE);

async fn start(server: &NatsServer) -> Arc<ClusterNode> {
    let node = ClusterNode::start(NodeConfig {
        nats: NatsConfig {
            servers: vec![server.url()],
            connection_name: "engine".to_owned(),
            ..NatsConfig::default()
        },
        membership: MembershipConfig {
            name: ClusterName::new("test").unwrap(),
            id: ENGINE,
            heartbeat: Duration::from_millis(100),
            secret: None,
        },
        role: Role::Engine,
        placement: PlacementPolicy::default(),
        engine_wait: Duration::from_secs(60),
        describe: Box::new(|| Heartbeat::new(ENGINE, Role::Engine)),
    });
    node.await.unwrap()
}

/// The answer to a request for an engine with this arithmetic; `None`: the engine does not hear yet.
async fn ask(gateway: &Connection, handle: u64, arithmetic: &str) -> Option<RunReply> {
    let run = Run {
        identity: ContentIdentity {
            arithmetic: arithmetic.to_owned(),
            ..ContentIdentity::default()
        },
        ..run(handle, 3, 0)
    };
    let subject = Subjects::new(&ClusterName::new("test").unwrap()).run(ENGINE);
    let part = run.encode_parts().unwrap().remove(0);
    let answer = gateway.client().request(subject, part.into()).await.ok()?;
    Some(RunReply::decode(&answer.payload).unwrap())
}

/// Promise (Cluster): an engine that falls back from a failed device to the processor announces the processor's arithmetic, and
/// rejects requests that were placed by the device's.
#[tokio::test]
async fn engine_announces_the_arithmetic_that_computes_now() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "arithmetic", "");
    server.start();
    let (node, gateway) = (start(&server).await, connect(&server).await);
    let now = Arc::new(Mutex::new("device".to_owned()));
    let seen = Arc::clone(&now);
    let (waker, signal) = (Arc::default(), OnceLock::new());
    let executed = ExecutorModel::new("fake".into(), ContentIdentity::default(), model(&waker));
    let executed = executed.with_arithmetic(Arc::new(move || Some(seen.lock().unwrap().clone())));
    node.execute((vec![executed], None), &signal).await.unwrap();
    let announced = async |expected: &str| {
        wait_for(expected, || {
            let own = node.membership().own();
            let model = own.models.first()?;
            (model.identity.arithmetic == expected).then_some(())
        })
        .await;
    };
    announced("device").await;
    let mut reply = None;
    while reply.is_none() {
        reply = ask(&gateway, 1, "device").await;
    }
    assert_eq!(reply, Some(RunReply::Accepted));
    "processor".clone_into(&mut now.lock().unwrap());
    announced("processor").await;
    let rejected = ask(&gateway, 2, "device").await;
    assert!(
        matches!(&rejected, Some(RunReply::Rejected { code, .. }) if *code == Rejection::OtherContent),
        "{rejected:?}"
    );
    let accepted = ask(&gateway, 3, "processor").await;
    assert_eq!(accepted, Some(RunReply::Accepted));
}
