//! Limits of keys that hold for gateways of one cluster over a real NATS server.

use crate::connection::wait_for;
use crate::nats_server::{NatsServer, program};
use cluster::config::NatsConfig;
use cluster::names::{ClusterName, InstanceId};
use cluster::nats::Connection;
use cluster::shares::{KeyShare, KeyShares, SharedLimits, UsageExchange};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

const PER_MIN: NonZeroU32 = NonZeroU32::new(40).unwrap();

struct Gateway {
    shares: KeyShares,
    key: KeyShare,
    exchange: UsageExchange,
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn gateway(server: &NatsServer, id: u64) -> Gateway {
    let config = NatsConfig {
        servers: vec![server.url()],
        connection_name: format!("gateway {id}"),
        ..NatsConfig::default()
    };
    let connection = Arc::new(Connection::open(&config).await.unwrap());
    let shares = KeyShares::new(InstanceId(id), now());
    let limits = SharedLimits {
        requests_per_min: Some(PER_MIN),
        concurrent_streams: Some(PER_MIN),
        ..SharedLimits::default()
    };
    let key = shares.key(7, limits);
    let cluster = ClusterName::new("c").unwrap();
    let exchange = UsageExchange::start(connection, &cluster, shares.clone());
    Gateway {
        shares,
        key,
        exchange,
    }
}

async fn wait_heard(gateway: &Gateway, heard: u32) {
    wait_for("gateways that are heard", || {
        let standing = gateway.shares.standing();
        (standing.heard == heard && standing.gateways == heard && !standing.is_joining)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_at_two_gateways_count_for_one_limit() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "shares", "");
    server.start();
    let gateways = [gateway(&server, 1).await, gateway(&server, 2).await];
    for gateway in &gateways {
        wait_heard(gateway, 2).await;
    }
    let start = now();
    let mut admitted = 0;
    wait_for("both gateways reject for longer than a window", || {
        let mut waits = gateways.iter().map(|gateway| {
            let counted = gateway.key.count_request(PER_MIN, now());
            admitted += u32::from(counted.is_ok());
            match counted {
                Err(cluster::shares::Shortage::Wait(wait)) => wait.as_millis(),
                _ => 0,
            }
        });
        let (first, second) = (waits.next(), waits.next());
        (first.max(second) > Some(1000)).then_some(())
    })
    .await;
    // While the test ran, the bucket was filled again.
    let filled = (now() - start).as_secs() as u32 * PER_MIN.get() / 60 + 1;
    assert!(
        admitted <= PER_MIN.get() + 1 + filled,
        "{admitted}, {filled}"
    );
    assert!(admitted >= PER_MIN.get() / 4, "{admitted}");

    let [first, second] = gateways;
    first.key.add_streams(PER_MIN.get());
    wait_for("open choices of the other gateway", || {
        let opened = second.key.open_streams(PER_MIN, 1, now());
        if opened.is_ok() {
            second.key.close_streams(1);
        }
        opened.is_err().then_some(())
    })
    .await;
    first.exchange.leave().await;
    wait_heard(&second, 1).await;
    assert_eq!(
        second.key.open_streams(PER_MIN, PER_MIN.get(), now()),
        Ok(())
    );
    assert_eq!(second.shares.counts().malformed, 0);
    drop(second.exchange);
}

#[tokio::test]
async fn stopped_server_leaves_each_gateway_its_share() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "parted", "");
    server.start();
    let gateways = [gateway(&server, 1).await, gateway(&server, 2).await];
    for gateway in &gateways {
        wait_heard(gateway, 2).await;
    }
    server.kill();
    for gateway in &gateways {
        wait_for("silence", || {
            let standing = gateway.shares.standing();
            (standing.gateways == 2 && standing.heard == 1).then_some(())
        })
        .await;
        assert_eq!(gateway.key.count_request(PER_MIN, now()), Ok(()));
    }
    server.start();
    for gateway in &gateways {
        wait_heard(gateway, 2).await;
    }
}
