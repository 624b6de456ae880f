//! How long a message needs from one process to another over NATS, with the rights of gateways and engines: a gateway's
//! connection sends orders to an engine's, which answers each with a message of tokens.
//!
//! ```text
//! cargo run --release -p cluster --example hop -- nats://127.0.0.1:4222 GATEWAY-NKEY-FILE ENGINE-NKEY-FILE COUNT
//! ```
//!
//! Prints the half of the round trips: p50 and p99 in microseconds.

use cluster::config::{LoginFiles, NatsConfig};
use cluster::names::{ClusterName, InstanceId, Subjects};
use cluster::nats::Connection;
use futures_util::StreamExt;
use std::error::Error;
use std::time::{Duration, Instant};

/// A step's tokens of some streams.
const BODY_BYTES: usize = 120;
/// Between two messages: an engine's step.
const STEP: Duration = Duration::from_millis(2);
/// After the subscriptions.
const SETTLE: Duration = Duration::from_millis(500);
/// Round trips before the measured ones.
const WARMUP: usize = 200;

type Failed = Box<dyn Error>;

#[expect(clippy::print_stdout, reason = "the result")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, gateway_nkey, engine_nkey, count] = &arguments[..] else {
        return Err("arguments: NATS-URL GATEWAY-NKEY-FILE ENGINE-NKEY-FILE COUNT".into());
    };
    let gateway = connect(server, gateway_nkey).await?;
    let engine = connect(server, engine_nkey).await?;
    let subjects = Subjects::new(&ClusterName::new("millrace")?);
    let (to, back) = (InstanceId::random()?, InstanceId::random()?);
    let (orders, tokens) = (subjects.control(to), subjects.tokens(back));
    let mut arrived = engine.client().subscribe(orders.clone()).await?;
    let mut answered = gateway.client().subscribe(tokens.clone()).await?;
    let answers = engine.client().clone();
    tokio::spawn(async move {
        while let Some(message) = arrived.next().await {
            // A lost answer ends the measurement below.
            let _ = answers.publish(tokens.clone(), message.payload).await;
        }
    });
    // The server knows the subscriptions before the first message: a flush does not wait for its answer.
    engine.client().flush().await?;
    gateway.client().flush().await?;
    tokio::time::sleep(SETTLE).await;
    let count: usize = count.parse()?;
    let mut hops = Vec::with_capacity(count);
    for number in 0..WARMUP + count {
        let begin = now();
        let body = vec![0_u8; BODY_BYTES].into();
        gateway.client().publish(orders.clone(), body).await?;
        answered.next().await.ok_or("the subscription has ended")?;
        if number >= WARMUP {
            hops.push(now().saturating_duration_since(begin) / 2);
        }
        tokio::time::sleep(STEP).await;
    }
    hops.sort_unstable();
    let at = |part: usize| hops[(hops.len() * part / 100).min(hops.len() - 1)].as_micros();
    println!("p50 {} us, p99 {} us of {count} hops", at(50), at(99));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

/// A connection as that of a process of the cluster.
async fn connect(server: &str, nkey: &str) -> Result<Connection, Failed> {
    let config = NatsConfig {
        servers: vec![server.to_owned()],
        connection_name: "hop".to_owned(),
        login: LoginFiles {
            nkey: Some(nkey.into()),
            ..LoginFiles::default()
        },
        ..NatsConfig::default()
    };
    let connection = Connection::open(&config).await?;
    let mut usable = connection.usable_watch();
    usable.wait_for(|is_usable| *is_usable).await?;
    Ok(connection)
}
