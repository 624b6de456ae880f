//! Notices of events in mailboxes, over a real NATS server.

use crate::nats_server::{NatsServer, program};
use cluster::config::NatsConfig;
use cluster::mailbox_notices::MailboxNotices;
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A gateway: where its arrivals go, and the keys whose readers it wakes.
async fn start(url: &str, number: u64) -> (mpsc::Sender<u64>, mpsc::Receiver<u64>) {
    let config = NatsConfig {
        servers: vec![url.to_owned()],
        ..NatsConfig::default()
    };
    let connection = Arc::new(Connection::open(&config).await.unwrap());
    let mut usable = connection.usable_watch();
    usable.wait_for(|usable| *usable).await.unwrap();
    let subjects = Subjects::new(&ClusterName::new("test").unwrap());
    let notices = MailboxNotices::new(connection, &subjects, InstanceId(number));
    let (sender, arrivals) = mpsc::channel(8);
    let (heard, woken) = mpsc::channel(64);
    tokio::spawn(async move {
        let hear = |key| heard.try_send(key).unwrap();
        notices.exchange(arrivals, hear).await;
    });
    (sender, woken)
}

#[tokio::test]
async fn arrival_at_one_gateway_wakes_readers_at_the_others() {
    let Some(program) = program() else { return };
    let mut nats = NatsServer::new(program, "mailbox-notices", "");
    nats.start();
    let (first, mut first_woken) = start(&nats.url(), 1).await;
    let (second, mut second_woken) = start(&nats.url(), 2).await;
    // A notice before the subscription of the other is lost.
    let woken = async {
        loop {
            first.send(7).await.unwrap();
            let heard = tokio::time::timeout(Duration::from_millis(100), second_woken.recv());
            if let Ok(key) = heard.await {
                return key;
            }
        }
    };
    assert_eq!(woken.await, Some(7));
    second.send(9).await.unwrap();
    assert_eq!(first_woken.recv().await, Some(9), "not the own arrivals");
}
