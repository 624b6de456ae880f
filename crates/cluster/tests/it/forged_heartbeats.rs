//! Heartbeats in the name of gateways, sent by whoever may publish heartbeats, over a real NATS server.
//!
//! Promise (Cluster): heartbeats in the name of a gateway that lack the gateways' secret, are changed or are sent
//! again name no address that is asked; no caller's key leaves a gateway, and a forged gateway's answers are not
//! believed.
//! Also held by `cluster/src/instances/simulation.rs :: sealed_heartbeat_is_believed_while_it_is_new`,
//! `millrace/tests/it/cluster/forged_gateway.rs`, `server/src/peers/seal.rs`.

use crate::connection::wait_for;
use crate::nats_server::{NatsServer, program};
use async_nats::Message;
use cluster::config::NatsConfig;
use cluster::instances::{LiveInstance, Membership, MembershipConfig};
use cluster::messages::{Heartbeat, Role};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use cluster::secret::ClusterSecret;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;

const SECOND: InstanceId = InstanceId(2);
/// The address of the second gateway.
const HTTP: &str = "10.0.0.2:8420";

async fn join(server: &NatsServer, id: u64, secret: Option<&str>) -> Membership {
    let config = NatsConfig {
        servers: vec![server.url()],
        ..NatsConfig::default()
    };
    let connection = Connection::open(&config).await.unwrap();
    let config = MembershipConfig {
        name: ClusterName::new("c").unwrap(),
        id: InstanceId(id),
        heartbeat: Duration::from_millis(200),
        secret: secret.map(ClusterSecret::of),
    };
    let own = Heartbeat {
        http: Some(HTTP.to_owned()),
        ..Heartbeat::new(InstanceId(0), Role::Gateway)
    };
    Membership::start(Arc::new(connection), config, move || own.clone())
}

fn second_at(gateway: &Membership) -> Option<LiveInstance> {
    gateway.get(SECOND)
}

/// A heartbeat of the second gateway, as everybody hears it.
async fn overhear(gateway: &Membership) -> Message {
    let subject = Subjects::new(&gateway.config().name).heartbeat();
    let client = gateway.connection().client();
    let mut heard = client.subscribe(subject).await.unwrap();
    loop {
        let message = heard.next().await.unwrap();
        if Heartbeat::decode(&message.payload).unwrap().id == SECOND {
            return message;
        }
    }
}

#[tokio::test]
async fn address_without_the_seal_of_the_gateways_is_not_believed() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "forged", "");
    server.start();
    let first = join(&server, 1, Some("s")).await;
    let _second = join(&server, 2, Some("s")).await;
    let _other = join(&server, 3, Some("another")).await;
    let _bare = join(&server, 4, None).await;
    let trusted = |id| {
        let instance = first.get(InstanceId(id))?;
        Some(instance.trusted_address().map(str::to_owned))
    };
    for (id, address) in [(2, Some(HTTP.to_owned())), (3, None), (4, None)] {
        wait_for("a gateway", || {
            trusted(id).filter(|found| *found == address)
        })
        .await;
    }

    let real = overhear(&first).await;
    let client = first.connection().client();
    let forge = |change: fn(&mut Heartbeat)| {
        let mut heartbeat = Heartbeat::decode(&real.payload).unwrap();
        heartbeat.http = Some("10.6.6.6:1".to_owned());
        heartbeat.number += 1_000_000;
        change(&mut heartbeat);
        heartbeat.encode().unwrap()
    };
    let sealed = real.headers.clone().expect("a seal");
    let forged: [fn(&mut Heartbeat); 3] = [
        |_| {},
        |heartbeat| heartbeat.leaving = true,
        |heartbeat| heartbeat.role = Role::Engine,
    ];
    for (number, change) in forged.into_iter().enumerate() {
        let (subject, payload) = (real.subject.clone(), forge(change));
        // Without a seal, and with that of another message.
        client
            .publish(subject.clone(), payload.clone().into())
            .await
            .unwrap();
        let sent = client.publish_with_headers(subject, sealed.clone(), payload.into());
        sent.await.unwrap();
        wait_for("both are counted", || {
            (first.counts().forged >= 2 * number as u64 + 2).then_some(())
        })
        .await;
        let second = second_at(&first).unwrap();
        assert_eq!(second.trusted_address(), Some(HTTP));
        assert!(!second.heartbeat.leaving && second.heartbeat.role == Role::Gateway);
    }
    let before = first.counts().forged;
    let (subject, payload) = (real.subject.clone(), real.payload.clone());
    let sent = client.publish_with_headers(subject, sealed, payload);
    sent.await.unwrap();
    wait_for("a replayed heartbeat is counted", || {
        (first.counts().forged > before).then_some(())
    })
    .await;

    // A new id: known, and not asked.
    let payload = forge(|heartbeat| heartbeat.id = InstanceId(9));
    client.publish(real.subject, payload.into()).await.unwrap();
    wait_for("an invented gateway", || trusted(9).filter(Option::is_none)).await;
}
