//! Messages that loops send: a loop that looks at deadlines must not wait until a lost connection is back.

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::timeout;

/// Time for a message to be taken by the connection, which takes none while it is made again. Longer waits lose the message, as
/// the loss of the connection does.
const TAKEN_MAX: Duration = Duration::from_millis(100);

/// Gives a message to the connection.
///
/// # Errors
/// The connection is closed, or takes no message in time: the message is lost.
pub(crate) async fn publish_in_time(
    client: &Client,
    subject: String,
    header: Option<HeaderMap>,
    message: Bytes,
) -> Result<(), String> {
    let sent = async {
        match header {
            None => client.publish(subject, message).await,
            Some(header) => client.publish_with_headers(subject, header, message).await,
        }
    };
    match timeout(TAKEN_MAX, sent).await {
        Ok(sent) => sent.map_err(|why| why.to_string()),
        Err(_) => Err("the connection takes no message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::ConnectOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that greets one client and is gone.
    async fn greet(listener: TcpListener) {
        let (mut socket, _) = listener.accept().await.unwrap();
        let info = b"INFO {\"server_id\":\"a\",\"version\":\"2.10.0\",\"max_payload\":1048576,\"proto\":1,\"headers\":true}\r\n";
        socket.write_all(info).await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"PING\r\n") {
            let mut part = [0; 512];
            let read = socket.read(&mut part).await.unwrap();
            heard.extend_from_slice(&part[..read]);
        }
        socket.write_all(b"PONG\r\n").await.unwrap();
    }

    #[tokio::test]
    async fn message_for_a_lost_connection_delays_its_sender_by_a_moment() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(greet(listener));
        let options = ConnectOptions::new().client_capacity(1);
        let client = options.connect(url).await.unwrap();
        server.await.unwrap();
        let mut outcome = Ok(());
        for _ in 0..100 {
            // Without the bound this would wait for the server, for ever.
            outcome = publish_in_time(&client, "a".to_owned(), None, Bytes::new()).await;
            if outcome.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let lost = Err("the connection takes no message".to_owned());
        assert_eq!(outcome, lost);
    }
}
