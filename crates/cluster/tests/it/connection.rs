//! The connection: servers that are away, come back, are too old, or deny a subject.

use crate::nats_server::{NatsServer, free_port, program};
use cluster::config::NatsConfig;
use cluster::nats::{Connection, ConnectionState};
use futures_util::StreamExt;
use std::time::Duration;
use testing::wait::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn config(servers: &[String]) -> NatsConfig {
    NatsConfig {
        servers: servers.to_vec(),
        connection_name: "test".to_owned(),
        ..NatsConfig::default()
    }
}

/// Waits until `found` finds something.
pub(crate) async fn wait_for<T>(label: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(value) = found() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {label}"))
}

/// A usable connection to a server.
pub(crate) async fn connect(server: &NatsServer) -> Connection {
    let connection = Connection::open(&config(&[server.url()])).await.unwrap();
    wait_usable(&connection).await;
    connection
}

async fn wait_usable(connection: &Connection) {
    wait_for("a usable connection", || {
        connection.is_usable().then_some(())
    })
    .await;
}

#[tokio::test]
async fn server_that_is_away_is_named_and_tried_again() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "away", "");
    let connection = Connection::open(&config(&[server.url()])).await.unwrap();
    assert!(!connection.is_usable());
    let address = format!("127.0.0.1:{}", server.port);
    let why = wait_for("a reason", || {
        connection.problem().filter(|why| why.contains(&address))
    })
    .await;
    assert!(
        why.contains("NATS is not reachable") && why.contains("refused"),
        "{why}"
    );
    server.start();
    wait_usable(&connection).await;
    assert_eq!(connection.problem(), None);
    let ConnectionState::Connected { server: facts, .. } = connection.state() else {
        panic!("connected");
    };
    assert_eq!(facts.name, "away");
}

#[tokio::test]
async fn restarted_server_is_connected_again_with_all_subscriptions() {
    let Some(program) = program() else { return };
    let mut server = NatsServer::new(program, "restarted", "");
    server.start();
    let connection = Connection::open(&config(&[server.url()])).await.unwrap();
    wait_usable(&connection).await;
    let mut heard = connection.client().subscribe("a.b").await.unwrap();
    server.kill();
    wait_for("a lost connection", || {
        (!connection.is_usable()).then_some(())
    })
    .await;
    assert!(connection.problem().is_some());
    server.start();
    wait_usable(&connection).await;
    assert_eq!(connection.counts().connects, 2);
    let client = connection.client();
    client.publish("a.b", "again".into()).await.unwrap();
    let message = tokio::time::timeout(PATIENCE, heard.next()).await;
    assert_eq!(&message.unwrap().unwrap().payload[..], b"again");
}

#[tokio::test]
async fn denied_subjects_are_named() {
    let Some(program) = program() else { return };
    let lines = "authorization { users: [{ user: a, password: b, permissions: { publish: \"ok.>\", subscribe: \"ok.>\" } }] }";
    let mut server = NatsServer::new(program, "denied", lines);
    server.start();
    let folder = testing::folder::Folder::new("denied");
    let password = folder.0.join("password");
    std::fs::write(&password, "b\n").unwrap();
    let mut config = config(&[server.url()]);
    config.login.user = Some("a".to_owned());
    config.login.password = Some(password.clone());
    let connection = Connection::open(&config).await.unwrap();
    wait_usable(&connection).await;
    let client = connection.client();
    client.publish("ok.x", "".into()).await.unwrap();
    let _heard = client.subscribe("mr.Prod.hb").await.unwrap();
    client.publish("mr.Prod.find", "".into()).await.unwrap();
    let denials = wait_for("two denials", || {
        Some(connection.denials()).filter(|denials| denials.len() == 2)
    })
    .await;
    assert!(denials[0].contains("may not publish to \"mr.Prod.find\""));
    assert!(denials[1].contains("may not subscribe to \"mr.Prod.hb\""));
    assert_eq!(connection.problem(), Some(denials[0].clone()));
    assert_eq!(connection.counts().errors, 2);

    std::fs::write(&password, "wrong\n").unwrap();
    let rejected = Connection::open(&config).await.unwrap();
    let why = wait_for("a reason", || {
        rejected
            .problem()
            .filter(|why| why.to_lowercase().contains("authorization"))
    });
    assert!(why.await.contains("127.0.0.1"));
}

/// A server of version 2.8.4, as far as a client sees at the start.
async fn serve_old_version(listener: TcpListener) {
    const INFO: &str = "INFO {\"server_id\":\"A\",\"server_name\":\"old\",\"version\":\"2.8.4\",\"max_payload\":1048576,\"headers\":true}\r\n";
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            socket.write_all(INFO.as_bytes()).await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(1..) = socket.read(&mut buffer).await {
                let _ = socket.write_all(b"PONG\r\n").await;
            }
        });
    }
}

#[tokio::test]
async fn old_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(serve_old_version(listener));
    let connection = Connection::open(&config(&[url])).await.unwrap();
    let why = wait_for("a refusal", || match connection.state() {
        ConnectionState::Refused { why, .. } => Some(why),
        _ => None,
    })
    .await;
    assert_eq!(
        why,
        "NATS server \"old\" has version 2.8.4: at least 2.9.10 is required"
    );
    assert_eq!(connection.problem(), Some(why));
    assert!(!connection.is_usable());
    server.abort();
}

#[tokio::test]
async fn configuration_that_cannot_work_is_an_error_at_once() {
    let opened = Connection::open(&config(&[])).await;
    assert!(opened.unwrap_err().contains("1 to 32"));
    let many = vec![format!("127.0.0.1:{}", free_port()); 33];
    assert!(Connection::open(&config(&many)).await.is_err());
    let mut missing = config(&many[..1]);
    missing.login.nkey = Some("/nowhere/seed".into());
    let why = Connection::open(&missing).await.unwrap_err();
    assert!(why.starts_with("cluster.nkey_file: /nowhere/seed"), "{why}");
}
