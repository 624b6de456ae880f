//! Instances that see each other over a real NATS server.

use crate::connection::wait_for;
use crate::nats_server::{NatsServer, program};
use cluster::config::NatsConfig;
use cluster::instances::{InstanceState, Membership, MembershipConfig};
use cluster::messages::{Heartbeat, Role};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// An instance with these API keys. The time between heartbeats is long enough for a loaded machine.
async fn join(server: &NatsServer, cluster: &str, id: u64, keys: &'static str) -> Membership {
    let heartbeat = Heartbeat {
        keys_digest: keys.to_owned(),
        ..Heartbeat::new(InstanceId(0), Role::Engine)
    };
    join_as(server, cluster, id, heartbeat, Duration::from_millis(200)).await
}

async fn join_as(
    server: &NatsServer,
    cluster: &str,
    id: u64,
    own: Heartbeat,
    heartbeat: Duration,
) -> Membership {
    let config = NatsConfig {
        servers: vec![server.url()],
        connection_name: format!("test {id}"),
        ..NatsConfig::default()
    };
    let connection = Connection::open(&config).await.unwrap();
    let config = MembershipConfig {
        name: ClusterName::new(cluster).unwrap(),
        id: InstanceId(id),
        heartbeat,
        secret: None,
    };
    Membership::start(Arc::new(connection), config, move || own.clone())
}

async fn wait_state(membership: &Membership, id: u64, state: InstanceState) {
    wait_for(state.name(), || {
        let instance = membership.get(InstanceId(id))?;
        (instance.state == state).then_some(())
    })
    .await;
}

#[tokio::test]
async fn instances_join_leave_and_die() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "members", "");
    server.start();
    let first = join(&server, "c", 1, "a").await;
    let second = join(&server, "c", 2, "a").await;
    let third = join(&server, "c", 3, "b").await;
    let other = join(&server, "d", 4, "a").await;
    for (member, id) in [(&first, 2), (&first, 3), (&second, 1), (&third, 2)] {
        wait_state(member, id, InstanceState::Alive).await;
    }
    let differences = |id| first.get(InstanceId(id)).unwrap().differences;
    assert!(differences(2).is_empty());
    assert!(differences(3)[0].to_string().contains("other API keys"));
    second.leave().await;
    wait_state(&first, 2, InstanceState::Leaving).await;
    drop((second, third));
    wait_state(&first, 2, InstanceState::Gone).await;
    wait_state(&first, 3, InstanceState::Gone).await;
    assert_eq!(first.counts().lost, 1, "the third");
    assert_eq!(first.count_in(InstanceState::Gone), 2);
    assert!(other.instances().is_empty(), "of another cluster");
}

#[tokio::test]
async fn restart_of_the_server_and_strange_messages_lose_no_instance() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "strange", "");
    server.start();
    let first = join(&server, "c", 1, "").await;
    let second = join(&server, "c", 2, "").await;
    wait_state(&first, 2, InstanceState::Alive).await;
    let (client, subject) = (
        second.connection().client().clone(),
        Subjects::new(&first.config().name).heartbeat(),
    );
    for payload in ["", "hello", "{\"v\":7}"] {
        client
            .publish(subject.clone(), payload.into())
            .await
            .unwrap();
    }
    wait_for("counted messages", || {
        let counts = first.counts();
        ((counts.malformed, counts.newer) == (2, 1)).then_some(())
    })
    .await;
    server.kill();
    wait_for("lost connections", || {
        let is_lost = |member: &Membership| !member.connection().is_usable();
        (is_lost(&first) && is_lost(&second)).then_some(())
    })
    .await;
    server.start();
    let received = first.counts().received;
    wait_for("heartbeats", || {
        (first.counts().received > received + 3).then_some(())
    })
    .await;
    wait_state(&first, 2, InstanceState::Alive).await;
    assert_eq!(first.counts().lost, 0);
    assert!(first.published().sent > 0);
}

#[tokio::test]
async fn process_whose_address_refuses_connections_is_gone_before_a_silent_one() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "refused", "");
    server.start();
    let beat = Duration::from_millis(500);
    let gateway = Heartbeat::new(InstanceId(0), Role::Gateway);
    let first = join_as(&server, "c", 1, gateway, beat).await;
    let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (ended, stopped) = (listen().await, listen().await);
    let join = async |id, listener: &TcpListener| {
        let http = Some(listener.local_addr().unwrap().to_string());
        // Engines try no connections: each connection that is accepted is the gateway's.
        let engine = Heartbeat::new(InstanceId(0), Role::Engine);
        join_as(&server, "c", id, Heartbeat { http, ..engine }, beat).await
    };
    let (second, third) = (join(2, &ended).await, join(3, &stopped).await);
    for id in [2, 3] {
        wait_state(&first, id, InstanceState::Alive).await;
    }
    // Both addresses are reached while the instances are alive.
    ended.accept().await.unwrap();
    stopped.accept().await.unwrap();
    drop((second, third, ended));
    wait_state(&first, 2, InstanceState::Gone).await;
    assert_eq!(
        first.get(InstanceId(3)).unwrap().state,
        InstanceState::Suspected,
        "its kernel accepts connections"
    );
    wait_state(&first, 3, InstanceState::Gone).await;
}
